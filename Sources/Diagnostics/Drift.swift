import Postgres
import Queue

/// How far users' records and the ledger stood apart at the last check.
///
/// An invariant is broken by us; drift comes from outside: a host that sets types itself, evidence that was not
/// renewed, a product that was mapped later.
package struct Drift: Sendable {
    /// What is wrong with a user who has no job in the queue.
    package enum Kind: String, Sendable, CaseIterable {
        /// A subscriber without access in the ledger, and without a decision to wait.
        case subscriberWithoutAccess = "subscriber_without_access"
        /// Free, though a purchase or grant gives access.
        case freeWithAccess = "free_with_access"
        /// A subscriber whose every paid period ended more than two days ago, and no store was asked since.
        case evidenceOverdue = "evidence_overdue"
    }

    /// Eligible users of the check, at most as many as it takes up.
    package var checked: Int64 = 0
    package var users: [Kind: Int64] = [:]
    /// Age of the newest reading of the subscriber whose newest reading is oldest; 0 where none was read.
    package var oldestEvidenceSeconds: Int64 = 0
    /// Users whose next check is within a day; counted up to a few millions.
    package var checksNextDay: Int64 = 0
    /// How long half of a day's last thousand changes of type took, and 95 of 100: from the moment the read was queued
    /// (by a request, an event or a due check) to the commit; in seconds, `nil` where nothing changed.
    package var convergence: (half: Double, most: Double)?

    /// Users whose record and ledger disagree.
    package var astray: Int64 { users[.subscriberWithoutAccess, default: 0] + users[.freeWithAccess, default: 0] }

    /// The share of users whose record agrees with the ledger; `nil` where no user was checked.
    package var agreement: Double? { checked > 0 ? 1 - min(Double(astray) / Double(checked), 1) : nil }
}

extension InvariantMonitor {
    private static let prefix = "drift."
    /// The row that says when the last check was, and of how many users; without a number where it goes on or failed.
    static let checked = prefix + "checked"

    /// What the last check found; `nil` before the first, and after one that failed.
    package func drift() async throws -> Drift? {
        let rows = try await pool.query(
            """
            SELECT c.name, c.broken FROM entitlement_sync.invariant_check AS c
             WHERE starts_with(c.name, \(Self.prefix)) AND c.broken IS NOT NULL
            """
        )
        let found = Dictionary(try rows.map { try $0.decode(String.self, Int64.self) }) { $1 }
        guard let checked = found[Self.checked] else { return nil }
        var drift = Drift(checked: checked, oldestEvidenceSeconds: found[Self.prefix + "oldest_evidence_seconds"] ?? 0)
        drift.checksNextDay = found[Self.prefix + "checks_next_day"] ?? 0
        if let half = found[Self.prefix + "convergence_half_ms"], let most = found[Self.prefix + "convergence_most_ms"],
            most > 0
        {
            drift.convergence = (Double(half) / 1000, Double(most) / 1000)
        }
        for kind in Drift.Kind.allCases { drift.users[kind] = found[Self.prefix + kind.rawValue] ?? 0 }
        return drift
    }

    /// Checks a stretch of the known users, all of them where they are few; `false`: it was not due.
    ///
    /// The stretch begins anywhere, so that in time every user is checked.
    func checkDrift() async throws -> Bool {
        guard try await isDue(Self.checked), let row = try await pool.query(Self.stretch(of: Self.newest)).first
        else { return false }
        let (checked, without, free, overdue, oldest) = try row.decode(
            Int64.self,
            Int64.self,
            Int64.self,
            Int64.self,
            Int64.self
        )
        let due = try await pool.query(
            """
            SELECT count(*) FROM (SELECT 1 FROM entitlement_sync.user_sync AS u
                                   WHERE u.next_check_at < now() + interval '1 day' LIMIT 5000000) AS d
            """
        ).first?.decode(Int64.self, at: 0)
        let (half, most) =
            try await pool.query(Self.convergence).first?.decode(Int64.self, Int64.self) ?? (Int64(0), Int64(0))
        let found: [(String, Int64)] = [
            ("checks_next_day", due ?? 0), ("convergence_half_ms", half), ("convergence_most_ms", most),
            ("checked", checked), (Drift.Kind.subscriberWithoutAccess.rawValue, without),
            (Drift.Kind.freeWithAccess.rawValue, free), (Drift.Kind.evidenceOverdue.rawValue, overdue),
            ("oldest_evidence_seconds", oldest),
        ]
        try await pool.query(
            """
            INSERT INTO entitlement_sync.invariant_check AS c (name, broken)
            SELECT n.name, n.value FROM unnest(\(found.map { Self.prefix + $0.0 }), \(found.map(\.1))) AS n(name, value)
            ON CONFLICT (name) DO UPDATE SET broken = excluded.broken, checked_at = now()
            """
        )
        return true
    }

