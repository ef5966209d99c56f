/// Everything a verdict rests on, read under the locks of the transaction that will write it.
package struct Situation: Sendable {
    package var kind: JobKind
    /// `nil`: the host has no such user any more.
    package var user: User?
    package var userKey: Int64
    package var reading: Reading
    /// Whose each observation is, in the order of `reading.observations`.
    package var attributions: [Attribution]
    /// The ledger row each observation updates, in the same order; `nil` where it makes a new one or counts for nothing.
    package var rows: [Purchase?]
    /// The user's ledger rows as they stood before this reading.
    package var ledger: [Purchase]
    package var grants: GrantState
    package var sandbox: SandboxState
    /// A purchase or grant was seen at some time.
    package var everObserved: Bool
    package var absentSince: Instant?
    package var catalog: ProductCatalog
    package var settings: DecisionSettings
    /// Ledger owners of purchases that typed ids led to, by the store's customer id.
    package var claimed: [ClaimedPurchase]

    package init(
        kind: JobKind,
        user: User?,
        userKey: Int64,
        reading: Reading,
        attributions: [Attribution] = [],
        rows: [Purchase?] = [],
        ledger: [Purchase] = [],
        grants: GrantState = .none,
        sandbox: SandboxState = .none,
        everObserved: Bool = false,
        absentSince: Instant? = nil,
        catalog: ProductCatalog,
        settings: DecisionSettings = DecisionSettings(),
        claimed: [ClaimedPurchase] = []
    ) {
        self.kind = kind
        self.user = user
        self.userKey = userKey
        self.reading = reading
        self.attributions = attributions
        self.rows = rows
        self.ledger = ledger
        self.grants = grants
        self.sandbox = sandbox
        self.everObserved = everObserved
        self.absentSince = absentSince
        self.catalog = catalog
        self.settings = settings
        self.claimed = claimed
    }
}

/// Access given by our own people.
package enum GrantState: String, Sendable, CaseIterable {
    case none, active, past
}

/// Whether the user's sandbox purchases count.
package enum SandboxState: String, Sendable, CaseIterable {
    case none, allowed, past
}

/// A purchase behind a typed id that belongs to somebody else.
package struct ClaimedPurchase: Hashable, Sendable {
    package var found: FoundPurchase
    /// The ledger's row and owner, where it has one.
    package var purchase: Int64?
    package var ownerKey: Int64?
    /// The host's user whom the store's customer id names, if there is one.
    package var ownerID: String?

    package init(found: FoundPurchase, purchase: Int64? = nil, ownerKey: Int64? = nil, ownerID: String? = nil) {
        self.found = found
        self.purchase = purchase
        self.ownerKey = ownerKey
        self.ownerID = ownerID
    }
}
