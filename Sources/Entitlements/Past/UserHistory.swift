/// What the records hold of a user's past.
///
/// A past moment is rebuilt from what was written down then: decisions, readings, grants and transfers. Nothing is read from
/// a store for it, and what was never written down is said to be unknown.
package struct UserHistory: Sendable {
    package var userKey: Int64
    /// Oldest first.
    package var decisions: [PastDecision] = []
    /// What readings said, in the order in which it was recorded; of other users only what concerns this one's purchases.
    package var items: [PastItem] = []
    package var grants: [PastGrant] = []
    /// The ledger's rows as they stand now: those the user owns or lost, and those that the items name.
    package var lineages: [Lineage] = []
    /// Transfers from the user or to them, oldest first.
    package var transfers: [PastTransfer] = []
    /// Until when sandbox purchases count; since when is not on record.
    package var sandboxUntil: Instant?
    /// A purchase or grant was seen by now.
    package var everObserved: Bool
    /// There is more than was loaded: the oldest part is missing.
    package var isCut = false

    package init(userKey: Int64, everObserved: Bool = false) {
        self.userKey = userKey
        self.everObserved = everObserved
    }
}

/// A decision as it was recorded; words that this version does not know are kept.
package struct PastDecision: Hashable, Sendable {
    package var id: Int64
    package var at: Instant
    package var kind: JobKind
    package var rule: String
    package var outcome: String
    /// `nil`: the host had no such user.
    package var typeBefore: UserType?
    package var typeAfter: UserType?
    /// Nothing else was written.
    package var isObserved = false
    package var explanation = ""

    package init(
        id: Int64,
        at: Instant,
        kind: JobKind,
        rule: String,
        outcome: String,
        typeBefore: UserType?,
        typeAfter: UserType?
    ) {
        self.id = id
        self.at = at
        self.kind = kind
        self.rule = rule
        self.outcome = outcome
        self.typeBefore = typeBefore
        self.typeAfter = typeAfter
    }

    package var knownRule: Rule? { Rule(rawValue: rule) }
    /// The user's type from then on.
    package var typeLeft: UserType? { isObserved ? typeBefore : typeAfter }

    /// A demotion that a switch, the brake or a run held back: not the rules, but people.
    package var isHeld: Bool { knownRule?.holdsDemotion ?? false }
}

/// One item of a reading as it was recorded, or a reading that found nothing.
package struct PastItem: Hashable, Sendable {
    package var decision: Int64
    /// When that was.
    package var recordedAt: Instant
    package var userKey: Int64
    /// When the request began.
    package var askedAt: Instant
    package var coverage: Coverage
    package var purchase: Int64?
    package var attribution: String?
    package var observation: Observation?

    package init(decision: Int64, recordedAt: Instant, userKey: Int64, askedAt: Instant, coverage: Coverage) {
        self.decision = decision
        self.recordedAt = recordedAt
        self.userKey = userKey
        self.askedAt = askedAt
        self.coverage = coverage
    }
}

/// A grant with its whole life.
package struct PastGrant: Hashable, Sendable {
    package var id: Int64
    package var createdAt: Instant
    package var until: Instant
    package var revokedAt: Instant?
    package var reason: String
    package var source: String

    package init(
        id: Int64,
        createdAt: Instant,
        until: Instant,
        revokedAt: Instant? = nil,
        reason: String = "",
        source: String = "grant"
    ) {
        self.id = id
        self.createdAt = createdAt
        self.until = until
        self.revokedAt = revokedAt
        self.reason = reason
        self.source = source
    }

    package func isInForce(at moment: Instant) -> Bool {
        createdAt <= moment && moment < until && (revokedAt.map { moment < $0 } ?? true)
    }
}

/// What a ledger row says of itself now.
package struct Lineage: Hashable, Sendable {
    package var id: Int64
    package var ownerKey: Int64?
    package var ownerSince: Instant
    package var firstSeenAt: Instant
    package var transferredAt: Instant?
    /// The row that it became part of.
    package var mergedInto: Int64?

    package init(id: Int64, ownerKey: Int64?, ownerSince: Instant, firstSeenAt: Instant) {
        self.id = id
        self.ownerKey = ownerKey
        self.ownerSince = ownerSince
        self.firstSeenAt = firstSeenAt
    }
}

/// A purchase that people moved.
package struct PastTransfer: Hashable, Sendable {
    package var at: Instant
    package var purchase: Int64
    package var from: Int64?
    package var to: Int64

    package init(at: Instant, purchase: Int64, from: Int64?, to: Int64) {
        self.at = at
        self.purchase = purchase
        self.from = from
        self.to = to
    }
}
