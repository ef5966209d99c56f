package import Entitlements
package import FoundationEssentials
package import Postgres
import Queue
package import Reconciliation

/// Questions of operators and agents what a reconcile of a user would do now.
///
/// No job of the queue answers them. A request for a real job would join it meanwhile, and its decision would stand for
/// it in `decision_log`. So each has a row of its own, which a worker takes as it takes tickets whose evidence is due.
package struct DryRuns: Sendable {
    /// After so many tries it is said why there is no answer.
    private static let mostTries: Int32 = 4

    private let pool: PostgresPool

    package init(pool: PostgresPool) { self.pool = pool }

    // MARK: Asking

    /// Requests dry runs of users, or of none if one is not known; a user with an open request gets no second one.
    ///
    /// - Parameter users: the host's ids.
    /// - Returns: the questions, in the users' order.
    /// - Throws: `PostgresError`, SQLSTATE `ES001` for an unknown user.
    package func ask(_ users: [String]) async throws -> [UUID] {
        try await pool.retrying { connection in
            var ids: [ExactText: UUID] = [:]
            // In one order, so that two who ask for the same users do not wait for each other.
            for user in users.sortedExactly {
                let rows = try await connection.query("SELECT entitlement_sync.ask_dry_run(\(user))")
                ids[ExactText(user)] = try rows.one.decode(UUID.self)
            }
            return users.compactMap { ids[ExactText($0)] }
        }
    }

    /// What became of questions; those without an answer yet are left out.
    package func answers(_ ids: [UUID]) async throws -> [UUID: DryRunResult] {
        let rows = try await pool.query(
            """
            SELECT r.id, r.outcome, r.rule, r.explanation, r.type_before, r.type_after, r.assets, r.error, r.is_paused
              FROM entitlement_sync.dry_run AS r WHERE r.id = ANY (\(ids)) AND r.ended_at IS NOT NULL
            """
        )
        var answers: [UUID: DryRunResult] = [:]
        for row in rows {
            let assets: Int64 = try row["assets"]
            var answer = try DryRunResult(
                outcome: row["outcome"],
                explanation: row["explanation"],
                error: row["error"]
            )
            answer.rule = try row["rule"]
            answer.typeBefore = try row["type_before"]
            answer.typeAfter = try row["type_after"]
            answer.assets = Int(assets)
            answer.isPaused = try row["is_paused"]
            answers[try row["id"]] = answer
        }
        return answers
    }

    // MARK: Answering

    /// A question that was taken, as the job that it is about would be claimed.
    package struct Taken: Sendable {
        package var id: UUID
        package var job: ClaimedJob
        /// How often it was taken up; a later turn shuts this one out.
        package var tries: Int32
    }

    /// Takes requests for two minutes: other workers take those of a worker that dies meanwhile.
    package func take(upTo limit: Int) async throws -> [Taken] {
        let tick = ContinuousClock.now
        return try await pool.query(
            """
            WITH due AS MATERIALIZED (
                SELECT r.id FROM entitlement_sync.dry_run AS r
                 WHERE r.due <= clock_timestamp() ORDER BY r.due LIMIT \(Int64(limit)) FOR NO KEY UPDATE SKIP LOCKED
            )
            UPDATE entitlement_sync.dry_run AS r
               SET due = clock_timestamp() + interval '2 minutes', tries = least(r.tries, 1000) + 1
              FROM due AS d WHERE r.id = d.id
            RETURNING r.id, r.user_key, r.error, clock_timestamp(),
                      (SELECT u.user_id FROM entitlement_sync.user_sync AS u WHERE u.user_key = r.user_key),
                      EXISTS (SELECT 1 FROM entitlement_sync.user_sync AS u
                                JOIN entitlement_sync.sandbox_access AS s ON s.user_id = u.user_id
                               WHERE u.user_key = r.user_key AND s.until > now()), r.tries
            """
        ).map { row in
            try row.decode {
                (id: UUID, key: Int64, error: String?, at: Instant, user: String?, sandbox: Bool, tries: Int32) in
                let job = ClaimedJob(
                    id: id,
                    kind: .reconcile,
                    lane: .sweep,
                    due: at,
                    userKey: key,
                    userID: user,
                    lastError: error,
                    sandboxAllowed: sandbox,
                    claimedAt: at,
                    claimedTick: tick
                )
                return Taken(id: id, job: job, tries: tries)
            }
        }
    }

    /// Keeps an answer; one without an outcome is tried again in a moment, some times.
    ///
    /// `nil`: another transaction had locked the user's rows.
    package func keep(_ answer: DryRunResult?, for question: Taken) async throws {
        // An account that was erased since is not read, and will not come back.
        let answer =
            question.job.userID == nil
            ? DryRunResult(outcome: Outcome.notEligible.rawValue, explanation: "The account is gone.")
            : answer ?? DryRunResult(error: ReadFailure.Code.locked.rawValue)
        let isTriedAgain = answer.outcome == nil && question.tries < Self.mostTries
        try await pool.query(
            """
            UPDATE entitlement_sync.dry_run AS r
               SET due = CASE WHEN \(isTriedAgain) THEN clock_timestamp() + r.tries * interval '1 second' END,
                   ended_at = CASE WHEN NOT \(isTriedAgain) THEN clock_timestamp() END,
                   outcome = coalesce(\(answer.outcome), \(Outcome.storeUnavailable.rawValue)), rule = \(answer.rule),
                   explanation = \(answer.explanation), type_before = \(answer.typeBefore),
                   type_after = \(answer.typeAfter), assets = \(Int64(answer.assets)), error = \(answer.error),
                   is_paused = \(answer.isPaused)
             WHERE r.id = \(question.id) AND r.ended_at IS NULL AND r.tries = \(question.tries)
            """
        )
    }

    /// Gives a question back at once.
    package func release(_ question: Taken) async throws {
        try await pool.query(
            """
            UPDATE entitlement_sync.dry_run AS r SET due = clock_timestamp()
             WHERE r.id = \(question.id) AND r.ended_at IS NULL AND r.tries = \(question.tries)
            """
        )
    }
}
