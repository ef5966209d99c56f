import Entitlements
import Storage

extension Observation {
    /// What our records hold, said again: a store that says no more of a purchase has not said that it is over.
    ///
    /// - Parameters:
    ///   - purchase: the user's.
    ///   - store: who would have to speak.
    init(kept purchase: KnownPurchase, by store: Store) {
        self.init(
            kind: purchase.kind,
            store: purchase.store,
            environment: purchase.environment,
            identifiers: purchase.identifiers,
            productID: purchase.productID,
            entitlements: purchase.entitlements,
            status: purchase.status,
            givesAccess: purchase.givesAccess,
            renewal: purchase.renewal,
            periodEndsAt: purchase.periodEndsAt,
            ownership: purchase.ownership,
            owner: .nobody,
            source: store,
            lookupID: purchase.lookupID,
            statedAt: purchase.statedAt
        )
    }
}
