import Entitlements
import Jobs
import Postgres

/// What a reconcile would come to.
package struct Foreseen: Sendable, Hashable {
    /// `nil`: there is none, see `error`.
    package var outcome: String?
    package var rule: String?
    package var explanation: String?
    package var typeBefore: String?
    package var typeAfter: String?
    /// How many assets would be frozen or unfrozen.
    package var assets: Int
    /// Why the stores gave no answer: the code of a `ReadFailure`.
    package var error: String?
    /// Everything is paused: the reconcile itself would wait until that is over.
    package var isPaused: Bool
    /// The end was announced before it came.
    package var isAnnounced: Bool

    package init(
        outcome: String? = nil,
        rule: String? = nil,
        explanation: String? = nil,
        typeBefore: String? = nil,
        typeAfter: String? = nil,
        assets: Int = 0,
        error: String? = nil,
        isPaused: Bool = false,
        isAnnounced: Bool = false
    ) {
        self.isAnnounced = isAnnounced
        self.outcome = outcome
        self.rule = rule
        self.explanation = explanation
        self.typeBefore = typeBefore
        self.typeAfter = typeAfter
        self.assets = assets
        self.error = error
        self.isPaused = isPaused
    }
}

extension Foreseen {
    init(_ effect: Effect, isPaused: Bool) {
        let before = effect.user?.type
        self.init(
            outcome: effect.verdict.outcome.rawValue,
            rule: effect.verdict.rule.rawValue,
            explanation: effect.verdict.explanation,
            typeBefore: before?.rawValue,
            typeAfter: (effect.newType ?? before)?.rawValue,
            assets: effect.assetsChanged,
            isPaused: isPaused,
            isAnnounced: effect.verdict.action == .demote && effect.verdict.wasAnnounced
        )
    }
}

extension Apply {
    /// Finds out what a job would come to now.
    ///
    /// It is planned by what plans every job, behind the same locks and with the brake as it stands, in a transaction that is
    /// always undone: whatever planning writes on its way is not there afterwards.
    ///
    /// - Parameters:
    ///   - item: a job that need not stand in the queue, with what the stores said for it.
    ///   - epoch: this process's lease.
    /// - Returns: `nil`: somebody else holds the user's rows, or wrote them meanwhile.
    /// - Throws: `PostgresError`.
    package func foresee(_ item: ReadJob, epoch: Int32) async throws -> Foreseen? {
        do {
            return try await pool.withTransaction { connection -> Foreseen? in
                throw Undone(foreseen: try await foresee(item, epoch: epoch, on: connection))
            }
        } catch let undone as Undone {
            return undone.foreseen
        } catch is HeldElsewhere {
            return nil
        } catch let error as PostgresError where error.isTransactionConflict {
            return nil
        }
    }

    /// Ends the transaction, with what was found out in it.
    private struct Undone: Error {
        var foreseen: Foreseen?
    }

    private func foresee(_ item: ReadJob, epoch: Int32, on connection: PostgresConnection) async throws -> Foreseen? {
        var scene = try await scene(of: [item], epoch: epoch, on: connection)
        // As if it stood in the queue, and were ours.
        scene.locked = [item.job.userKey: JobEnds.Held(id: item.job.id, cancel: false)]
        var report = ApplyReport()
        var plan = try await plan([item], scene, epoch: epoch, report: &report, on: connection)
        try await foreseeAssets(&plan.effects, on: connection)
        let isPaused = scene.gate.isPaused
        if let effect = plan.effects.first { return Foreseen(effect, isPaused: isPaused) }
        let error = plan.retries.first?.error ?? plan.ends.first?.lastError
        return error.map { Foreseen(error: $0, isPaused: isPaused) }
    }
}
