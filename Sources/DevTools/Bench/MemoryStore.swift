package import Entitlements
import Queue
package import Reconciliation

/// A store that answers from memory: every user has one active subscription.
///
/// - Parameter start: when its period begins; `nil`: with each reading.
/// - Returns: the reader.
package func memoryStore(from start: Instant? = nil) -> StoreReader {
    StoreReader { job in
        let begins = start ?? job.claimedAt
        let ends = begins + .seconds(20 * 86_400)
        var item = Observation(
            kind: .subscription,
            store: "app_store",
            environment: "production",
            identifiers: [
                PurchaseIdentifier(
                    value: "sub\(job.userKey)",
                    store: "revenuecat",
                    environment: "production",
                    kind: "revenuecat_id"
                ),
                PurchaseIdentifier(
                    value: "48000\(job.userKey)",
                    store: "app_store",
                    environment: "production",
                    kind: "store_id"
                ),
            ],
            entitlements: ["premium"],
            status: StoreStatus("active"),
            givesAccess: true
        )
        item.productID = "prod1"
        item.renewal = "will_renew"
        item.periodStartsAt = begins
        item.periodEndsAt = ends
        item.payloadHash = Array(repeating: 7, count: 32)
        return Reading(coverage: .partial, askedAt: job.claimedAt, observations: [item])
    }
}
