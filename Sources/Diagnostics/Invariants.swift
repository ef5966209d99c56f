package import Logging
package import Postgres
package import Queue

/// What must hold in the records, as a count that has to be zero.
struct Invariant: Sendable {
    var name: String
    var fine: String
    var wrong: String
    var fix: String
    /// Counts what breaks it, among the newest decisions and jobs; `nil`: among all.
    var broken: @Sendable (_ newest: Int64?) -> PostgresQuery

    static let all: [Invariant] = [
        Invariant(
            name: "one_owner",
            fine: "every identifier leads to one living purchase",
            wrong: "identifiers lead nowhere",
            fix: "Report this; reconcile the users concerned."
        ) { newest in
            """
            SELECT count(*) FROM (SELECT DISTINCT d.user_key
                      FROM (SELECT x.user_key FROM entitlement_sync.decision AS x ORDER BY x.id DESC LIMIT \(newest)) AS d) AS w
             CROSS JOIN LATERAL (SELECT p.id FROM entitlement_sync.purchase AS p
                                  WHERE p.owner_key = w.user_key AND p.merged_into IS NOT NULL OFFSET 0) AS gone
              JOIN entitlement_sync.purchase_identifier AS i ON i.purchase_id = gone.id
            """
        },
        Invariant(
            name: "ineligible_subscribers",
            fine: "no subscriber is banned or being deleted",
            wrong: "subscribers are banned or being deleted; nothing changes them silently",
            fix: "Decide for each whether the status or the type is right, and set it in the host."
        ) { newest in
            """
            SELECT count(*) FROM entitlement_sync_host.read_users(ARRAY(
                       SELECT s.user_id FROM (SELECT DISTINCT d.user_key
                      FROM (SELECT x.user_key FROM entitlement_sync.decision AS x ORDER BY x.id DESC LIMIT \(newest)) AS d) AS w
                         JOIN entitlement_sync.user_sync AS s ON s.user_key = w.user_key)) AS u
             WHERE u.type = 'subscriber' AND NOT entitlement_sync.is_eligible(u.status)
            """
        },
        Invariant(
            name: "access_denied",
            fine: "no user whose purchase or grant gives access is free",
            wrong: "eligible users are free although the ledger holds a purchase or grant that gives access",
            fix: "Reconcile the users concerned: entitlement-sync reconcile USER..."
        ) { newest in
            """
            WITH entitled AS MATERIALIZED (
                SELECT s.user_id
                  FROM (SELECT DISTINCT d.user_key
                          FROM (SELECT x.user_key, x.observed FROM entitlement_sync.decision AS x
                                 ORDER BY x.id DESC LIMIT \(newest)) AS d WHERE NOT d.observed) AS w
                  JOIN entitlement_sync.user_sync AS s ON s.user_key = w.user_key
                 WHERE EXISTS (SELECT 1 FROM entitlement_sync.purchase AS p
                                WHERE p.owner_key = w.user_key AND p.merged_into IS NULL
                                  AND coalesce(p.gives_access, p.status = 'owned')
                                  AND p.environment = 'production' AND coalesce(p.period_ends_at > now(), true)
                                  AND p.observed_at >= coalesce(s.full_read_at, p.observed_at)
                                  AND entitlement_sync.means_access(p.entitlements)
                                  -- Nothing is decided while a store does not know what has to exist.
                                  AND NOT EXISTS (SELECT 1 FROM entitlement_sync.store_absence AS a
                                                   WHERE a.user_key = w.user_key AND a.unknown))
                    OR EXISTS (SELECT 1 FROM entitlement_sync."grant" AS g
                                WHERE g.user_key = w.user_key AND g.revoked_at IS NULL AND g.until > now())
            )
            SELECT count(*)
              FROM entitlement_sync_host.read_users(ARRAY(SELECT e.user_id FROM entitled AS e)) AS u
             WHERE u.type = 'free' AND entitlement_sync.is_eligible(u.status)
            """
        },
        Invariant(
            name: "demoted_by_word",
            fine: "no user was demoted without a store's word, two absences or a transfer",
            wrong: "demotions rest on neither a store's word nor two absences nor a transfer",
            fix: "Report this; reconcile the users concerned."
        ) { newest in
            """
            SELECT count(*)
              FROM (SELECT x.outcome, x.rule, x.type_before, x.type_after, x.user_key FROM entitlement_sync.decision AS x
                     ORDER BY x.id DESC LIMIT \(newest)) AS d
             WHERE d.type_before = 'subscriber' AND d.type_after = 'free'
               AND (d.outcome <> 'demoted' OR d.rule NOT IN ('store_ended', 'absence_confirmed', 'moved_away')
                    OR d.rule = 'moved_away'
                       AND NOT EXISTS (SELECT 1 FROM entitlement_sync.transfer AS t
                                        WHERE t.from_key = d.user_key AND t.step = 'done')
                       -- RevenueCat's naming of another owner leaves a ticket, or the other owner's observation.
                       AND NOT EXISTS (SELECT 1 FROM entitlement_sync.ticket AS t
                                        WHERE t.kind = 'external_transfer' AND d.user_key IN (t.owner_key, t.claimant_key))
                       AND NOT EXISTS (SELECT 1 FROM entitlement_sync.observation AS m
                                         JOIN entitlement_sync.observation AS o ON o.purchase_id = m.purchase_id
                                        WHERE m.user_key = d.user_key AND o.user_key <> d.user_key
                                          AND o.attribution = 'owner_followed_revenuecat'))
            """
        },
        Invariant(
            name: "frozen_subscribers",
            fine: "no subscriber's assets were left frozen for the lapse",
            wrong: "subscribers whose last verdict gave access have assets that are still frozen for the lapse",
            fix: "Reconcile the users concerned; see refused_assets when it stays."
        ) { newest in
            """
            WITH granted AS MATERIALIZED (
                SELECT s.user_id
                  FROM (SELECT DISTINCT d.user_key
                      FROM (SELECT x.user_key FROM entitlement_sync.decision AS x ORDER BY x.id DESC LIMIT \(newest)) AS d) AS w
                  JOIN entitlement_sync.user_sync AS s ON s.user_key = w.user_key AND s.confirmed = 0
                 CROSS JOIN LATERAL (
                       SELECT d.outcome, d.observed, d.at FROM entitlement_sync.decision AS d
                        WHERE d.user_key = w.user_key ORDER BY d.id DESC LIMIT 1) AS last
                 WHERE NOT last.observed AND last.outcome IN ('restored', 'promoted')
                   AND NOT EXISTS (SELECT 1 FROM entitlement_sync.asset_run AS r WHERE r.user_key = w.user_key)
                   -- Nothing is decided while a store does not know what has to exist.
                   AND NOT EXISTS (SELECT 1 FROM entitlement_sync.store_absence AS a
                                    WHERE a.user_key = w.user_key AND a.unknown)
            )
            SELECT count(*)
              FROM entitlement_sync_host.count_assets(ARRAY(
                       SELECT u.id
                         FROM entitlement_sync_host.read_users(ARRAY(SELECT g.user_id FROM granted AS g)) AS u
                        WHERE u.type = 'subscriber')) AS a
             WHERE a.lapsed > 0
            """
        },
        Invariant(
            name: "one_decision",
            fine: "every done job has its decision",
            wrong: "done jobs have no decision",
            fix: "Report this; reconcile the users concerned."
        ) { newest in
            """
            SELECT count(*)
              FROM (SELECT x.id, x.state, x.confirms FROM entitlement_sync.job_history AS x ORDER BY x.id DESC LIMIT \(newest)) AS h
             WHERE h.state = 'done' AND h.confirms IS NULL
               AND NOT EXISTS (SELECT 1 FROM entitlement_sync.decision AS d WHERE d.job_id = h.id)
            """
        },
        Invariant(
            name: "one_open_ticket",
            fine: "at most one open ticket a claimant and purchase",
            wrong: "claimants have two open tickets for one purchase",
            fix: "The unique index ticket_open is missing: restore it."
        ) { _ in
            """
            SELECT count(*) FROM (
                SELECT 1 FROM entitlement_sync.ticket AS t
                 WHERE entitlement_sync.is_open(t.state)
                 GROUP BY t.claimant_key, coalesce(t.purchase_id, 0) HAVING count(*) > 1) AS twice
            """
        },
        Invariant(
            name: "approved_transfers",
            fine: "every transfer was approved by enough people on its evidence",
            wrong: "transfers were done that not enough people had approved on their evidence",
            fix: "Read each in the tables transfer and ticket_approval; report this."
        ) { newest in
            """
            SELECT count(*)
              FROM (SELECT x.id, x.ticket_id, x.evidence_id FROM entitlement_sync.transfer AS x
                     WHERE x.step IN ('calling', 'confirmed', 'done') ORDER BY x.id DESC LIMIT \(newest)) AS t
             WHERE (SELECT count(DISTINCT a.operator_id)
                      FROM entitlement_sync.ticket_approval AS a
                      JOIN entitlement_sync.ticket_evidence AS e ON e.id = t.evidence_id AND e.hash = a.hash
                     WHERE a.ticket_id = t.ticket_id AND a.ended_by = 'used')
                   < coalesce((SELECT e.approvals FROM entitlement_sync.ticket_evidence AS e
                                WHERE e.id = t.evidence_id), 1)
            """
        },
        Invariant(
            name: "none_lost",
            fine: "every request that was remembered has its job",
            wrong: "requests have no job, queued or ended",
            fix: "Report this; ask for the users' restores again."
        ) { newest in
            """
            SELECT count(*)
              FROM (SELECT x.user_key, x.job_id FROM entitlement_sync.idempotency AS x
                     WHERE x.created_at > \(rawSQL: newest == nil ? "'-infinity'" : "now() - interval '1 hour'")
                     LIMIT \(newest)) AS i
             WHERE NOT EXISTS (SELECT 1 FROM entitlement_sync.job_history AS h WHERE h.id = i.job_id)
               AND NOT EXISTS (SELECT 1 FROM entitlement_sync.queue AS q
                                WHERE q.user_key = i.user_key AND i.job_id IN (q.restore_id, q.restore_next))
            """
        },
    ]
}

