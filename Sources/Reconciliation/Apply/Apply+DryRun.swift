package import Entitlements
import Ledger
import Postgres
import Queue

/// What a reconcile would come to.
package struct DryRunResult: Sendable, Hashable {
    /// `nil`: there is none, see `error`.
    package var outcome: String?
    package var rule: String?
    package var explanation: String?
    package var typeBefore: String?
    package var typeAfter: String?
    /// How many assets would be frozen or unfrozen.
    package var assets = 0
    /// Why the stores gave no answer: the code of a `ReadFailure`.
    package var error: String?
    /// Everything is paused: the reconcile itself would wait until that is over.
    package var isPaused = false
    /// The end was announced before it came.
    package var isAnnounced = false

    package init(outcome: String? = nil, explanation: String? = nil, error: String? = nil) {
        self.outcome = outcome
        self.explanation = explanation
        self.error = error
    }

    init(_ effect: DecidedJob, isPaused: Bool) {
        let before = effect.user?.type
        self.init(outcome: effect.verdict.outcome.rawValue, explanation: effect.verdict.explanation)
        rule = effect.verdict.rule.rawValue
        typeBefore = before?.rawValue
        typeAfter = (effect.newType ?? before)?.rawValue
        assets = effect.assetsChanged
        self.isPaused = isPaused
        isAnnounced = effect.verdict.action == .demote && effect.verdict.wasAnnounced
    }
}

extension Apply {
    /// What jobs would do now, by a transaction that is rolled back.
    package struct BatchDryRun: Sendable {
        /// What a user's job comes to, and the version of the user's record that it was decided on.
        package struct Answer: Sendable {
            package var predicted: DryRunResult
            package var epoch: Int64

            package init(_ predicted: DryRunResult, epoch: Int64 = 0) {
                self.predicted = predicted
                self.epoch = epoch
            }
        }

        /// By user key.
        package var answers: [Int64: Answer] = [:]
        /// Users that have to be read again, after how long.
        package var retries: [Int64: (after: Duration, attempt: Int, error: String)] = [:]
        /// Users whose rows another transaction has locked, or who have to wait for others of the batch.
        package var postponed: Set<Int64> = []
        /// Everything is paused.
        package var isPaused = false

        package init(answers: [Int64: Answer] = [:], postponed: Set<Int64> = []) {
            self.answers = answers
            self.postponed = postponed
        }
    }

    /// Finds out what a job would come to now, with the brake as it stands.
    ///
    /// The job need not stand in the queue. `nil`: another transaction has locked the user's rows, or wrote them meanwhile.
    package func performDryRun(_ item: ReadJob, epoch: Int32) async throws -> DryRunResult? {
        let dryRun = try await performDryRun([item], epoch: epoch, limits: true)
        let key = item.job.userKey
        if let answer = dryRun.answers[key] { return answer.predicted }
        guard let retry = dryRun.retries[key] else { return nil }
        var result = DryRunResult(error: retry.error)
        result.isPaused = dryRun.isPaused
        return result
    }

    /// Finds out what jobs would come to now.
    ///
    /// They are planned by what plans every batch, behind the same locks, in a transaction that is always undone: whatever
    /// planning writes on its way is not there afterwards. The jobs are of different users and need not stand in the queue; each
    /// gets an answer, a retry, or is postponed. `limits`: whether runs and the brake hold back what they would.
    package func performDryRun(_ batch: [ReadJob], epoch: Int32, limits: Bool = false) async throws -> BatchDryRun {
        var free = batch
        var held: Set<Int64> = []
        var respelled: Set<Int64> = []
        while !free.isEmpty {
            do {
                var dryRun = try await attemptDryRun(free, epoch: epoch, limits: limits)
                dryRun.postponed.formUnion(held)
                return dryRun
            } catch let elsewhere as LockedByOthers {
                let waiting = free.filter { elsewhere.concerns($0) }.map(\.job.userKey)
                // Where it concerns none of them the next try would end the same way.
                guard !waiting.isEmpty else { return BatchDryRun(postponed: Set(batch.map(\.job.userKey))) }
                held.formUnion(waiting)
                free.removeAll { elsewhere.concerns($0) }
            } catch let other as SpelledOtherwise {
                // Nothing is written here: the next job of theirs takes the host's spelling over.
                for place in free.indices {
                    let key = free[place].job.userKey
                    guard let id = other.ids[key] else { continue }
                    free[place].job.userID = respelled.insert(key).inserted ? id : nil
                }
            } catch let error as PostgresError where error.isTransactionConflict {
                return BatchDryRun(postponed: Set(batch.map(\.job.userKey)))
            }
        }
        return BatchDryRun(postponed: held)
    }

    /// Ends the transaction, with what was found out in it.
    private struct Undone: Error {
        var dryRun: BatchDryRun
    }

    private func attemptDryRun(_ batch: [ReadJob], epoch: Int32, limits: Bool) async throws -> BatchDryRun {
        do {
            return try await pool.withTransaction { connection -> BatchDryRun in
                throw Undone(dryRun: try await computeDryRun(batch, epoch: epoch, limits: limits, on: connection))
            }
        } catch let undone as Undone {
            return undone.dryRun
        }
    }

    private func computeDryRun(
        _ batch: [ReadJob],
        epoch: Int32,
        limits: Bool,
        on connection: PostgresConnection
    ) async throws -> BatchDryRun {
        var scene = try await scene(of: batch, epoch: epoch, on: connection)
        scene.isDryRun = true
        // As if they stood in the queue, and were ours.
        for item in batch { scene.locked[item.job.userKey] = (item.job.id, false) }
        var report = ApplyReport()
        var plan = try await plan(batch, scene, epoch: epoch, limits: limits, report: &report, on: connection)
        try await predictAssets(&plan.effects, on: connection)
        let isPaused = scene.switches.isPaused
        var dryRun = BatchDryRun(postponed: Set(report.postponed.map(\.job.userKey)))
        dryRun.isPaused = isPaused
        for effect in plan.effects {
            dryRun.answers[effect.job.userKey] = .init(
                DryRunResult(effect, isPaused: isPaused),
                epoch: effect.facts?.epoch ?? 0
            )
        }
        for retry in plan.retries { dryRun.retries[retry.userKey] = (retry.after, retry.attempt, retry.error) }
        for end in plan.ends {
            var predicted = DryRunResult(outcome: Outcome.storeUnavailable.rawValue, error: end.lastError)
            predicted.isPaused = isPaused
            dryRun.answers[end.userKey] = .init(predicted)
        }
        return dryRun
    }
}
