package import Logging
import Metrics
import ServiceLifecycle

/// Makes the jobs of dead workers available again.
package struct JobRescuer: Service {
    private let leases: Leases
    private let dequeue: DequeueSignal
    private let logger: Logger
    private let rescued = Counter(label: "entitlement_sync_jobs_rescued_total")

    package init(_ leases: Leases, dequeue: DequeueSignal, logger: Logger) {
        self.leases = leases
        self.dequeue = dequeue
        self.logger = logger
    }

    package func run() async {
        let interval = min(leases.duration / 4, .seconds(2))
        await PeriodicService("job rescuer", .untilEnd, every: interval, logger: logger) { try await step() }.run()
    }

    package func step() async throws -> PeriodicService.Next {
        let jobs = try await leases.rescue()
        if jobs > 0 {
            rescued.increment(by: jobs)
            logger.warning("jobs of a dead worker were freed", metadata: ["jobs": "\(jobs)"])
            dequeue.raise()
        }
        return .idle
    }
}
