import Entitlements
import Metrics

/// The worker's metrics.
enum WorkerMetrics {
    static let claimed = Counter(label: "entitlement_sync_jobs_claimed_total")
    static let retried = Counter(label: "entitlement_sync_jobs_retried_total")
    static let leasesLost = Counter(label: "entitlement_sync_leases_lost_total")
    static let batchSize = Recorder(label: "entitlement_sync_apply_batch_jobs")
    static let commitSeconds = Recorder(label: "entitlement_sync_apply_seconds")

    /// Counts an ended job; outcomes are a closed set.
    static func ended(_ kind: JobKind, _ outcome: String) {
        Counter(
            label: "entitlement_sync_jobs_ended_total",
            dimensions: [("kind", kind == .restore ? "restore" : "reconcile"), ("outcome", outcome)]
        ).increment()
    }
}
