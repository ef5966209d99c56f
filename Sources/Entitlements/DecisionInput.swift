/// Everything a verdict rests on, read under the locks of the transaction that will write it.
package struct DecisionInput: Sendable {
    package var kind: JobKind
    /// `nil`: the host has no such user any more.
    package var user: User?
    package var userKey: Int64
    package var reading: Reading
    /// Whose each observation is, in the order of `reading.observations`.
    package var attributions: [Attribution] = []
    /// The ledger row each observation updates, in the same order; `nil` where it makes a new one or counts for nothing.
    package var rows: [Purchase?] = []
    /// The user's ledger rows as they stood before this reading.
    package var ledger: [Purchase] = []
    /// The ids of all ledger rows that the reading lists, also where it names another owner for them.
    package var listed: Set<Int64> = []
    package var grants = GrantState.none
    /// Those in force.
    package var activeGrants: [ActiveGrant] = []
    package var sandbox = SandboxState.none
    /// Until when the user's sandbox purchases count; `nil` as well where they count for good.
    package var sandboxEnds: Instant?
    /// A purchase or grant was seen at some time.
    package var everObserved = false
    /// The type that our last decision gave the user, or found right; `nil`: no decision has settled it yet.
    package var decidedType: UserType?
    package var absentSince: Instant?
    /// When a store's event spoke of access that begins or goes on.
    package var accessEventAt: Instant?
    /// When a purchase of the user moved to another user, by our own people or by RevenueCat's word, if no reading has
    /// settled that yet.
    package var movedAwayAt: Instant?
    package var catalog: ProductCatalog
    package var settings: DecisionSettings = DecisionSettings()
    /// Ledger owners of purchases that typed ids led to, by the store's customer id.
    package var claimed: [ClaimedPurchase] = []
    /// When others' purchases were first seen that an event named and whose owners have never restored.
    package var firstSeenByEvent: [Int64: Instant] = [:]

    /// Whether the user's type can rest on anything that was ever seen: a grant, or a purchase of their own that gives
    /// access or gave it before.
    ///
    /// Gems, sandbox trials and pending payments never made a subscriber, so they explain none.
    package var isExplained: Bool {
        everObserved || grants != .none
            || zip(reading.observations, attributions).contains { item, attribution in
                attribution.mayGiveAccess && canExplain(item)
            } || ledger.contains(where: canExplain)
    }

    /// Whether the host made the user a subscriber after our last decision, which found no access.
    package var isSetByHost: Bool { user?.type == .subscriber && decidedType == .free }

    /// Whether an item of the user's own gives access by its store's word, its product and its environment.
    package func givesAccess(_ item: Observation) -> Bool {
        item.accessState == .access && catalog.mapping(of: item.entitlements) == .access
            && (!item.isSandbox || sandbox == .allowed)
    }

    /// Whether the user's device is signed in to a store account under which no purchase of the user is on record.
    ///
    /// Other users' purchases under it make no difference: the user must not learn of them. Where a purchase of the user's own
    /// in the App Store has no known account, it may be this one.
    package var usesOtherStoreAccount: Bool {
        let devices = submittedAccounts.compactMap(\.hash)
        guard !devices.isEmpty else { return false }
        var own = Set(ledger.compactMap(\.storeAccount))
        // What the store has just said of a purchase completes what is on record of it, and the other way round.
        var completed: Set<Int64> = []
        for ((item, attribution), row) in zip(zip(reading.observations, attributions), rows)
        where item.store == Store.appStore.rawValue && attribution.counts {
            guard let account = item.storeAccount?.hash ?? row?.storeAccount else { return false }
            own.insert(account)
            if let row { completed.insert(row.id) }
        }
        for row in ledger where row.ownerKey == userKey && row.store == Store.appStore.rawValue {
            if row.storeAccount == nil, !completed.contains(row.id) { return false }
        }
        return own.isDisjoint(with: devices)
    }

    /// The store accounts of the user's devices that count: as purchases of a sandbox, such an account only for its testers.
    package var submittedAccounts: [SubmittedAccount] {
        reading.claims.accounts.filter { !$0.isSandbox || sandbox == .allowed }
    }

    private func canExplain(_ item: some AccessItem) -> Bool {
        (!item.isSandbox || sandbox != .none) && item.canExplain
            && (item.entitlements.isEmpty || catalog.mapping(of: item.entitlements) != .noAccess)
    }
}

/// Access that no store gives: by our own people, or paid for elsewhere.
package enum GrantState: String, Sendable, CaseIterable {
    case none, active, past
}

/// A grant that is in force.
package struct ActiveGrant: Hashable, Sendable {
    /// `nil`: for good.
    package var until: Instant?
    /// Who gave it: `grant` stands for our own people.
    package var source: String
    /// The team's name for what it gives; `nil`: access without a name.
    package var entitlement: String?

    package init(until: Instant?, source: String, entitlement: String? = nil) {
        self.until = until
        self.source = source
        self.entitlement = entitlement
    }
}

/// Whether the user's sandbox purchases count.
package enum SandboxState: String, Sendable, CaseIterable {
    case none, allowed, past
}

/// A purchase of another user behind a reported id.
package struct ClaimedPurchase: Hashable, Sendable {
    package var found: FoundPurchase
    /// The ledger's row and owner, where it has one.
    package var purchase: Int64?
    package var ownerKey: Int64?
    /// The host's user that the store's customer id names, if there is one.
    package var ownerID: String?
}
