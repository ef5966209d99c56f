import Entitlements
import Metrics
package import Queue
package import RateLimits
import Reconciliation

/// What is true of the queue, the stores and the records at this moment; the same whichever worker is asked.
package struct WorkerGauges: Sendable {
    private let queue: JobQueue
    private let invariants: InvariantMonitor
    private let limiters: StoreRateLimiters
    /// To read every figure costs a scan of the whole queue.
    private let turn = Throttle(every: .seconds(10))

    package init(queue: JobQueue, invariants: InvariantMonitor, limiters: StoreRateLimiters) {
        self.queue = queue
        self.invariants = invariants
        self.limiters = limiters
    }

    /// Reads every figure, at most every ten seconds; one that can't be read keeps its value.
    package func refresh() async {
        guard turn.isDue() else { return }
        if let depths = try? await queue.depths() {
            for lane in JobLane.allCases {
                for state in QueueDepth.State.allCases {
                    let depth = depths.first { $0.lane == lane && $0.state == state }
                    let labels = [("lane", lane.label), ("state", state.rawValue)]
                    Gauge(label: "entitlement_sync_queue_jobs", dimensions: labels).record(depth?.jobs ?? 0)
                    Gauge(label: "entitlement_sync_queue_oldest_seconds", dimensions: labels)
                        .record(depth?.oldestSeconds ?? 0)
                }
            }
        }
        if let found = try? await invariants.found() {
            for (name, broken) in found {
                Gauge(label: "entitlement_sync_law_broken", dimensions: [("law", name)]).record(broken)
            }
        }
        if let drift = try? await invariants.drift() {
            for (kind, users) in drift.users {
                Gauge(label: "entitlement_sync_drift_users", dimensions: [("kind", kind.rawValue)]).record(users)
            }
            Gauge(label: "entitlement_sync_drift_checked_users").record(drift.checked)
            Gauge(label: "entitlement_sync_evidence_oldest_seconds").record(drift.oldestEvidenceSeconds)
            if let agreement = drift.agreement {
                Gauge(label: "entitlement_sync_record_agreement_ratio").record(agreement)
            }
            if let (half, most) = drift.convergence {
                // A label `quantile` is a summary's alone.
                for (share, seconds) in [("0.5", half), ("0.95", most)] {
                    Gauge(label: "entitlement_sync_convergence_seconds", dimensions: [("share", share)])
                        .record(seconds)
                }
            }
        }
        for entry in limiters.entries {
            let labels = [("store", entry.credential)]
            Gauge(label: "entitlement_sync_store_breaker_open", dimensions: labels)
                .record(entry.limiter.isBreakerOpen ? 1 : 0)
            guard let level = try? await entry.budget.level() else { continue }
            if entry.budget.perMinute > 0 {
                Gauge(label: "entitlement_sync_store_budget_requests", dimensions: labels).record(level.tokens)
            }
            // A store's own wish is obeyed without a limit of ours as well.
            Gauge(label: "entitlement_sync_store_blocked_seconds", dimensions: labels).record(level.blockedSeconds)
        }
    }
}
