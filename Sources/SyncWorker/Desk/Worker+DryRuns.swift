import Logging
import Postgres
import Storage

extension Worker {
    /// Answers people who ask what a reconcile would do.
    func dryRunDuty() async {
        guard let desk else { return }
        await repeatedly("dry runs could not be answered; trying again") {
            // Planning asks for the lease; until there is one others may answer.
            guard let epoch = shared.epoch else { return 0 }
            let taken = try await desk.dryRuns.take(upTo: 8)
            await withDiscardingTaskGroup { group in
                for question in taken { group.addTask { await answer(question, desk.dryRuns, epoch: epoch) } }
            }
            return taken.count
        }
    }

    private func answer(_ question: DryRuns.Taken, _ dryRuns: DryRuns, epoch: Int32) async {
        do {
            // The worker's own reader: what it leaves unread for a reconcile is left unread here.
            let reading = await reader.read(question.job)
            // Our own going is nobody's failure; a task of its own, because this one is cancelled.
            guard !Task.isCancelled else { return try await Task { try await dryRuns.release(question.id) }.value }
            let foreseen = try await apply.foresee(ReadJob(job: question.job, reading: reading), epoch: epoch)
            try await dryRuns.keep(foreseen, for: question.id)
        } catch {
            // The hold on it ends by itself.
            logger.warning("a dry run could not be answered", metadata: describe(error))
        }
    }
}
