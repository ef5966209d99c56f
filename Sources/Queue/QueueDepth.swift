package import Entitlements
package import Logging
package import Postgres

/// How many jobs of a lane are in a state, and how old the oldest is.
package struct QueueDepth: Sendable {
    package enum State: String, Sendable, CaseIterable { case due, delayed, running }

    package var lane: JobLane
    package var state: State
    package var jobs: Int64
    /// Seconds since the request of the oldest.
    package var oldestSeconds: Double
}

extension JobQueue {
    /// Counts what waits and runs, by lane; reads the whole queue, so not more often than a few times a minute.
    package func depths() async throws(PostgresError) -> [QueueDepth] {
        let rows = try await pool.query(
            """
            SELECT q.lane, s.state, count(*),
                   coalesce(extract(epoch FROM now() - min(entitlement_sync.id_time(
                       coalesce(least(q.restore_id, q.reconcile_id), q.restore_id, q.reconcile_id)))), 0)::double precision
              FROM entitlement_sync.queue AS q
             CROSS JOIN LATERAL (SELECT CASE WHEN q.owner IS NOT NULL THEN 'running' WHEN q.due <= now() THEN 'due'
                                             ELSE 'delayed' END AS state) AS s
             GROUP BY q.lane, s.state
            """
        )
        var depths: [QueueDepth] = []
        for row in rows {
            let (lane, state, jobs, oldest) = try row.decode(Int16.self, String.self, Int64.self, Double.self)
            guard let lane = JobLane(rawValue: lane), let state = QueueDepth.State(rawValue: state) else { continue }
            depths.append(QueueDepth(lane: lane, state: state, jobs: jobs, oldestSeconds: max(oldest, 0)))
        }
        return depths
    }

    /// Moves a queue that is full of dead row versions to new files.
    package func compactor(logger: Logger) -> PeriodicService {
        PeriodicService("queue compactor", .upkeep, every: .seconds(5), logger: logger) {
            if try await compact() { logger.info("the queue was full of dead rows and has been moved") }
            return .idle
        }
    }

    /// Moves the queue where that is worth it.
    ///
    /// Returns whether it did; false where it is small, where many jobs wait, where a transaction holds it, and in the
    /// minutes after a failed try.
    package func compact() async throws -> Bool {
        try await pool.query("SELECT entitlement_sync.compact_queue()").first?.decode(Bool.self, at: 0) ?? false
    }
}
