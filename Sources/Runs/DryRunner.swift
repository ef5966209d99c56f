import Entitlements
package import Logging
import Postgres
package import Queue
package import Reconciliation
import ServiceLifecycle

/// Answers operators and agents who ask what a reconcile would do; it writes nothing else, in no mode.
package struct DryRunner: Service {
    private let dryRuns: DryRuns
    private let reader: JobReader
    private let apply: Apply
    private let lease: WorkerLease
    private let logger: Logger

    /// `reader` reads the stores on support's share of their limits; without the process's `lease` others answer.
    package init(_ dryRuns: DryRuns, reader: JobReader, apply: Apply, lease: WorkerLease, logger: Logger) {
        self.dryRuns = dryRuns
        self.reader = reader
        self.apply = apply
        self.lease = lease
        self.logger = logger
    }

    package func run() async {
        await PeriodicService("dry runner", every: .seconds(1), logger: logger) {
            guard let epoch = lease.epoch else { return .idle }
            return await .handlingAll(try await dryRuns.take(upTo: 8)) { await answer($0, epoch: epoch) }
        }.run()
    }

    private func answer(_ question: DryRuns.Taken, epoch: Int32) async {
        do {
            let reading = await reader.read(question.job)
            // A shutdown is no failure; a task of its own, because this one is cancelled.
            guard !Task.isCancelled else { return try await Task { try await dryRuns.release(question) }.value }
            let predicted: DryRunResult?
            do {
                predicted = try await apply.performDryRun(ReadJob(job: question.job, reading: reading), epoch: epoch)
            } catch {
                logger.warning("a dry run could not be planned", metadata: errorMetadata(error))
                predicted = DryRunResult(error: (error as? PostgresError)?.sqlState ?? "\(type(of: error))")
            }
            try await dryRuns.keep(predicted, for: question)
        } catch {
            // The hold on it ends by itself.
            logger.warning("a dry run could not be answered", metadata: errorMetadata(error))
        }
    }
}
