import Entitlements
import FoundationEssentials
package import Logging
package import Postgres
import Queue
import ServiceLifecycle
import Synchronization
package import UserRequests

/// Notifies callers of ended jobs, after the commit: those that wait in this process, and clients that LISTEN to
/// `entitlement_sync_outcome`.
///
/// Apart from the writing of batches: the next batch does not wait until the last one's ends are notified.
package final class OutcomeNotifier: Service {
    private let pool: PostgresPool
    private let audience: (any RestoreAudience)?
    private let logger: Logger
    private let ended = Mutex<[JobEnd]>([])
    private let arrived = Signal()
    private let urgent = Signal()

    /// `audience`: callers that wait for restores in this process.
    package init(pool: PostgresPool, audience: (any RestoreAudience)?, logger: Logger) {
        self.pool = pool
        self.audience = audience
        self.logger = logger
    }

    /// Takes the ends of a committed batch: callers in this process have them at once, all others a notification soon.
    func add(_ report: ApplyReport) {
        guard !report.ended.isEmpty else { return }
        let delivered = report.answers.isEmpty ? [] : audience?.take(report.answers) ?? []
        ended.withLock { $0 += report.ended }
        // Hardly any other caller waits for a restore whose caller in this process has its answer.
        if !report.ended.allSatisfy({ delivered.contains($0.id) }) { urgent.raise() }
        arrived.raise()
    }

    package func run() async {
        await cancelWhenGracefulShutdown { [self] in
            while !Task.isCancelled {
                await notify()
                await arrived.wait()
                // A notification costs a transaction: ends that callers in this process know already wait a moment for
                // others. Any other end cuts the wait short.
                await urgent.wait(upTo: .milliseconds(25))
            }
        }
    }

    /// Notifies of the ends since the last time; polling finds what a lost notification misses.
    package func notify() async {
        let jobs = ended.withLock { ended in
            defer { ended = [] }
            return ended
        }
        guard !jobs.isEmpty else { return }
        let payloads = jobs.map { job in
            let outcome = job.outcome.map { "\"\($0.rawValue)\"" } ?? "null"
            return "{\"job\":\"\(job.id.uuidString.lowercased())\",\"outcome\":\(outcome)}"
        }
        do {
            try await pool.query(
                "SELECT pg_notify('entitlement_sync_outcome', o.payload) FROM unnest(\(payloads)) AS o(payload)"
            )
        } catch {
            // What a cancellation interrupted is notified at the end.
            guard !Task.isCancelled else { return ended.withLock { $0 += jobs } }
            logger.info("outcomes could not be notified", metadata: errorMetadata(error))
        }
    }
}
