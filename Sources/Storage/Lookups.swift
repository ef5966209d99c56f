package import Entitlements
import FoundationEssentials
import Jobs
package import Postgres

/// Small reads outside the apply transaction.
package struct UserLookups: Sendable {
    let pool: PostgresPool

    package init(pool: PostgresPool) { self.pool = pool }

    /// Which of these ids are users of the host, and how it spells them.
    package func spellings(_ ids: [String]) async throws -> [ExactText: String] {
        try await pool.withConnection { connection in try await LedgerReads.spellings(ids, on: connection) }
    }

    /// What our records hold of a user's purchases in the stores that can be asked directly.
    package func purchases(of userKey: Int64) async throws -> [KnownPurchase] {
        let rows = try await pool.query(
            """
            SELECT p.store, p.environment, p.kind, p.status, p.gives_access, p.lookup_id, p.period_ends_at, p.stated_at,
                   p.entitlements,
                   ARRAY(SELECT i.value FROM entitlement_sync.purchase_identifier AS i
                          WHERE i.purchase_id = p.id AND i.store = p.store ORDER BY i.value),
                   ARRAY(SELECT i.kind FROM entitlement_sync.purchase_identifier AS i
                          WHERE i.purchase_id = p.id AND i.store = p.store ORDER BY i.value)
              FROM entitlement_sync.purchase AS p
             WHERE p.owner_key = \(userKey) AND p.merged_into IS NULL
               AND p.store IN ('app_store', 'google_play', 'onside')
               -- Gems that RevenueCat listed lead nowhere.
               AND (p.lookup_id IS NOT NULL OR cardinality(p.entitlements) > 0)
             -- What ended long ago is not asked about, and must not crowd out what is.
             ORDER BY p.gives_access IS FALSE AND p.status = ANY (\(KnownPurchase.endedWords))
                      AND p.period_ends_at < now() - interval '61 days',
                      coalesce(p.gives_access, p.status = 'owned') DESC, p.id DESC
             LIMIT \(Int64(KnownPurchase.most + 1))
            """
        )
        return try rows.map(KnownPurchase.init)
    }

    /// A purchase that ends after the duration of its product.
    package struct Pass: Sendable {
        /// The product's key in the catalogue.
        package var key: String
        /// The buyer it adds up for: one buyer's passes do not lengthen another's.
        package var account: String
        package var boughtAt: Instant

        package init(key: String, account: String, boughtAt: Instant) {
            self.key = key
            self.account = account
            self.boughtAt = boughtAt
        }
    }

    /// Computes where passes end: overlapping ones add up, by entitlement.
    ///
    /// - Parameter passes: of one customer of a store.
    /// - Returns: by place the end; `nil` where the product has no row or no duration.
    /// - Throws: `PostgresError`.
    package func ends(of passes: [Pass]) async throws -> [Instant?] {
        guard !passes.isEmpty else { return [] }
        let rows = try await pool.query(
            """
            WITH product AS MATERIALIZED (
                SELECT CASE WHEN p.store = 'revenuecat' THEN p.product_id
                            ELSE concat_ws(':', CASE p.store WHEN 'play_store' THEN 'google_play' ELSE p.store END,
                                           p.product_id, p.base_plan_id) END AS key,
                       min(p.entitlement) AS entitlement, max(p.duration) AS duration
                  FROM entitlement_sync.product AS p WHERE p.duration > interval '0' GROUP BY 1
            ), pass AS (
                SELECT n.place, p.entitlement || ' ' || n.account AS kind, n.bought, p.duration
                  FROM unnest(\(passes.map(\.key)), \(passes.map(\.account)), \(passes.map(\.boughtAt.timestamp)))
                       WITH ORDINALITY AS n(key, account, bought, place)
                  JOIN product AS p ON p.key = n.key
            ), stacked AS (
                SELECT s.ends, row_number() OVER () AS place
                  FROM entitlement_sync.stacked_ends(
                           (SELECT array_agg(q.kind ORDER BY q.place) FROM pass AS q),
                           (SELECT array_agg(q.bought ORDER BY q.place) FROM pass AS q),
                           (SELECT array_agg(q.duration ORDER BY q.place) FROM pass AS q)) AS s(ends)
            )
            SELECT q.place, s.ends
              FROM (SELECT q.place, row_number() OVER (ORDER BY q.place) AS nth FROM pass AS q) AS q
              JOIN stacked AS s ON s.place = q.nth
            """
        )
        var ends = [Instant?](repeating: nil, count: passes.count)
        for row in rows {
            let (place, end) = try row.decode(Int64.self, PostgresTimestamp.self)
            ends[Int(place) - 1] = Instant(end)
        }
        return ends
    }

    /// Which entitlements mean access now.
    package func catalog() async throws -> ProductCatalog {
        try await pool.withConnection { connection in try await LedgerReads.catalog(on: connection) }
    }
}

