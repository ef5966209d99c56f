import Entitlements
import Metrics
import Queue

/// What a worker counts while it dequeues, applies and ends jobs.
///
/// Handlers are made once: to find one by its labels costs more than to count. Labels come from closed sets.
struct PipelineMetrics: Sendable {
    private let claimed: [JobLane: Counter]
    private let ended: [Ended: Counter]
    private let unknownStatuses: [Store: Counter]
    let retried = Counter(label: "entitlement_sync_jobs_retried_total")
    let postponed = Counter(label: "entitlement_sync_jobs_postponed_total")
    let lost = Counter(label: "entitlement_sync_jobs_lost_total")
    let batchSize = Recorder(label: "entitlement_sync_apply_batch_jobs")
    let applyTime = Timer(label: "entitlement_sync_apply_duration_seconds")
    let restoreTime = Timer(label: "entitlement_sync_restore_duration_seconds")
    let assetsChanged = Counter(label: "entitlement_sync_assets_changed_total")

    private struct Ended: Hashable {
        var kind: JobKind
        var outcome: String
    }

    init() {
        claimed = Dictionary(
            uniqueKeysWithValues: JobLane.allCases.map {
                ($0, Counter(label: "entitlement_sync_jobs_claimed_total", dimensions: [("lane", $0.label)]))
            }
        )
        var ended: [Ended: Counter] = [:]
        for kind in [JobKind.restore, .reconcile] {
            for outcome in Outcome.allCases.map(\.rawValue) + ["canceled"] {
                ended[Ended(kind: kind, outcome: outcome)] = Counter(
                    label: "entitlement_sync_jobs_ended_total",
                    dimensions: [("kind", kind == .restore ? "restore" : "reconcile"), ("outcome", outcome)]
                )
            }
        }
        self.ended = ended
        unknownStatuses = Dictionary(
            uniqueKeysWithValues: Store.allCases.map {
                ($0, Counter(label: "entitlement_sync_unknown_statuses_total", dimensions: [("store", $0.rawValue)]))
            }
        )
    }

    /// Counts store statuses that the rules do not know.
    func count(_ reading: Reading) {
        for item in reading.observations where item.status.known == .unknown {
            unknownStatuses[item.source]?.increment()
        }
    }

    /// Counts claimed jobs.
    func claim(_ jobs: [ClaimedJob]) {
        var lanes: [JobLane: Int] = [:]
        for job in jobs { lanes[job.lane, default: 0] += 1 }
        for (lane, count) in lanes { claimed[lane]?.increment(by: count) }
    }

    /// Counts an ended job; `nil` is the outcome of a canceled one.
    func end(_ kind: JobKind, _ outcome: Outcome?) {
        ended[Ended(kind: kind, outcome: outcome?.rawValue ?? "canceled")]?.increment()
    }
}

extension JobLane {
    /// The name in metrics.
    package var label: String { "\(self)" }
}
