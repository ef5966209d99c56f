package import Entitlements
package import FoundationEssentials
package import Postgres

/// The statements that lock, end, delay and enqueue jobs inside the transaction of their effects.
package enum JobEnds {
    /// Locks the rows of jobs that are still this process's; leaves out rows that another transaction has locked.
    ///
    /// Answers by user key with the job that runs there, and whether its cancellation was asked for.
    package static func lock(_ userKeys: [Int64], epoch: Int32) -> PostgresRequest<[Int64: Running]> {
        PostgresRequest(rows(userKeys, epoch, "FOR UPDATE SKIP LOCKED"), read: running)
    }

    /// The rows that are still this process's although another transaction has locked them.
    package static func busy(
        _ userKeys: [Int64],
        epoch: Int32,
        on connection: PostgresConnection
    ) async throws(PostgresError) -> [Int64: Running] {
        guard !userKeys.isEmpty else { return [:] }
        return try running(await connection.query(rows(userKeys, epoch)))
    }

    private static func rows(_ userKeys: [Int64], _ epoch: Int32, _ locking: String = "") -> PostgresQuery {
        """
        SELECT q.user_key, q.cancel, CASE q.active WHEN 0 THEN q.restore_id ELSE q.reconcile_id END
          FROM entitlement_sync.queue AS q
         WHERE q.user_key = ANY (\(userKeys)) AND q.owner = \(epoch)
           \(rawSQL: locking)
        """
    }

    /// The job that runs in a row that this process owns.
    package typealias Running = (id: UUID?, cancel: Bool)

    private static func running(_ rows: PostgresRows) throws(PostgresError) -> [Int64: Running] {
        var found: [Int64: Running] = [:]
        found.reserveCapacity(rows.count)
        for row in rows {
            let (userKey, cancel, id) = try row.decode(Int64.self, Bool.self, UUID?.self)
            found[userKey] = (id, cancel)
        }
        return found
    }

    /// Ends locked jobs, of which history gets a row each; what their users have queued beside them has its turn.
    ///
    /// `passedOn` gets the number of users who have another job queued.
    package static func finish(
        _ ends: [JobEnd],
        passedOn: @escaping (Int) -> Void = { _ in }
    ) -> [PostgresRequest<Void>] {
        guard !ends.isEmpty else { return [] }
        return [close(ends), passOn(ends.map(\.userKey)).then(passedOn)]
    }

    /// Writes history; the queue's row goes where nothing is queued beside the job.
    private static func close(_ ends: [JobEnd]) -> PostgresRequest<Void> {
        let keys = ends.map(\.userKey)
        return PostgresRequest(
            """
            WITH gone AS (
                DELETE FROM entitlement_sync.queue AS q
                 WHERE q.user_key = ANY (\(keys))
                   AND CASE q.active WHEN 0 THEN q.restore_next IS NULL AND q.reconcile_id IS NULL
                                     ELSE q.reconcile_next IS NULL AND q.restore_id IS NULL END
            )
            INSERT INTO entitlement_sync.job_history
                   (id, user_key, ticket_id, finished_at, kind, attempt, state, outcome, message_key, last_error,
                    decision_id, confirms)
            SELECT e.id, e.user_key, e.ticket_id, clock_timestamp(), e.kind, e.attempt, e.state, e.outcome,
                   e.message_key, e.last_error, e.decision_id, e.confirms
              FROM unnest(\(ends.map(\.id)), \(keys), \(ends.map(\.ticketID)), \(ends.map(\.kind.rawValue)),
                          \(ends.map { Int16(clamping: $0.attempt) }), \(ends.map(\.state.rawValue)),
                          \(ends.map { $0.outcome?.rawValue }), \(ends.map { $0.messageKey?.rawValue }),
                          \(ends.map(\.lastError)), \(ends.map { $0.confirmation?.id }),
                          \(ends.map { $0.confirmation?.decision }))
                   AS e(id, user_key, ticket_id, kind, attempt, state, outcome, message_key, last_error, decision_id, confirms)
            """
        )
    }

    /// Forgets the proofs of jobs that will not run again: receipts and tokens are kept no longer than they are needed.
    package static func forgetProofs(of ids: [UUID]) -> [PostgresRequest<Void>] {
        guard let first = ids.min(), let last = ids.max() else { return [] }
        // The bounds leave out all partitions but one or two; an array alone would have PostgreSQL scan every day's.
        return [
            PostgresRequest(
                """
                UPDATE entitlement_sync.job_request AS r SET proofs = NULL
                 WHERE r.id = ANY (\(ids)) AND r.id >= \(first) AND r.id <= \(last) AND r.proofs <> '[]'
                """
            )
        ]
    }

    /// When a returned row of the queue is due: at once if its restore is due.
    ///
    /// Not when that restore or a sweep beside it first became due: a worker dequeues from its watermark on, and would find the row only
    /// when it scans the whole queue.
    static func due(of row: String) -> String {
        """
        CASE WHEN \(row).restore_due <= clock_timestamp() THEN clock_timestamp()
             ELSE least(\(row).restore_due, \(row).reconcile_due) END
        """
    }

    /// Where a row of the queue belongs that is handed back undone: among the restores where one was asked for meanwhile.
    static func place(of row: String) -> String {
        """
        lane = CASE WHEN \(joinsRestores(row)) THEN 0 ELSE \(row).lane END,
        due = CASE WHEN \(joinsRestores(row)) THEN \(due(of: row)) ELSE \(row).due END
        """
    }

    /// Whether a restore was requested while the row's reconcile was running.
    static func joinsRestores(_ row: String) -> String { "(\(row).lane IN (1, 2) AND \(row).restore_id IS NOT NULL)" }

    /// Passes the rows of ended jobs to what their users have queued beside them; answers with their number.
    ///
    /// Always sent: a host's own trigger may have queued something after the row was locked.
    private static func passOn(_ keys: [Int64]) -> PostgresRequest<Int> {
        // `n` holds the slots as they stand once the active job is gone.
        PostgresRequest(
            """
            UPDATE entitlement_sync.queue AS q
               SET owner = NULL, active = NULL, crashes = 0, cancel = false,
                   restore_id = n.restore_id, restore_due = n.restore_due,
                   restore_next = CASE q.active WHEN 0 THEN NULL ELSE q.restore_next END,
                   restore_attempt = CASE q.active WHEN 0 THEN 0 ELSE q.restore_attempt END,
                   restore_error = CASE q.active WHEN 0 THEN NULL ELSE q.restore_error END,
                   -- A successor has had no try while it waited.
                   restore_queued_at = CASE WHEN q.active <> 0 THEN q.restore_queued_at
                                            WHEN n.restore_id IS NOT NULL THEN clock_timestamp() END,
                   reconcile_id = n.reconcile_id, reconcile_due = n.reconcile_due,
                   reconcile_next = CASE q.active WHEN 1 THEN NULL ELSE q.reconcile_next END,
                   reconcile_attempt = CASE q.active WHEN 1 THEN 0 ELSE q.reconcile_attempt END,
                   reconcile_error = CASE q.active WHEN 1 THEN NULL ELSE q.reconcile_error END,
                   reconcile_queued_at = CASE WHEN q.active <> 1 THEN q.reconcile_queued_at
                                              WHEN n.reconcile_id IS NOT NULL THEN clock_timestamp() END,
                   lane = CASE WHEN n.restore_id IS NULL THEN q.reconcile_lane ELSE 0 END,
                   due = \(rawSQL: due(of: "n"))
              FROM (SELECT x.user_key,
                           CASE x.active WHEN 0 THEN x.restore_next ELSE x.restore_id END AS restore_id,
                           CASE WHEN x.active = 1 THEN x.restore_due
                                WHEN x.restore_next IS NOT NULL THEN clock_timestamp() END AS restore_due,
                           CASE x.active WHEN 1 THEN x.reconcile_next ELSE x.reconcile_id END AS reconcile_id,
                           CASE WHEN x.active = 0 THEN x.reconcile_due
                                WHEN x.reconcile_next IS NOT NULL THEN clock_timestamp() END AS reconcile_due
                      FROM entitlement_sync.queue AS x
                     WHERE x.user_key = ANY (\(keys)) AND x.active IS NOT NULL) AS n
             WHERE q.user_key = n.user_key AND q.user_key = ANY (\(keys))
            """,
            read: { $0.affected }
        )
    }

    /// Sends locked jobs back to wait.
    package static func retry(_ retries: [JobRetry]) -> [PostgresRequest<Void>] {
        guard !retries.isEmpty else { return [] }
        let query: PostgresQuery = """
            UPDATE entitlement_sync.queue AS q
               SET owner = NULL, active = NULL, crashes = 0,
                   restore_due = n.restore_due, reconcile_due = n.reconcile_due,
                   restore_attempt = CASE n.kind WHEN 0 THEN n.attempt ELSE q.restore_attempt END,
                   reconcile_attempt = CASE n.kind WHEN 1 THEN n.attempt ELSE q.reconcile_attempt END,
                   restore_error = CASE n.kind WHEN 0 THEN n.error ELSE q.restore_error END,
                   reconcile_error = CASE n.kind WHEN 1 THEN n.error ELSE q.reconcile_error END,
                   lane = CASE WHEN q.lane = 9 THEN 9 WHEN q.restore_id IS NULL THEN q.reconcile_lane ELSE 0 END,
                   due = \(rawSQL: due(of: "n"))
              FROM (SELECT x.user_key, r.kind, r.attempt, r.error,
                           CASE r.kind WHEN 0 THEN clock_timestamp() + r.wait * interval '1 microsecond'
                                       ELSE x.restore_due END AS restore_due,
                           CASE r.kind WHEN 1 THEN clock_timestamp() + r.wait * interval '1 microsecond'
                                       ELSE x.reconcile_due END AS reconcile_due
                      FROM unnest(\(retries.map(\.userKey)), \(retries.map(\.kind.rawValue)),
                                  \(retries.map(\.after.microseconds)), \(retries.map { Int16(clamping: $0.attempt) }),
                                  \(retries.map(\.error))) AS r(user_key, kind, wait, attempt, error)
                      JOIN entitlement_sync.queue AS x
                        ON x.user_key = r.user_key AND x.user_key = ANY (\(retries.map(\.userKey)))) AS n
             WHERE q.user_key = n.user_key AND q.user_key = ANY (\(retries.map(\.userKey)))
            """
        return [PostgresRequest(query)]
    }

    /// Queues a reconcile for each user, joining what is queued already.
    package static func enqueueReconciles(for userKeys: [Int64], lane: JobLane) -> [PostgresRequest<Void>] {
        guard !userKeys.isEmpty else { return [] }
        let query: PostgresQuery = """
            SELECT entitlement_sync.enqueue(k.user_key, 1::smallint, \(lane.rawValue), entitlement_sync.new_id())
              FROM (SELECT DISTINCT u.user_key FROM unnest(\(userKeys)) AS u(user_key) ORDER BY 1) AS k
            """
        return [PostgresRequest(query)]
    }

    /// Queues a reconcile for each user whose row of the queue is free or is had within a moment.
    ///
    /// - Returns: the users whose rows another transaction holds; nothing was queued for them.
    package static func enqueueUnheld(
        _ userKeys: [Int64],
        lane: JobLane,
        on connection: PostgresConnection
    ) async throws -> Set<Int64> {
        try await connection.withSetting("lock_timeout", "50ms") { connection in
            var held: Set<Int64> = []
            for key in userKeys {
                do {
                    try await connection.withSavepoint { connection in
                        try await connection.send(enqueueReconciles(for: [key], lane: lane))
                    }
                } catch let error as PostgresError where error.sqlState == SQLState.lockNotAvailable {
                    held.insert(key)
                }
            }
            return held
        }
    }
}