    private static let convergence: PostgresQuery = """
        SELECT coalesce(round(1000 * percentile_cont(0.5) WITHIN GROUP (ORDER BY c.seconds)), 0)::bigint,
               coalesce(round(1000 * percentile_cont(0.95) WITHIN GROUP (ORDER BY c.seconds)), 0)::bigint
          FROM (SELECT greatest(extract(epoch FROM d.at - entitlement_sync.id_time(d.job_id)), 0.001)::double precision AS seconds
                  FROM (SELECT x.at, x.job_id, x.type_before, x.type_after, x.observed, x.id FROM entitlement_sync.decision AS x
                         ORDER BY x.id DESC LIMIT 100000) AS d
                 WHERE d.type_before <> d.type_after AND d.at > now() - interval '1 day' AND d.job_id IS NOT NULL
                   AND NOT d.observed
                 ORDER BY d.id DESC LIMIT 1000) AS c
        """

    /// Every row is reached by key from the host's users, so that the check costs as much whatever the database's size.
    private static func stretch(of limit: Int64) -> PostgresQuery {
        """
        WITH stretch AS MATERIALIZED (
            SELECT s.user_id
              FROM entitlement_sync.user_sync AS s
             WHERE s.user_key >= (SELECT floor(random() * greatest(max(x.user_key) - \(limit), 0))::bigint
                                    FROM entitlement_sync.user_sync AS x)
               AND s.user_id IS NOT NULL
             ORDER BY s.user_key LIMIT \(limit)
        ), facts AS MATERIALIZED (
            SELECT u.type = 'subscriber' AS subscriber, s.read_at, ledger.some, ledger.running, ledger.fresh,
                   EXISTS (SELECT 1 FROM entitlement_sync."grant" AS g
                            WHERE g.user_key = s.user_key AND g.revoked_at IS NULL AND g.until > now()) AS granted,
                   NOT EXISTS (SELECT 1 FROM entitlement_sync.queue AS q WHERE q.user_key = s.user_key) AS settled,
                   -- Where it was only observed, nothing was to be written.
                   coalesce((SELECT d.observed OR d.outcome = 'deferred'
                                    OR d.outcome = 'already_subscriber'
                                       AND d.rule NOT IN ('store_access', 'grant_access', 'owner_followed_revenuecat')
                               FROM entitlement_sync.decision AS d
                              WHERE d.user_key = s.user_key ORDER BY d.id DESC LIMIT 1), false) AS waits,
                   coalesce((SELECT d.observed FROM entitlement_sync.decision AS d
                              WHERE d.user_key = s.user_key ORDER BY d.id DESC LIMIT 1), false) AS seen_only
              FROM entitlement_sync_host.read_users(ARRAY(SELECT t.user_id FROM stretch AS t)) AS u
             CROSS JOIN LATERAL (SELECT k.user_key, k.read_at, k.full_read_at FROM entitlement_sync.user_sync AS k
                                  WHERE k.user_id = u.id OFFSET 0) AS s
             CROSS JOIN LATERAL (
                   SELECT coalesce(bool_or(g.gives), false) AS some,
                          coalesce(bool_or(g.gives AND coalesce(p.period_ends_at > now(), true)
                              AND p.environment = 'production'
                              AND p.observed_at >= coalesce(s.full_read_at, p.observed_at)
                              AND entitlement_sync.means_access(p.entitlements)), false) AS running,
                          coalesce(bool_or(g.gives
                              AND (coalesce(p.period_ends_at > now() - interval '2 days', true)
                                   OR p.observed_at > p.period_ends_at)), false) AS fresh
                     FROM (SELECT o.* FROM entitlement_sync.purchase AS o
                            WHERE o.owner_key = s.user_key AND o.merged_into IS NULL
                           UNION ALL
                           SELECT l.* FROM entitlement_sync.account_lines(s.user_key) AS l) AS p
                    -- Of what was bought for good no store says so each time; gems carry nothing.
                    CROSS JOIN LATERAL (SELECT coalesce(p.gives_access, p.status = 'owned' AND p.entitlements <> '{}') AS gives) AS g) AS ledger
             WHERE entitlement_sync.is_eligible(u.status)
        )
        SELECT count(*),
               count(*) FILTER (WHERE f.subscriber AND f.settled AND NOT f.granted AND NOT f.some AND NOT f.waits),
               count(*) FILTER (WHERE NOT f.subscriber AND f.settled AND (f.granted OR f.running) AND NOT f.seen_only),
               count(*) FILTER (WHERE f.subscriber AND f.settled AND NOT f.granted AND f.some AND NOT f.fresh),
               coalesce(max(extract(epoch FROM now() - f.read_at)) FILTER (WHERE f.subscriber), 0)::bigint
          FROM facts AS f
        """
    }
}
