import FoundationEssentials
package import Postgres
import Queue
import Reconciliation
import StoreEvents

/// What any worker does from time to time; `Worker.housekeepingDuty` says how often.
package struct Housekeeping: Sendable {
    /// Days for which an event's id is kept, so that a repeated one is recognized: longer than any store repeats.
    private static let eventIDDays = 400

    private let pool: PostgresPool
    private let retention: Retention

    /// How long what was only needed for a while is kept, in days.
    package struct Retention: Sendable {
        /// The words of stores' events.
        package var eventDays: Int
        /// Ended jobs.
        package var historyDays: Int

        package init(eventDays: Int = 30, historyDays: Int = 90) {
            self.eventDays = eventDays
            self.historyDays = historyDays
        }
    }

    package init(pool: PostgresPool, retention: Retention = Retention()) {
        self.pool = pool
        self.retention = retention
    }

    /// Forgets what was only needed for a while.
    package func run() async throws {
        try await pool.query(
            "DELETE FROM entitlement_sync.idempotency AS i WHERE i.created_at < now() - interval '7 days'"
        )
        try await BrakeStore.forget(in: pool)
        try await pool.query("SELECT entitlement_sync.forget_requests()")
        try await pool.query("SELECT entitlement_sync.forget_sign_ins()")
        try await pool.query("SELECT entitlement_sync.forget_questions()")
        try await pool.query("SELECT entitlement_sync.forget_accounts()")
        try await pool.query("SELECT entitlement_sync.forget_runs(\(Int32(clamping: retention.historyDays)))")
        let inbox = Inbox(pool: pool)
        while try await inbox.forget(bodiesAfter: retention.eventDays, eventsAfter: Self.eventIDDays) {}
    }

    /// Plans checks of known users who have none, a stretch at a time; and of users whose account status no longer excludes them.
    ///
    /// - Parameter background: the time within which users without an expected change are checked; `nil`: not at all.
    /// - Returns: how many checks were planned.
    /// - Throws: `PostgresError`.
    package func planChecks(background: Duration?) async throws -> Int64 {
        let planned = try await pool.query(
            "SELECT entitlement_sync.plan_checks(\(Self.usersAtOnce), \(Self.checksAtOnce), \(background?.components.seconds))"
        )
        return try planned.first?.decode(Int64.self, at: 0) ?? 0
    }

    /// Users of a turn: with one every five seconds, ten million within half an hour.
    private static let usersAtOnce: Int32 = 30_000
    /// Checks planned in a turn at most, whose users are locked together.
    private static let checksAtOnce: Int32 = 5000

    /// Queues reconciles of users whose stores will not say by themselves that something changed.
    ///
    /// - Returns: how many.
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

    /// Moves a queue that is full of dead rows to new files.
    ///
    /// - Returns: whether it did; false where it is small, where many jobs wait, where a transaction holds it, and in the
    ///   minutes after a failed try.
    package func compactQueue() async throws -> Bool {
        try await pool.query("SELECT entitlement_sync.compact_queue()").first?.decode(Bool.self, at: 0) ?? false
    }

    /// Counts the host's subscribers for the demotion brake, unless a worker did within five minutes.
    ///
    /// Outside of every other transaction: on a large host it takes a while.
    package func countSubscribers() async throws {
        // Claimed first, so that many workers do not count together.
        let due = try await pool.query(
            """
            UPDATE entitlement_sync.brake AS b SET counted_at = now()
             WHERE b.counted_at IS NULL OR b.counted_at < now() - interval '5 minutes'
            """
        )
        guard due.affected > 0 else { return }
        let now = try await pool.query("SELECT entitlement_sync_host.count_subscribers()").first
        let used = try await pool.query(BrakeStore.spent).first
        let subscribers = try (now?.decode(Int64.self, at: 0) ?? 0) + (used?.decode(Int64.self, at: 0) ?? 0)
        try await pool.withConnection { connection in try await BrakeStore.note(subscribers, on: connection) }
    }
}
