import Logging
import Postgres
package import Reconciliation
package import Runs

/// How a worker answers people who ask what a reconcile would do; nothing is written by that, in no mode.
package struct DryRunWork: Sendable {
    let dryRuns: DryRuns
    let reader: StoreReader

    package init(dryRuns: DryRuns, reader: StoreReader) {
        self.dryRuns = dryRuns
        self.reader = reader
    }
}

extension Worker {
    /// Answers people who ask what a reconcile would do.
    func dryRunDuty() async {
        guard let dryRunWork else { return }
        await repeatedly("dry runs could not be answered; trying again") {
            // Planning asks for the lease; until there is one others may answer.
            guard let epoch = shared.epoch else { return 0 }
            let taken = try await dryRunWork.dryRuns.take(upTo: 8)
            await withDiscardingTaskGroup { group in
                for question in taken { group.addTask { await answer(question, dryRunWork, epoch: epoch) } }
            }
            return taken.count
        }
    }

    private func answer(_ question: DryRuns.Taken, _ work: DryRunWork, epoch: Int32) async {
        do {
            let reading = await work.reader.read(question.job)
            // Our own going is nobody's failure; a task of its own, because this one is cancelled.
            guard !Task.isCancelled else { return try await Task { try await work.dryRuns.release(question) }.value }
            let predicted: DryRunResult?
            do {
                predicted = try await apply.performDryRun(ReadJob(job: question.job, reading: reading), epoch: epoch)
            } catch {
                logger.warning("a dry run could not be planned", metadata: describe(error))
                predicted = DryRunResult(error: (error as? PostgresError)?.sqlState ?? "\(type(of: error))")
            }
            try await work.dryRuns.keep(predicted, for: question)
        } catch {
            // The hold on it ends by itself.
            logger.warning("a dry run could not be answered", metadata: describe(error))
        }
    }
}
