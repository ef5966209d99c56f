package import Logging
import Metrics
package import Postgres

/// The leases of worker processes: who is alive, by the database's clock.
package struct Leases: Sendable {
    private let pool: PostgresPool
    /// How long a process stays its jobs' owner without a heartbeat.
    package let duration: Duration

    package init(pool: PostgresPool, duration: Duration) {
        self.pool = pool
        self.duration = duration
    }

    /// Registers this process and returns its epoch, which is never used again.
    ///
    /// The number is drawn at random. A sequence that lost its tail in a failover would give a number again, and the
    /// process that had it before would write under the other's lease.
    package func register(_ process: LeaseKeeper.Process) async throws(PostgresError) -> Int32 {
        let epoch = try await pool.query(
            """
            INSERT INTO entitlement_sync.worker (epoch, host, pid, version, backfills, mode, stores, sandbox, expires_at)
            SELECT d.epoch, \(process.host), \(process.pid), \(process.version), \(process.lists), \(process.mode),
                   \(process.stores), \(process.sandbox),
                   clock_timestamp() + \(duration.microseconds) * interval '1 microsecond'
              FROM (SELECT greatest(('x' || left(gen_random_uuid()::text, 8))::bit(32)::integer & 2147483647, 1) AS epoch
                      FROM generate_series(1, 8)) AS d
             WHERE NOT EXISTS (SELECT 1 FROM entitlement_sync.worker AS w WHERE w.epoch = d.epoch)
             LIMIT 1
            RETURNING epoch
            """
        ).one.decode(Int32.self)
        // Before this process takes a job by it.
        if process.sandbox != nil { try await settleSandbox() }
        return epoch
    }

    /// Puts on record what the live workers say of sandbox purchases.
    private func settleSandbox() async throws(PostgresError) {
        try await pool.query("SELECT entitlement_sync.settle_sandbox()")
    }

    /// Prolongs the lease; `longer`: that of a worker that rests, polls rarely and relies on notifications.
    ///
    /// - Returns: `false` when it has ended: this process owns nothing any more and must register again.
    package func heartbeat(_ epoch: Int32, resting longer: Duration? = nil) async throws(PostgresError) -> Bool {
        let duration = longer ?? duration
        return try await pool.query(
            """
            UPDATE entitlement_sync.worker AS w
               SET expires_at = clock_timestamp() + \(duration.microseconds) * interval '1 microsecond',
                   rests = \(longer != nil)
             WHERE w.epoch = \(epoch) AND w.expires_at > clock_timestamp()
            """
        ).affected == 1
    }

    /// Ends the lease at a shutdown, and gives back whatever still stands under it.
    package func end(_ epoch: Int32) async throws {
        try await pool.withTransaction { connection in
            try await connection.query(
                "UPDATE entitlement_sync.worker AS w SET expires_at = '-infinity' WHERE w.epoch = \(epoch)"
            )
            try await connection.query(
                """
                UPDATE entitlement_sync.queue AS q
                   SET owner = NULL, active = CASE WHEN q.cancel THEN q.active END, \(rawSQL: JobEnds.place(of: "q"))
                 WHERE q.user_key = ANY (ARRAY(SELECT x.user_key FROM entitlement_sync.queue AS x
                                                WHERE x.owner = \(epoch) FOR UPDATE SKIP LOCKED))
                """
            )
            try await forget([epoch], on: connection)
        }
        try await settleSandbox()
    }

    /// Removes leases under which nothing stands; what a host's transaction holds is freed when that has ended.
    private func forget(_ epochs: [Int32], on connection: PostgresConnection) async throws {
        try await connection.query(
            """
            DELETE FROM entitlement_sync.worker AS w
             WHERE w.epoch = ANY (\(epochs))
               AND NOT EXISTS (SELECT 1 FROM entitlement_sync.queue AS q WHERE q.owner = w.epoch)
            """
        )
    }

    /// Makes the jobs of dead workers available again.
    package func rescuer(dequeue: DequeueSignal, logger: Logger) -> PeriodicService {
        let rescued = Counter(label: "entitlement_sync_jobs_rescued_total")
        return PeriodicService("job rescuer", .untilEnd, every: min(duration / 4, .seconds(2)), logger: logger) {
            let jobs = try await rescue()
            if jobs > 0 {
                rescued.increment(by: jobs)
                logger.warning("jobs of a dead worker were freed", metadata: ["jobs": "\(jobs)"])
                dequeue.raise()
            }
            return .idle
        }
    }

    /// Frees the jobs of processes whose lease has ended, and counts the crash on each.
    ///
    /// The lease row is locked, so that no claim or write of that process is under way; its end forbids new ones. Jobs
    /// that a host's transaction holds stay for the next time. Returns how many jobs were freed.
    package func rescue() async throws -> Int {
        let expired = try await pool.query(
            "SELECT w.epoch FROM entitlement_sync.worker AS w WHERE w.expires_at <= clock_timestamp()"
        )
        guard !expired.isEmpty else { return 0 }
        let freed: Int = try await pool.withTransaction { connection in
            let epochs = try await connection.query(
                """
                SELECT w.epoch FROM entitlement_sync.worker AS w
                 WHERE w.expires_at <= clock_timestamp() FOR UPDATE SKIP LOCKED
                """
            ).map { try $0.decode(Int32.self, at: 0) }
            guard !epochs.isEmpty else { return 0 }
            let joins = JobEnds.joinsRestores("q")
            let freed = try await connection.query(
                """
                UPDATE entitlement_sync.queue AS q
                   SET owner = NULL, active = CASE WHEN q.cancel THEN q.active END, crashes = q.crashes + 1,
                       lane = CASE WHEN q.crashes + 1 >= 3 THEN 9 WHEN \(rawSQL: joins) THEN 0 ELSE q.lane END,
                       due = CASE WHEN q.crashes + 1 < 3 AND \(rawSQL: joins) THEN \(rawSQL: JobEnds.due(of: "q"))
                                  ELSE q.due END
                 WHERE q.user_key = ANY (ARRAY(SELECT x.user_key FROM entitlement_sync.queue AS x
                                                WHERE x.owner = ANY (\(epochs)) FOR UPDATE SKIP LOCKED))
                """
            ).affected
            try await forget(epochs, on: connection)
            return freed
        }
        try await settleSandbox()
        return freed
    }
}
