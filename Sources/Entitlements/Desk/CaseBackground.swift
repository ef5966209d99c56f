/// What is on record around a case: earlier cases and transfers of its people and its purchase, and what is frozen.
package struct CaseBackground: Hashable, Sendable {
    /// What was moved.
    package var history: [CasePast] = []
    /// Cases that ended, and transfers that were stopped.
    package var passed: [CasePast] = []
    /// When a store last said that the purchase was refunded, as far as we asked.
    package var refundSeenAt: Instant?
    /// When money paid for it was last taken back as fraud or by a chargeback, as a store's list says.
    package var chargedBackAt: Instant?
    /// The same was done with something that would move along.
    package var movesChargedBack = false
    /// When the claimant came, where the question is which account was first.
    package var claimedAt: Instant?
    package var frozen = FrozenAssets()

    package init() {}
}

/// How often something happened to one side of a case, or to its purchase, and when last; names no users.
package struct CasePast: Hashable, Sendable, Codable {
    package enum Subject: String, Sendable, CaseIterable, Codable { case claimant, owner, purchase }

    package enum What: String, Sendable, CaseIterable, Codable {
        /// Tickets of a claimant; of a purchase, those about it.
        case claimed
        case owned
        case received
        case given
        case moved
    }

    package var about: Subject
    package var what: What
    /// Of tickets the verdict, or the state in which they were closed; of transfers `done` or `stopped`.
    package var outcome: String
    package var count: Int
    /// Microseconds since 1970.
    package var lastAt: Int64
    /// The newest of them.
    package var tickets: [Int64]

    enum CodingKeys: String, CodingKey {
        case about, what, outcome, count, tickets
        case lastAt = "last_at"
    }

    package init(about: Subject, what: What, outcome: String, count: Int, lastAt: Instant, tickets: [Int64]) {
        self.about = about
        self.what = what
        self.outcome = outcome
        self.count = count
        self.lastAt = lastAt.microseconds
        self.tickets = tickets
    }

    package var isMove: Bool {
        switch what {
        case .claimed, .owned: false
        case .received, .given, .moved: outcome == "done"
        }
    }
}

/// How many assets of each side are frozen for a lapse now.
package struct FrozenAssets: Hashable, Sendable, Codable {
    package var claimant: Int64?
    package var owner: Int64?

    package init(claimant: Int64? = nil, owner: Int64? = nil) {
        self.claimant = claimant
        self.owner = owner
    }
}

/// When a purchase came about, to be held against the times at which both accounts were made.
package struct CaseTimes: Hashable, Sendable, Codable {
    /// Microseconds since 1970, as all of these: the first purchase, by the stores' word.
    package var boughtAt: Int64?
    /// When our records met it.
    package var firstSeenAt: Int64?
    package var ownerSince: Int64?
    /// When people moved it last.
    package var movedAt: Int64?
    package var refundSeenAt: Int64?
    /// When money was last taken back as fraud.
    package var chargedBackAt: Int64?
    /// When the claimant came, where an event named the owner a short while before.
    package var claimedAt: Int64?

    enum CodingKeys: String, CodingKey {
        case boughtAt = "bought_at"
        case firstSeenAt = "first_seen_at"
        case ownerSince = "owner_since"
        case movedAt = "moved_at"
        case refundSeenAt = "refund_seen_at"
        case chargedBackAt = "charged_back_at"
        case claimedAt = "claimed_at"
    }

    init(_ inputs: CaseInputs) {
        boughtAt = inputs.words.compactMap(\.observation.boughtAt).min()?.microseconds
        firstSeenAt = inputs.purchase?.firstSeenAt.microseconds
        ownerSince = inputs.purchase?.ownerSince.microseconds
        movedAt = inputs.purchase?.transferredAt?.microseconds
        refundSeenAt = inputs.background.refundSeenAt?.microseconds
        chargedBackAt = inputs.background.chargedBackAt?.microseconds
        claimedAt = inputs.background.claimedAt?.microseconds
    }
}

/// Evidence as it is kept and shown: what a decision rests on, and beside it what only has to be known.
package struct CaseDocument: Sendable, Encodable {
    package var evidence: CaseEvidence
    package var background: CaseBackground
    /// What the ids led to that were named for the case.
    package var lookups: [CaseLookup]
    /// What each source answered whose word on the purchase counts.
    package var sources: [CaseSource]

    package init(_ evidence: CaseEvidence, _ background: CaseBackground, lookups: [CaseLookup], sources: [CaseSource]) {
        self.evidence = evidence
        self.background = background
        self.lookups = lookups
        self.sources = sources
    }

    private enum CodingKeys: String, CodingKey { case frozen, passed, lookups, sources }

    // No hash covers these. Assets freeze and thaw by themselves, other cases come to their end, stores are silent for a while, and
    // claimants type what they like: what people have agreed to would end for nothing each time, and what they have refused
    // would begin again. A proof that was found false is a fact, and covered as that; what other operators decided about other
    // tickets, the approver of this one judges by themselves.
    package func encode(to encoder: any Encoder) throws {
        try evidence.encode(to: encoder)
        var container = encoder.container(keyedBy: CodingKeys.self)
        try container.encode(background.frozen, forKey: .frozen)
        try container.encode(background.passed, forKey: .passed)
        try container.encode(lookups, forKey: .lookups)
        if !sources.isEmpty { try container.encode(sources, forKey: .sources) }
    }
}
