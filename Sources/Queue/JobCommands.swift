package import Entitlements
package import FoundationEssentials
package import Postgres

/// What an operator asks of the queue.
package struct JobCommands: Sendable {
    private let pool: PostgresPool

    package init(pool: PostgresPool) { self.pool = pool }

    package struct Stats: Sendable, Codable {
        package var queued: Int64
        package var running: Int64
        package var delayed: Int64
        package var dead: Int64
        package var oldestSeconds: Double

        enum CodingKeys: String, CodingKey {
            case queued, running, delayed, dead
            case oldestSeconds = "oldest_seconds"
        }
    }

    /// Counts users' rows: `queued` are due now, `delayed` wait for their time.
    package func stats() async throws -> Stats {
        try await pool.query(
            """
            SELECT count(*) FILTER (WHERE q.owner IS NULL AND q.due <= now()),
                   count(*) FILTER (WHERE q.owner IS NOT NULL),
                   count(*) FILTER (WHERE q.owner IS NULL AND q.due > now()),
                   (SELECT count(*) FROM entitlement_sync.dead_job),
                   coalesce(extract(epoch FROM now() - min(entitlement_sync.id_time(
                       coalesce(least(q.restore_id, q.reconcile_id), q.restore_id, q.reconcile_id)))), 0)::double precision
              FROM entitlement_sync.queue AS q
            """
        ).one.decode(into: Stats.init(queued:running:delayed:dead:oldestSeconds:))
    }

    /// Puts a dead job back as if it were new: its attempts and its age count from now on; `false` when there is no such dead job, or the user has one queued already.
    package func retry(_ id: UUID) async throws -> Bool {
        try await pool.query("SELECT entitlement_sync.requeue_dead(\([id]))").first?.decode(Int32.self) == 1
    }

    /// Puts all dead jobs of an error back, a batch after the other.
    ///
    /// - Returns: how many are queued; left out are those whose users have such a job queued already.
    package func retryAll(error: String) async throws -> Int {
        var (retried, after) = (0, UUID(uuid: (0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)))
        while true {
            let ids = try await pool.query(
                """
                SELECT h.id FROM entitlement_sync.dead_job AS h
                 WHERE h.last_error = \(error) AND h.id > \(after) ORDER BY h.id LIMIT 1000
                """
            ).map { row in try row.decode(UUID.self) }
            guard let last = ids.last else { return retried }
            retried += Int(try await pool.query("SELECT entitlement_sync.requeue_dead(\(ids))").one.decode(Int32.self))
            after = last
        }
    }

    /// A job that waits or runs.
    package struct Waiting: Sendable, Encodable {
        package var id: String
        package var reference: String
        /// When it was asked for, to the millisecond.
        package var createdAt: String
        package var kind: String
        package var userID: String?
        package var lane: String
        package var state: String
        /// Until it is due, in seconds; `nil` for one that is due, that runs, or that follows another.
        package var waitSeconds: Double?
        package var attempt: Int32
        package var lastError: String?

        enum CodingKeys: String, CodingKey {
            case id, reference, kind, lane, state, attempt
            case createdAt = "created_at"
            case userID = "user_id"
            case waitSeconds = "wait_seconds"
            case lastError = "last_error"
        }
    }

    /// Jobs that run, then those that are due, then those that wait for their time; of each the restores first.
    ///
    /// `userID`: only those of a user.
    package func list(of userID: String? = nil, limit: Int32) async throws -> [Waiting] {
        try await pool.query(
            """
            SELECT j.id::text, entitlement_sync.reference_of('R', j.id),
                   to_char(entitlement_sync.id_time(j.id) AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'),
                   CASE j.kind WHEN 0 THEN 'restore' ELSE 'reconcile' END, u.user_id,
                   CASE j.lane WHEN 0 THEN 'restore' WHEN 1 THEN 'event' WHEN 2 THEN 'background' ELSE 'quarantine' END,
                   CASE WHEN q.owner IS NOT NULL AND q.active = j.kind AND NOT j.follows THEN 'running' ELSE 'queued' END,
                   CASE WHEN q.owner IS NULL AND j.due > now() THEN extract(epoch FROM j.due - now())::double precision END,
                   j.attempt::integer, j.error
              FROM entitlement_sync.queue AS q
              JOIN entitlement_sync.user_sync AS u ON u.user_key = q.user_key
             CROSS JOIN LATERAL (VALUES
                   (q.restore_id, 0, q.lane, q.restore_due, q.restore_attempt, q.restore_error, false),
                   (q.reconcile_id, 1, CASE q.lane WHEN 9 THEN 9 ELSE q.reconcile_lane END, q.reconcile_due,
                    q.reconcile_attempt, q.reconcile_error, false),
                   (q.restore_next, 0, q.lane, NULL, 0, NULL, true),
                   (q.reconcile_next, 1, q.reconcile_lane, NULL, 0, NULL, true)
                   ) AS j (id, kind, lane, due, attempt, error, follows)
             WHERE j.id IS NOT NULL
               AND (\(userID) IS NULL OR u.user_id = coalesce(entitlement_sync.host_id(\(userID)), \(userID)))
             ORDER BY q.owner IS NULL, coalesce(j.due > now(), true), j.lane, j.due, j.id
             LIMIT \(limit)
            """
        ).map { row in try row.decode(into: Waiting.init) }
    }

    package enum Cancellation: String, Sendable { case canceled, asked, notFound = "not_found" }

    /// Cancels a queued job at once; a running one is asked to end before its effects are written.
    ///
    /// `publish`: what is to be written of a restore that ends here; the worker publishes the ends of those that run.
    package func cancel(
        _ id: UUID,
        publish: @Sendable (JobEnd) -> [PostgresRequest<Void>] = { _ in [] }
    ) async throws -> Cancellation {
        try await pool.withTransaction { connection in
            let rows = try await connection.query(
                """
                SELECT q.user_key, q.active, q.owner IS NOT NULL AS is_owned, q.restore_attempt, q.reconcile_attempt,
                       CASE \(id) WHEN q.restore_id THEN 0 WHEN q.reconcile_id THEN 1
                                  WHEN q.restore_next THEN 2 ELSE 3 END AS slot
                  FROM entitlement_sync.queue AS q
                 WHERE q.restore_id = \(id) OR q.reconcile_id = \(id) OR q.restore_next = \(id) OR q.reconcile_next = \(id)
                   FOR UPDATE
                """
            )
            guard let row = rows.first else { return .notFound }
            let (userKey, isOwned, slot): (Int64, Bool, Int32) = try (row["user_key"], row["is_owned"], row["slot"])
            let (active, restoreAttempt): (Int16?, Int16) = try (row["active"], row["restore_attempt"])
            let reconcileAttempt: Int16 = try row["reconcile_attempt"]
            if isOwned, active == Int16(clamping: slot) {
                try await connection.query(
                    "UPDATE entitlement_sync.queue AS q SET cancel = true WHERE q.user_key = \(userKey)"
                )
                return .asked
            }
            try await connection.query(
                """
                WITH emptied AS (
                    UPDATE entitlement_sync.queue AS q
                       -- Another job's cancellation, asked for before its worker died, stands.
                       SET cancel = q.cancel AND (q.owner IS NOT NULL OR q.active <> \(slot)),
                           active = CASE WHEN q.owner IS NOT NULL OR q.cancel AND q.active <> \(slot) THEN q.active END,
                           restore_id = CASE \(slot) WHEN 0 THEN q.restore_next ELSE q.restore_id END,
                           restore_next = CASE WHEN \(slot) IN (0, 2) THEN NULL ELSE q.restore_next END,
                           -- A successor starts from zero: neither the attempts nor the wait of the canceled job are its own.
                           restore_due = CASE WHEN \(slot) <> 0 THEN q.restore_due
                                              WHEN q.restore_next IS NOT NULL THEN clock_timestamp() END,
                           restore_attempt = CASE \(slot) WHEN 0 THEN 0 ELSE q.restore_attempt END,
                           restore_error = CASE \(slot) WHEN 0 THEN NULL ELSE q.restore_error END,
                           restore_queued_at = CASE WHEN \(slot) <> 0 THEN q.restore_queued_at
                                                    WHEN q.restore_next IS NOT NULL THEN clock_timestamp() END,
                           reconcile_id = CASE \(slot) WHEN 1 THEN q.reconcile_next ELSE q.reconcile_id END,
                           reconcile_next = CASE WHEN \(slot) IN (1, 3) THEN NULL ELSE q.reconcile_next END,
                           reconcile_due = CASE WHEN \(slot) <> 1 THEN q.reconcile_due
                                                WHEN q.reconcile_next IS NOT NULL THEN clock_timestamp() END,
                           reconcile_attempt = CASE \(slot) WHEN 1 THEN 0 ELSE q.reconcile_attempt END,
                           reconcile_error = CASE \(slot) WHEN 1 THEN NULL ELSE q.reconcile_error END,
                           reconcile_queued_at = CASE WHEN \(slot) <> 1 THEN q.reconcile_queued_at
                                                      WHEN q.reconcile_next IS NOT NULL THEN clock_timestamp() END
                     WHERE q.user_key = \(userKey)
                )
                INSERT INTO entitlement_sync.job_history (id, user_key, finished_at, kind, attempt, state)
                VALUES (\(id), \(userKey), clock_timestamp(), \(Int16(slot % 2)),
                        \(slot == 0 ? restoreAttempt : slot == 1 ? reconcileAttempt : 0), 'canceled')
                """
            )
            try await connection.query(
                """
                DELETE FROM entitlement_sync.queue AS q
                 WHERE q.user_key = \(userKey) AND q.restore_id IS NULL AND q.reconcile_id IS NULL
                """
            )
            try await connection.query(
                """
                UPDATE entitlement_sync.queue AS q
                   SET due = least(q.restore_due, q.reconcile_due),
                       lane = CASE WHEN q.restore_id IS NULL THEN q.reconcile_lane ELSE 0 END
                 WHERE q.user_key = \(userKey) AND q.owner IS NULL
                """
            )
            try await connection.send(JobEnds.forgetProofs(of: [id]))
            if slot % 2 == 0 {
                let end = JobEnd(id: id, userKey: userKey, kind: .restore, state: .canceled, outcome: nil, attempt: 0)
                try await connection.send(publish(end))
            }
            return .canceled
        }
    }
}
