import Entitlements
package import Logging
package import Postgres
package import Queue
import ServiceLifecycle

/// Plans scheduled checks of users, and queues those that are due.
package struct CheckScheduler: Service {
    private let pool: PostgresPool
    private let background: Duration?
    private let dequeue: DequeueSignal
    private let logger: Logger

    /// `background`: within which users without an expected change are checked; `nil`: not at all.
    package init(pool: PostgresPool, background: Duration?, dequeue: DequeueSignal, logger: Logger) {
        self.pool = pool
        self.background = background
        self.dequeue = dequeue
        self.logger = logger
    }

    package func run() async {
        // Two, so that planning that fails or takes long delays no due check.
        async let due: Void = PeriodicService("check queuer", every: .seconds(5), logger: logger) {
            if try await queueDueChecks() > 0 { dequeue.raise() }
            return .idle
        }.run()
        await PeriodicService("check planner", .upkeep, every: .seconds(5), logger: logger) {
            _ = try await planChecks()
            return .idle
        }.run()
        await due
    }

    /// Plans checks of known users who have none, a stretch at a time; and of users who are eligible again.
    package func planChecks() async throws -> Int64 {
        try await pool.query(
            "SELECT entitlement_sync.plan_checks(\(Self.usersAtOnce), \(Self.checksAtOnce), \(background?.components.seconds))"
        ).first?.decode(Int64.self, at: 0) ?? 0
    }

    /// Users of a turn: with one every five seconds, ten million within half an hour while few of them lack a check.
    private static let usersAtOnce: Int32 = 30_000
    /// Checks planned in a turn at most, whose users are locked together.
    private static let checksAtOnce: Int32 = 5000

    /// Queues reconciles of users whose stores will not say by themselves that something changed.
    package func queueDueChecks() async throws -> Int64 {
        // A check that fails is repeated; the verdict of one that does not plans the next, or none.
        let due = try await pool.query(
            """
            WITH due AS MATERIALIZED (
                SELECT u.user_key FROM entitlement_sync.user_sync AS u
                 WHERE u.next_check_at <= now()
                   -- Users that are queued and not read yet are enough; and a run has those that were due when it was requested.
                   AND (SELECT count(*) FROM (SELECT 1 FROM entitlement_sync.queue AS q WHERE q.lane = 2 LIMIT 4000) AS w)
                       < 4000
                   AND u.next_check_at > coalesce((SELECT max(r.asked_at) FROM entitlement_sync.run AS r
                                                WHERE r.scope = 'due' AND NOT r.is_dry AND r.state = 'reading'
                                                  AND NOT r.is_paged), '-infinity')
                 ORDER BY u.next_check_at LIMIT 100 FOR NO KEY UPDATE SKIP LOCKED
            )
            UPDATE entitlement_sync.user_sync AS u SET next_check_at = now() + interval '6 hours'
              FROM due AS d WHERE u.user_key = d.user_key
            RETURNING u.user_key
            """
        ).map { try $0.decode(Int64.self, at: 0) }
        guard !due.isEmpty else { return 0 }
        let held = try await pool.withTransaction { connection in
            try await JobEnds.enqueueUnheld(due.sorted(), lane: .sweep, on: connection)
        }
        if !held.isEmpty {
            // A host's open transaction has locked them: it may queue them itself, or not.
            try await pool.query(
                """
                UPDATE entitlement_sync.user_sync AS u SET next_check_at = now() + interval '1 minute'
                 WHERE u.user_key = ANY (\(held.sorted())) AND u.next_check_at > now()
                """
            )
        }
        return Int64(due.count - held.count)
    }
}