/// Housekeeping that any worker does about once an hour.
package struct Housekeeping: Sendable {
    /// How long events are known again, in days: longer than anybody sends one again.
    private static let eventDays = 400

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

    /// A missing partition within this many coming days raises an alarm.
    static let daysAhead: Int32 = 14

    /// Makes the coming days' partitions and drops old ones.
    ///
    /// The tables are locked for some milliseconds, and not at all while an open transaction holds them. One process
    /// tries at a time; after a failed try none does for five minutes.
    ///
    /// - Returns: whether it was done; false where it has to be tried again later.
    /// - Throws: `PostgresError`.
    package func keepPartitions() async throws -> Bool {
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
        for table in try await partitionedTables() {
            if try await !maintainPartitions(of: table) { isDone = false }
        }
        let missing = try await pool.query(Self.missingDays).first?.decode(Int64.self, at: 0) ?? 0
        if missing > 0 {
            try await EffectWrites.note(
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

    private func partitionedTables() async throws -> [String] {
        try await pool.query("SELECT t.name FROM entitlement_sync.partitioned_tables() AS t").map {
            try $0.decode(String.self)
        }
    }

    /// - Returns: false while an open transaction holds the table.
    private func maintainPartitions(of table: String) async throws -> Bool {
        do {
            try await pool.query(
                """
                SELECT entitlement_sync.maintain_partitions(keep => \(Int32(clamping: retention.historyDays)),
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
    static var missingDays: PostgresQuery {
        """
        SELECT count(*) FROM entitlement_sync.partitioned_tables() AS t
         CROSS JOIN LATERAL entitlement_sync.missing_partitions(t.name, make_interval(days => \(daysAhead))) AS d
        """
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
        while try await inbox.forget(bodiesAfter: retention.eventDays, eventsAfter: Self.eventDays) {}
    }

    /// Plans looks at known users who have none, a stretch at a time; and finds out whose account's status decides against
    /// them no more.
    ///
    /// - Parameter background: within which time those are looked at of whom nothing is expected; `nil`: not at all.
    /// - Returns: how many got a look.
    /// - Throws: `PostgresError`.
    package func planLooks(background: Duration?) async throws -> Int64 {
        let planned = try await pool.query(
            "SELECT entitlement_sync.plan_checks(\(Self.usersAtOnce), \(Self.looksAtOnce), \(background?.components.seconds))"
        )
        return try planned.first?.decode(Int64.self, at: 0) ?? 0
    }

    /// Users of a turn: with one every five seconds, ten million within half an hour.
    private static let usersAtOnce: Int32 = 30_000
    /// Checks planned in a turn at most, whose users are locked together.
    private static let looksAtOnce: Int32 = 5000

    /// Queues reconciles of users whose stores will not say by themselves that something changed.
    ///
    /// - Returns: how many.
    package func lookAgain() async throws -> Int64 {
        // A look that comes to nothing is taken again; the verdict of one that does plans the next, or none.
        let due = try await pool.query(
            """
            WITH due AS MATERIALIZED (
                SELECT u.user_key FROM entitlement_sync.user_sync AS u
                 WHERE u.next_check_at <= now()
                   -- Whoever has been queued and not read yet is enough; and a run has those that were due when it was asked for.
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
            // A host's open transaction speaks of them: it may queue them itself, or not.
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

    /// Counts the host's subscribers for the demotion brake, where nobody did within five minutes.
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

    /// Announces ended jobs; a hint, sent after the commit.
    package func announce(_ ended: [ApplyReport.Ended]) async throws {
        guard !ended.isEmpty else { return }
        let payloads = ended.map { job in
            let outcome = job.outcome.map { "\"\($0.rawValue)\"" } ?? "null"
            return "{\"job\":\"\(job.id.uuidString.lowercased())\",\"outcome\":\(outcome)}"
        }
        try await pool.query(
            "SELECT pg_notify('entitlement_sync_outcome', o.payload) FROM unnest(\(payloads)) AS o(payload)"
        )
    }
}
