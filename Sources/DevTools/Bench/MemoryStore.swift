import Entitlements
import Queue
import Reconciliation

/// A store that answers from memory: every user has one active subscription, whose period begins at `start`, or with
/// each reading.
func memoryStore(from start: Instant? = nil) -> JobReader {
    @Sendable func identifier(_ value: String, _ store: String, _ kind: String) -> PurchaseIdentifier {
        PurchaseIdentifier(value: value, store: store, environment: "production", kind: kind)
    }
    return JobReader { job in
        let begins = start ?? job.claimedAt
        var item = Observation(
            kind: .subscription,
            store: "app_store",
            environment: "production",
            identifiers: [
                identifier("sub\(job.userKey)", "revenuecat", "revenuecat_id"),
                identifier("48000\(job.userKey)", "app_store", "store_id"),
            ],
            entitlements: ["premium"],
            status: StoreStatus("active"),
            givesAccess: true
        )
        item.productID = "prod1"
        item.renewal = "will_renew"
        item.periodStartsAt = begins
        item.periodEndsAt = begins + .seconds(20 * 86_400)
        item.payloadHash = Array(repeating: 7, count: 32)
        return Reading(coverage: .partial, askedAt: job.claimedAt, observations: [item])
    }
}
