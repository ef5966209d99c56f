package import Entitlements
import FoundationEssentials
package import Postgres

/// Takes jobs from the queue and gives them back.
///
/// Every statement is one round trip and set-based; `QueueRow` has the states of a row, and what changes them.
package struct JobQueue: Sendable {
    let pool: PostgresPool
    private let ignoresPause: Bool

    /// `ignoresPause`: true for workers that only observe: a pause of writes does not concern them.
    package init(pool: PostgresPool, ignoresPause: Bool = false) {
        self.pool = pool
        self.ignoresPause = ignoresPause
    }

    /// Time until the next job without an owner is due; negative if one is due already, `nil` if there is none.
    package func timeUntilDue() async throws(PostgresError) -> Duration? {
        try await pool.query(
            """
            SELECT (extract(epoch FROM min(q.due) - clock_timestamp()) * 1000)::bigint
              FROM entitlement_sync.queue AS q WHERE q.owner IS NULL AND q.due < 'infinity'
            """
        ).first?.decode(Int64?.self, at: 0).map { .milliseconds($0) } ?? nil
    }

    /// How many jobs of a lane to dequeue, at most.
    package struct LaneLimit: Sendable, Hashable {
        package var lane: JobLane
        package var limit: Int

        package init(lane: JobLane, limit: Int) {
            self.lane = lane
            self.limit = limit
        }
    }

    /// Leases due jobs to a process, by lane and age.
    ///
    /// One statement: rows are locked with `SKIP LOCKED`, so workers never wait for each other, and the lease of the
    /// process itself is held by a key-share lock, so that it can't be declared dead between its claim and the commit.
    ///
    /// `limits`: the lanes in the order in which they are served; `limit`: for all lanes together. Empty also when the lease has
    /// ended.
    package func claim(
        _ limits: [LaneLimit],
        upTo limit: Int,
        for epoch: Int32
    ) async throws(PostgresError) -> [ClaimedJob] {
        let query: PostgresQuery = """
            WITH alive AS MATERIALIZED (
                SELECT w.epoch
                  FROM entitlement_sync.worker AS w
                 WHERE w.epoch = \(epoch) AND w.expires_at > clock_timestamp()
                   FOR KEY SHARE
            ), picked AS MATERIALIZED (
                SELECT p.ctid
                  FROM unnest(\(limits.map(\.lane.rawValue)), \(limits.map { Int32($0.limit) })) AS wanted(lane, cap)
                 CROSS JOIN LATERAL (
                       SELECT q.ctid
                         FROM entitlement_sync.queue AS q
                        WHERE q.lane = wanted.lane AND q.due <= now() AND q.owner IS NULL
                        ORDER BY q.due
                        LIMIT wanted.cap
                          FOR UPDATE SKIP LOCKED) AS p
                 WHERE EXISTS (SELECT 1 FROM alive)
                   AND (\(ignoresPause)
                        OR NOT EXISTS (SELECT 1 FROM entitlement_sync.control AS c WHERE c.name = 'all' AND c.paused))
                 LIMIT \(Int64(limit))
            ), claimed AS (
                UPDATE entitlement_sync.queue AS q
                   SET owner = \(epoch),
                       active = CASE WHEN q.cancel AND q.active IS NOT NULL THEN q.active
                                     WHEN q.restore_id IS NOT NULL AND (q.restore_due <= now() OR q.reconcile_id IS NULL)
                                     THEN 0 ELSE 1 END
                 WHERE q.ctid = ANY (ARRAY(SELECT picked.ctid FROM picked)) AND q.owner IS NULL
                RETURNING q.user_key, q.active, q.lane, q.due, q.crashes, q.has_request,
                          CASE q.active WHEN 0 THEN q.restore_id ELSE q.reconcile_id END AS id,
                          CASE q.active WHEN 0 THEN q.restore_attempt ELSE q.reconcile_attempt END AS attempt,
                          CASE q.active WHEN 0 THEN q.restore_error ELSE q.reconcile_error END AS error,
                          CASE q.active WHEN 0 THEN q.restore_queued_at ELSE q.reconcile_queued_at END AS queued_at
            )
            SELECT c.id, c.active, c.lane, c.due, c.user_key, u.user_id, c.attempt, c.crashes, c.error, c.queued_at,
                   EXISTS (SELECT 1 FROM entitlement_sync.sandbox_access AS s
                            WHERE s.user_id = u.user_id AND s.until > now()) AS sandbox,
                   coalesce(json_array_length(u.entitlements) > 1, false) AS holds_several,
                   -- Not joined: each of the partitions would be asked for each job, and few jobs say anything.
                   CASE WHEN c.has_request THEN (SELECT x.proofs::text FROM entitlement_sync.job_request AS x WHERE x.id = c.id)
                        END AS proofs,
                   CASE WHEN c.has_request THEN (SELECT x.client_error FROM entitlement_sync.job_request AS x WHERE x.id = c.id)
                        END AS client_error,
                   CASE WHEN c.has_request THEN (SELECT x.product_ids FROM entitlement_sync.job_request AS x WHERE x.id = c.id)
                        END AS product_ids,
                   clock_timestamp() AS now
              FROM claimed AS c
             -- Kept apart: joined while the table is nearly empty, all of it would be read for each job ever after.
             CROSS JOIN LATERAL (SELECT x.user_id, x.entitlements FROM entitlement_sync.user_sync AS x
                                  WHERE x.user_key = c.user_key OFFSET 0) AS u
            """
        guard let rows = try await pool.pipeline([SessionSettings.claim, query]).last else { return [] }
        // Taken after the answer: what has passed since is at most what has passed for the database.
        let tick = ContinuousClock.now
        return try rows.map { row throws(PostgresError) in
            let (active, lane, attempt, crashes): (Int16, Int16, Int16, Int16) = try (
                row["active"], row["lane"], row["attempt"], row["crashes"]
            )
            let (id, now, queuedAt): (UUID, Instant, Instant?) = try (row["id"], row["now"], row["queued_at"])
            func sinceThen(_ then: Instant) -> Duration { .microseconds(max(now.microseconds - then.microseconds, 0)) }
            var job = try ClaimedJob(
                id: id,
                kind: JobKind(rawValue: active) ?? .reconcile,
                lane: JobLane(rawValue: lane) ?? .sweep,
                due: row["due"],
                userKey: row["user_key"],
                userID: row["user_id"],
                lastError: row["error"],
                sandboxAllowed: row["sandbox"],
                claimedAt: now,
                claimedTick: tick
            )
            job.holdsSeveral = try row["holds_several"]
            job.attempt = Int(attempt)
            job.crashes = Int(crashes)
            job.age = sinceThen(id.madeAt)
            job.requeuedFor = queuedAt.map(sinceThen)
            job.request.proofs = try row["proofs"]
            job.request.clientError = try row["client_error"]
            job.request.productIDs = try row["product_ids"]
            return job
        }
    }

    /// Gives jobs back untouched, as at a shutdown: it counts nothing.
    package func release(_ userKeys: [Int64], for epoch: Int32) async throws(PostgresError) {
        guard !userKeys.isEmpty else { return }
        try await pool.query(
            """
            UPDATE entitlement_sync.queue AS q
               SET owner = NULL, active = CASE WHEN q.cancel THEN q.active END, \(rawSQL: JobEnds.place(of: "q"))
             WHERE q.user_key = ANY (\(userKeys)) AND q.owner = \(epoch)
            """
        )
    }

    /// Gives back every job of this process but those it knows it holds.
    package func releaseAll(except userKeys: [Int64], for epoch: Int32) async throws(PostgresError) {
        try await pool.query(
            """
            UPDATE entitlement_sync.queue AS q
               SET owner = NULL, active = CASE WHEN q.cancel THEN q.active END, \(rawSQL: JobEnds.place(of: "q"))
             WHERE q.owner = \(epoch) AND q.user_key <> ALL (\(userKeys))
            """
        )
    }

    /// Whether nothing waits, runs or is unfinished, delayed retries and other workers' jobs included.
    package func isIdle() async throws(PostgresError) -> Bool {
        let rows = try await pool.query(
            """
            SELECT NOT EXISTS (SELECT 1 FROM entitlement_sync.queue)
               AND NOT EXISTS (SELECT 1 FROM entitlement_sync.asset_run AS r WHERE NOT r.parked)
               AND NOT EXISTS (SELECT 1 FROM entitlement_sync.inbox AS i WHERE i.state = 'received')
               AND NOT EXISTS (SELECT 1 FROM entitlement_sync.run AS r WHERE r.state IN ('reading', 'applying'))
            """
        )
        return try rows.first?.decode(Bool.self, at: 0) ?? false
    }

    /// Whether a row waits to be run alone.
    package func hasQuarantined() async throws(PostgresError) -> Bool {
        try await pool.query(
            """
            SELECT EXISTS (SELECT 1 FROM entitlement_sync.queue AS q
                            WHERE q.lane = 9 AND q.due <= now() AND q.owner IS NULL)
            """
        ).first?.decode(Bool.self, at: 0) ?? false
    }
}

extension UUID {
    /// The instant in the first 48 bits of an id of version 7, to the millisecond; by the clock of the database.
    ///
    /// - SeeAlso: RFC 9562, section 5.7
    fileprivate var madeAt: Instant {
        let bytes = uuid
        let parts = [bytes.0, bytes.1, bytes.2, bytes.3, bytes.4, bytes.5]
        return Instant(microseconds: parts.reduce(Int64(0)) { $0 << 8 | Int64($1) } * 1000)
    }
}
