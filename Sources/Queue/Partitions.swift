package import Logging
package import Postgres

/// The partitions of jobs' requests and history, of decisions and of observations; the SQL is in partitions.sql.
package struct Partitions: Sendable {
    private let pool: PostgresPool
    /// How long ended jobs are kept.
    private let historyDays: Int

    package init(pool: PostgresPool, historyDays: Int) {
        self.pool = pool
        self.historyDays = historyDays
    }

    /// A missing partition within this many coming days raises an alarm.
    package static let daysAhead: Int32 = 14

    /// Creates partitions ahead and drops those whose retention has passed.
    package func maintainer(logger: Logger) -> PeriodicService {
        // At first a worker works off what waits.
        PeriodicService("partition maintainer", .upkeep, every: .seconds(300), after: .seconds(60), logger: logger) {
            try await maintain() ? .after(.seconds(3600)) : .idle
        }
    }

    /// Makes the coming days' partitions and drops old ones.
    ///
    /// The tables are locked for some milliseconds, and not at all while an open transaction holds them. One process
    /// tries at a time; after a failed try none does for five minutes.
    ///
    /// Returns whether it was done; false: another process has the turn, or it has to be tried again later.
    package func maintain() async throws -> Bool {
        let mine = try await pool.query(
            """
            INSERT INTO entitlement_sync.upkeep AS u (name, next_at)
            VALUES ('partitions', clock_timestamp() + interval '5 minutes')
            ON CONFLICT (name) DO UPDATE SET next_at = excluded.next_at
             -- No wait is longer: a later time was written by a clock that was ahead.
             WHERE u.next_at NOT BETWEEN clock_timestamp() AND clock_timestamp() + interval '10 minutes'
            """
        )
        guard mine.affected > 0 else { return false }
        var isDone = true
        let tables = try await pool.query("SELECT t.name FROM entitlement_sync.partitioned_tables() AS t")
        for table in try tables.map({ try $0.decode(String.self) }) {
            if try await !maintain(table) { isDone = false }
        }
        let missing = try await pool.query(Self.missing).first?.decode(Int64.self, at: 0) ?? 0
        if missing > 0 {
            try await Alarms.raise(
                "partitions_low",
                "\(missing) partitions for the next \(Self.daysAhead) days are missing: an open transaction keeps"
                    + " workers from making them (pg_locks on job_history, job_request, decision and observation). Requests are accepted meanwhile.",
                in: pool
            )
        }
        if isDone {
            try await pool.query(
                "UPDATE entitlement_sync.upkeep AS u SET next_at = '-infinity' WHERE u.name = 'partitions'"
            )
        }
        return isDone
    }

    /// Returns false while an open transaction holds the table.
    private func maintain(_ table: String) async throws -> Bool {
        do {
            try await pool.query(
                """
                SELECT entitlement_sync.maintain_partitions(keep => \(Int32(clamping: historyDays)),
                                                            parent => \(table))
                """
            )
            return true
        } catch {
            guard error.sqlState == SQLState.lockNotAvailable else { throw error }
            return false
        }
    }

    /// Counts the partitions that the coming days lack.
    package static var missing: PostgresQuery {
        """
        SELECT count(*) FROM entitlement_sync.partitioned_tables() AS t
         CROSS JOIN LATERAL entitlement_sync.days_to_partition(t.name, make_interval(days => \(daysAhead))) AS d
        """
    }
}
