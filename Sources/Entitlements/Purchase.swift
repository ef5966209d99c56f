package import FoundationEssentials

/// A ledger row: one lineage through renewals and upgrades, with one owner.
package struct Purchase: Hashable, Sendable {
    package var id: Int64
    package var ownerKey: Int64?
    package var kind: Observation.Kind
    package var store: String
    package var environment = "production"
    package var status: StoreStatus
    package var givesAccess: Bool?
    package var productID: String?
    /// The store's word on the renewal.
    package var renewal: String?
    package var entitlements: [String]
    /// The entitlements that last gave access, kept where the store now lists none of them for a purchase that goes on.
    package var carried: [String]
    package var periodEndsAt: Instant?
    /// The store said before the period's end that it would not renew.
    package var endAnnounced = false
    package var isFamilyShared = false
    /// When the request of the newest observation began.
    package var observedAt: Instant
    package var firstSeenAt: Instant
    /// When the request began whose answer named the owner first.
    package var ownerSince: Instant
    /// The owner that it came from, while no reading has shown yet that it left them, or that it left its owner again.
    package var formerOwnerKey: Int64?
    /// When people moved it last, by an executed transfer.
    package var transferredAt: Instant?
    /// Who said last what stands here.
    package var source = Store.revenueCat
    /// The user whose id the app gave the store for the buyer, where that contradicted another user's claim.
    package var accountKey: Int64?
    /// The project of RevenueCat's that listed it last.
    package var revenueCatProject: String?
    /// The keyed hash of the store account that it was bought with.
    package var storeAccount: UUID?

    package init(
        id: Int64,
        ownerKey: Int64?,
        kind: Observation.Kind = .subscription,
        store: String = "app_store",
        status: StoreStatus,
        givesAccess: Bool?,
        entitlements: [String],
        observedAt: Instant,
        firstSeenAt: Instant,
        ownerSince: Instant
    ) {
        self.id = id
        self.ownerKey = ownerKey
        self.kind = kind
        self.store = store
        self.status = status
        self.givesAccess = givesAccess
        self.entitlements = entitlements
        carried = entitlements
        self.observedAt = observedAt
        self.firstSeenAt = firstSeenAt
        self.ownerSince = ownerSince
    }

    /// The entitlements to remember after a reading: those from before, where the store lists none of them any more and what
    /// it lists means no access.
    ///
    /// `LedgerWrites.updatePurchases` has the same rule in SQL. Without a catalogue everything may mean access.
    static func carried(_ listed: [String], before: [String], catalog: ProductCatalog?) -> [String] {
        func meansAccess(_ keys: [String]) -> Bool { catalog.map { $0.mapping(of: keys) == .access } ?? !keys.isEmpty }
        let isDetached = !Set(before).isSubset(of: listed) && !meansAccess(listed) && meansAccess(before)
        return listed.isEmpty || isDetached ? before : listed
    }
}
