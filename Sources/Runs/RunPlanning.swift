package import Entitlements
package import Postgres
import Reconciliation

/// The steps of the process that plans runs; each is one statement that asks first whether the caller still leads.
package struct RunPlanning: Sendable {
    private let pool: PostgresPool
    private let brake: DemotionBrake

    /// `brake` limits the demotions of a run.
    package init(pool: PostgresPool, brake: DemotionBrake) {
        self.pool = pool
        self.brake = brake
    }

    /// The runs that go on, the oldest first.
    package func open() async throws -> [RunRecord] {
        try await pool.query(
            """
            SELECT \(rawSQL: RunRecord.columns) FROM entitlement_sync.run AS r
             WHERE r.state IN ('reading', 'applying') ORDER BY r.id
            """
        ).map { try RunRecord($0) }
    }

    /// How many more jobs of real runs and parts of dry runs may be planned now.
    ///
    /// `most`: background jobs that may stand in the queue, those that wait for another try included; `parts`: parts of
    /// dry runs that may wait.
    package func room(most: Int, parts: Int) async throws -> (jobs: Int, parts: Int) {
        let row = try await pool.query(
            """
            SELECT (SELECT count(*) FROM (SELECT 1 FROM entitlement_sync.queue AS q WHERE q.lane = 2
                                           LIMIT \(Int64(most))) AS x),
                   (SELECT count(*) FROM (SELECT 1 FROM entitlement_sync.run AS r
                                            JOIN entitlement_sync.run_part AS p ON p.run_id = r.id AND p.ended_at IS NULL
                                           WHERE r.is_dry AND r.state = 'reading' LIMIT \(Int64(parts))) AS x)
            """
        ).first
        let (jobs, waiting) = try row?.decode(Int64.self, Int64.self) ?? (Int64(0), Int64(0))
        return (max(most - Int(jobs), 0), max(parts - Int(waiting), 0))
    }

    /// Plans the next stretch of a run, of `batch` users at most; `fence` is the number under which the caller leads.
    ///
    /// - Returns: users examined; 0: there are no more; `nil`: the caller leads no more, or the run does not go on.
    /// - Throws: `PostgresError`.
    package func feed(_ run: Int64, fence: Int64, batch: Int) async throws(PostgresError) -> Int? {
        try await pool.query("SELECT entitlement_sync.feed_run(\(fence), \(run), \(Int32(clamping: batch)))")
            .first?.decode(Int32?.self, at: 0).map { Int($0) }
    }

    /// Has workers list what stores sent since a run's instant; returns whether the run's end has to wait for that.
    package func planListings(of run: Int64, fence: Int64) async throws(PostgresError) -> Bool {
        try await pool.query("SELECT entitlement_sync.plan_backfills(\(fence), \(run))")
            .first?.decode(Bool?.self, at: 0) ?? false
    }

    /// Counts the users of a run, a stretch at a time; returns whether there is more to count.
    package func count(_ run: Int64, fence: Int64, batch: Int = 20_000) async throws(PostgresError) -> Bool {
        try await pool.query("SELECT entitlement_sync.count_run(\(fence), \(run), \(Int32(clamping: batch)))")
            .first?.decode(Bool?.self, at: 0) ?? false
    }

    /// Counts the host's subscribers; a run may demote a share of them: the last count may be minutes old.
    package func countSubscribers() async throws {
        try await BrakeStore.countSubscribers(in: pool, notWithin: .seconds(5))
    }

    /// Ends parts whose jobs have ended; returns how many.
    package func closeParts(fence: Int64, most: Int = 20) async throws(PostgresError) -> Int {
        try await pool.query("SELECT entitlement_sync.close_parts(\(fence), \(Int32(clamping: most)))")
            .first?.decode(Int32?.self, at: 0).map { Int($0) } ?? 0
    }

    /// Counts the users of a real run whose job has ended while others of their stretch are on their way.
    ///
    /// The run's record does not count them yet.
    package func underway(_ run: Int64) async throws(PostgresError) -> Int64 {
        try await pool.query(
            """
            SELECT coalesce(sum(cardinality(x.jobs) - w.waiting), 0)::bigint
              FROM entitlement_sync.run_part AS x
             CROSS JOIN LATERAL (
                   SELECT count(*) AS waiting
                     FROM unnest(x.keys, x.jobs) AS j(key, id)
                     JOIN entitlement_sync.queue AS q
                       ON q.user_key = j.key AND j.id IN (q.reconcile_id, q.reconcile_next)) AS w
             WHERE x.run_id = \(run) AND x.ended_at IS NULL AND x.jobs IS NOT NULL
            """
        ).first?.decode(Int64.self, at: 0) ?? 0
    }

    /// Takes a run to its next state, where everything that was planned has ended.
    package func settle(_ run: Int64, fence: Int64) async throws -> RunRecord.State? {
        let row = try await pool.query(
            "SELECT b.subscribers, (\(rawSQL: BrakeStore.spentSQL)) FROM entitlement_sync.brake AS b"
        ).first
        let (subscribers, spent) = try row?.decode(Int64.self, Int64.self) ?? (Int64(0), Int64(0))
        let limit = Int64(brake.limit(subscribers: subscribers))
        let state = try await pool.query(
            """
            SELECT entitlement_sync.settle_run(\(fence), \(run), \(max(limit - spent, 0)), \(limit), \(subscribers))
            """
        ).first?.decode(String?.self, at: 0)
        return state.flatMap(RunRecord.State.init)
    }

    /// Notes in how many seconds a run is expected to end; `nil`: not known.
    package func predict(_ run: Int64, fence: Int64, endIn seconds: Double?) async throws(PostgresError) {
        try await pool.query("SELECT entitlement_sync.predict_run(\(fence), \(run), \(seconds))")
    }
}
