import Entitlements
import FoundationEssentials
import Jobs
import Postgres

extension Apply {
    /// What many jobs would come to now.
    package struct Foresight: Sendable {
        /// By user key, with the version of the user's record that it was decided on.
        package var answers: [Int64: (foreseen: Foreseen, epoch: Int64)] = [:]
        /// Who has to be read again, after how long.
        package var retries: [Int64: (after: Duration, attempt: Int, error: String)] = [:]
        /// Whose rows somebody else holds, or who has to wait for others of the batch.
        package var postponed: Set<Int64> = []

        package init(
            answers: [Int64: (foreseen: Foreseen, epoch: Int64)] = [:],
            retries: [Int64: (after: Duration, attempt: Int, error: String)] = [:],
            postponed: Set<Int64> = []
        ) {
            self.answers = answers
            self.retries = retries
            self.postponed = postponed
        }
    }

    /// Finds out what many jobs would come to now, as if no run and no brake held anything back.
    ///
    /// The batch is planned by what plans every batch, behind the same locks, in a transaction that is always undone.
    ///
    /// - Parameters:
    ///   - batch: jobs of different users that need not stand in the queue, with what the stores said for them.
    ///   - epoch: this process's lease.
    /// - Returns: something for each of them.
    /// - Throws: `PostgresError`.
    package func foresee(_ batch: [ReadJob], epoch: Int32) async throws -> Foresight {
        var free = batch
        var held: Set<Int64> = []
        while !free.isEmpty {
            do {
                var foresight = try await attemptForesight(free, epoch: epoch)
                foresight.postponed.formUnion(held)
                return foresight
            } catch let elsewhere as HeldElsewhere {
                held.formUnion(free.filter { elsewhere.concerns($0) }.map(\.job.userKey))
                free.removeAll { elsewhere.concerns($0) }
            } catch let error as PostgresError where error.isTransactionConflict {
                return Foresight(postponed: Set(batch.map(\.job.userKey)))
            }
        }
        return Foresight(postponed: held)
    }

    private struct Undone: Error {
        var foresight: Foresight
    }

    private func attemptForesight(_ batch: [ReadJob], epoch: Int32) async throws -> Foresight {
        do {
            return try await pool.withTransaction { connection -> Foresight in
                throw Undone(foresight: try await foresight(batch, epoch: epoch, on: connection))
            }
        } catch let undone as Undone {
            return undone.foresight
        }
    }

    private func foresight(
        _ batch: [ReadJob],
        epoch: Int32,
        on connection: PostgresConnection
    ) async throws -> Foresight {
        var scene = try await scene(of: batch, epoch: epoch, on: connection)
        for item in batch { scene.locked[item.job.userKey] = JobEnds.Held(id: item.job.id, cancel: false) }
        var report = ApplyReport()
        var plan = try await plan(batch, scene, epoch: epoch, limits: false, report: &report, on: connection)
        try await foreseeAssets(&plan.effects, on: connection)
        var foresight = Foresight(postponed: Set(report.postponed.map(\.job.userKey)))
        for effect in plan.effects {
            let answer = Foreseen(effect, isPaused: scene.gate.isPaused)
            foresight.answers[effect.job.userKey] = (answer, effect.facts?.epoch ?? 0)
        }
        for retry in plan.retries { foresight.retries[retry.userKey] = (retry.after, retry.attempt, retry.error) }
        for end in plan.ends {
            let answer = Foreseen(outcome: Outcome.storeUnavailable.rawValue, error: end.lastError)
            foresight.answers[end.userKey] = (answer, scene.facts[end.userKey]?.epoch ?? 0)
        }
        return foresight
    }
}