/// Checks the invariants on what happened lately, one worker at a time.
package struct InvariantMonitor: Sendable {
    let pool: PostgresPool
    /// How much is checked, and how often.
    static let newest: Int64 = 10_000
    static let interval = Duration.seconds(600)

    package init(pool: PostgresPool) { self.pool = pool }

    /// Checks the invariants and drift, where that is due.
    package func run() async throws {
        for _ in 0...Invariant.all.count {
            guard try await step() else { return }
        }
    }

    /// Checks one invariant, or drift, where that is due; `false`: nothing was, or another process took it.
    package func step() async throws -> Bool {
        let rows = try await pool.query(
            "SELECT c.name, extract(epoch FROM now() - c.checked_at)::double precision FROM entitlement_sync.invariant_check AS c"
        )
        let ages = Dictionary(try rows.map { try $0.decode(String.self, Double.self) }) { $1 }
        func age(_ name: String) -> Double { ages[name] ?? .infinity }
        // The check that was made longest ago comes first: however slow they are, each has its turn.
        guard let invariant = Invariant.all.max(by: { age($0.name) < age($1.name) }),
            age(invariant.name) >= age(Self.checked)
        else {
            return try await checkDrift()
        }
        guard try await isDue(invariant.name) else { return false }
        let broken = try await pool.query(invariant.broken(Self.newest)).first?.decode(Int64.self, at: 0) ?? 0
        try await pool.query(
            "UPDATE entitlement_sync.invariant_check AS c SET broken = \(broken) WHERE c.name = \(invariant.name)"
        )
        return true
    }

    /// Takes a check upon itself, where it is due.
    func isDue(_ name: String) async throws -> Bool {
        let taken = try await pool.query(
            """
            INSERT INTO entitlement_sync.invariant_check AS c (name) VALUES (\(name))
            ON CONFLICT (name) DO UPDATE SET checked_at = now(), broken = NULL
             WHERE c.checked_at < now() - \(Self.interval.microseconds) * interval '1 microsecond'
            RETURNING 1
            """
        )
        return !taken.isEmpty
    }

    /// How often each invariant was found broken at its last check.
    package func found() async throws -> [(name: String, broken: Int64)] {
        let names = Invariant.all.map(\.name)
        return try await pool.query(
            """
            SELECT c.name, c.broken FROM entitlement_sync.invariant_check AS c
             WHERE c.name = ANY (\(names)) AND c.broken IS NOT NULL
            """
        ).map { try $0.decode(String.self, Int64.self) }
    }
}

extension InvariantMonitor {
    /// Checks them from time to time, one at a step, which leaves the machine to other work between them.
    package func service(logger: Logger) -> PeriodicService {
        PeriodicService("invariant monitor", .upkeep, every: .seconds(5), after: .seconds(60), logger: logger) {
            try await step() ? .idle : .after(.seconds(60))
        }
    }
}
