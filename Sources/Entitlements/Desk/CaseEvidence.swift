/// What was found out about a case at one time, as people read it and as approvals are bound to it; names users by keys.
package struct CaseEvidence: Hashable, Sendable, Codable {
    package struct Account: Hashable, Sendable, Codable {
        package var key: Int64
        package var standing: Standing
        /// Microseconds since 1970.
        package var createdAt: Int64?

        /// As far as a decision rests on it: whether a user is new or well known decides nothing.
        package enum Standing: String, Hashable, Sendable, Codable {
            case eligible, banned, deleting, gone
        }

        enum CodingKeys: String, CodingKey {
            case key, standing
            case createdAt = "created_at"
        }

        init(_ account: CaseAccount) {
            key = account.key
            standing =
                switch account.user?.status {
                case .active, .onboarding: .eligible
                case .banned, .bannedFinal: .banned
                case .toBeDeleted: .deleting
                case nil: .gone
                }
            if account.isGone { standing = .gone }
            createdAt = account.createdAt?.microseconds
        }
    }

    /// One store's word on one purchase.
    package struct Item: Hashable, Sendable, Codable {
        /// By which it is known; never a secret.
        package var id: String?
        package var source: String
        package var store: String
        package var environment: String
        package var kind: String
        package var product: String?
        package var status: String
        package var givesAccess: Bool?
        /// Microseconds since 1970.
        package var endsAt: Int64?
        package var renewal: String?
        package var ownership: String
        /// The user that the store was asked about.
        package var asked: CaseWord.Side?
        /// Whose it is in our records.
        package var owner: Int64?

        enum CodingKeys: String, CodingKey {
            case id, source, store, environment, kind, product, status, renewal, ownership, asked, owner
            case givesAccess = "gives_access"
            case endsAt = "ends_at"
        }

        init(_ item: Observation, asked: CaseWord.Side? = nil, owner: Int64? = nil) {
            self.owner = owner
            id = item.spokenID
            source = item.source.rawValue
            store = item.store
            environment = item.environment
            kind = item.kind.rawValue
            product = item.productID
            status = item.status.raw
            givesAccess = item.givesAccess
            endsAt = item.periodEndsAt?.microseconds
            renewal = item.renewal
            ownership = item.ownership
            self.asked = asked
        }

        fileprivate var sortKey: [String] {
            [
                source, store, id ?? "", asked?.rawValue ?? "", kind, environment, product ?? "", status, ownership,
                renewal ?? "", givesAccess.map { "\($0)" } ?? "", endsAt.map { "\($0)" } ?? "",
                owner.map { "\($0)" } ?? "",
            ]
        }
    }

    package var claimant: Account
    package var owner: Account?
    package var purchase: Int64?
    package var holder: CaseHolder
    /// Distinguishes the customer that RevenueCat would move it from.
    package var source: String?
    package var words: [Item]
    /// What else a transfer would move.
    package var alsoMoves: [Item]
    /// What was moved before, to or from either side, and of the purchase.
    package var history: [CasePast]
    package var times: CaseTimes
    package var facts: [TransferFact]
    package var hindrance: TransferHindrance
    package var verdict: CaseVerdict?
    package var reason: Suggestion.Reason
    package var approvals: Int

    enum CodingKeys: String, CodingKey {
        case claimant, owner, purchase, holder, source, words, history, times, facts, hindrance, verdict,
            reason, approvals
        case alsoMoves = "also_moves"
    }

    /// Lays out what was found; the same findings, in whatever order they came, make the same evidence.
    package init(_ inputs: CaseInputs, _ settings: DeskSettings) {
        let known = Entitlements.facts(inputs, settings)
        let suggestion = suggest(known)
        claimant = Account(inputs.claimant)
        owner = inputs.owner.map { Account($0) }
        purchase = inputs.purchase?.id
        holder = inputs.holder
        source = inputs.needsCall ? inputs.source : nil
        words = Self.inOrder(inputs.words.map { Item($0.observation, asked: $0.asked) })
        let others = inputs.held.filter { !inputs.isSubject($0.observation) }
        alsoMoves = inputs.needsCall ? Self.inOrder(others.map { Item($0.observation, owner: $0.ownerKey) }) : []
        history = inputs.background.history
        times = CaseTimes(inputs)
        facts = known.sorted { $0.rawValue < $1.rawValue }
        // A reported number proves nothing: it may be the wrong one, and closes no ticket.
        hindrance = min(Entitlements.hindrance(known), inputs.isNamedByID ? .forbids : .closes)
        verdict = suggestion.verdict
        reason = suggestion.reason
        approvals = settings.approvals.needed(known)
    }

    /// How long the owner has to object before a transfer on this evidence: not at all where they have released the purchase
    /// without an objection.
    package func ownerWindow(_ settings: DeskSettings) -> Duration {
        facts.contains(.ownerReleased) && !facts.contains(.ownerObjected) ? .zero : settings.ownerWindow
    }

    /// Each once, in an order that does not depend on that of the stores' lists.
    private static func inOrder(_ items: [Item]) -> [Item] {
        Set(items).sorted { $0.sortKey.lexicographicallyPrecedes($1.sortKey) }
    }
}
