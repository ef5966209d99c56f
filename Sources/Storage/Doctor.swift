package import Postgres

/// One thing that `doctor` looked at.
package struct Check: Sendable, Codable {
    package var name: String
    package var ok: Bool
    package var detail: String
    /// What to do about it; empty where all is well.
    package var fix: String

    package init(name: String, ok: Bool, detail: String, fix: String) {
        self.name = name
        self.ok = ok
        self.detail = detail
        self.fix = ok ? "" : fix
    }
}

/// Looks for what is wrong in the records, and says how to mend it.
package struct Doctor: Sendable {
    private let pool: PostgresPool

    package init(pool: PostgresPool) { self.pool = pool }

    /// A count that has to be zero.
    private struct Count {
        var name: String
        var query: PostgresQuery
        var fine: String
        var wrong: String
        var fix: String
    }

    /// Runs every check; one that can't run is a finding itself.
    package func checks() async -> [Check] {
        var checks: [Check] = []
        for count in Self.counts {
            do {
                let found = try await pool.query(count.query).first?.decode(Int64.self, at: 0) ?? 0
                checks.append(
                    Check(
                        name: count.name,
                        ok: found == 0,
                        detail: found == 0 ? count.fine : "\(found) \(count.wrong)",
                        fix: count.fix
                    )
                )
            } catch {
                checks.append(
                    Check(
                        name: count.name,
                        ok: false,
                        detail: "could not be checked: \(error)",
                        fix: "Mend what the detail says."
                    )
                )
            }
        }
        do {
            checks += try await alarms()
            checks += try await stores()
        } catch {
            checks.append(
                Check(
                    name: "alarms",
                    ok: false,
                    detail: "could not be read: \(error)",
                    fix: "Mend what the detail says."
                )
            )
        }
        return checks
    }

    private func alarms() async throws -> [Check] {
        let rows = try await pool.query(
            """
            SELECT a.name, a.detail, a.count FROM entitlement_sync.alarm AS a
             WHERE a.last_at > now() - interval '24 hours' ORDER BY a.name
            """
        )
        guard !rows.isEmpty else { return [Check(name: "alarms", ok: true, detail: "none in 24 hours", fix: "")] }
        return try rows.map { row in
            let (name, detail, count) = try row.decode(String.self, String.self, Int64.self)
            return Check(name: "alarm." + name, ok: false, detail: "\(count) times in this stretch", fix: detail)
        }
    }

    private func stores() async throws -> [Check] {
        let rows = try await pool.query(
            """
            SELECT h.store, coalesce(h.skew_seconds, 0)::double precision, coalesce(h.last_error, ''),
                   coalesce(h.last_error_at > coalesce(h.last_answer_at, '-infinity'), false)
              FROM entitlement_sync.store_health AS h ORDER BY h.store
            """
        )
        return try rows.flatMap { row -> [Check] in
            let (store, skew, error, failing) = try row.decode(String.self, Double.self, String.self, Bool.self)
            return [
                Check(
                    name: "store.\(store)",
                    ok: !failing,
                    detail: failing ? "the last requests failed: \(error)" : "answers",
                    fix: "Look at the store's status page and at this machine's network; nobody is demoted meanwhile."
                ),
                Check(
                    name: "clock.\(store)",
                    ok: abs(skew) < 30,
                    detail: "this machine's clock differs from the store's Date header by \(Int(skew)) s",
                    fix: "Let a time service (chrony, systemd-timesyncd) set this machine's clock."
                ),
            ]
        }
    }

    private static let counts: [Count] = [
        Count(
            name: "roles",
            query: """
                SELECT count(*) FROM unnest('{worker,api,support,auditor,client}'::text[]) AS r(name)
                 WHERE NOT EXISTS (SELECT 1 FROM pg_roles AS p WHERE p.rolname = 'entitlement_sync_' || r.name)
                """,
            fine: "all five roles exist",
            wrong: "roles are missing",
            fix:
                "Run entitlement-sync migrate as a user with CREATEROLE on a fresh schema, or create the roles by hand."
        ),
        Count(
            name: "leases",
            query: """
                SELECT count(*) FROM entitlement_sync.queue AS q
                 WHERE q.owner IS NOT NULL
                   AND NOT EXISTS (SELECT 1 FROM entitlement_sync.worker AS w
                                    WHERE w.epoch = q.owner AND w.expires_at > now() - interval '1 minute')
                """,
            fine: "no job is held by a dead worker",
            wrong: "jobs are held by workers that are gone",
            fix: "Start a worker: it frees them within its lease."
        ),
        Count(
            name: "dead_jobs",
            query: "SELECT count(*) FROM entitlement_sync.job_history AS h WHERE h.state = 'dead'",
            fine: "no dead jobs",
            wrong: "jobs are dead",
            fix: "See entitlement-sync queue dead, mend the cause, then entitlement-sync queue retry ID."
        ),
        Count(
            name: "quarantine",
            query: "SELECT count(*) FROM entitlement_sync.queue AS q WHERE q.lane = 9",
            fine: "no job runs alone",
            wrong: "jobs run alone because their workers kept dying",
            fix: "Look for crashes in the workers' logs around these jobs."
        ),
        Count(
            name: "law.one_owner",
            query: """
                SELECT count(*) FROM entitlement_sync.purchase_identifier AS i
                  LEFT JOIN entitlement_sync.purchase AS p ON p.id = i.purchase_id AND p.merged_into IS NULL
                 WHERE p.id IS NULL
                """,
            fine: "every identifier leads to one living purchase",
            wrong: "identifiers lead nowhere",
            fix: "Report this; reconcile the users concerned."
        ),
        Count(
            name: "law.ineligible_subscribers",
            query: """
                SELECT count(*) FROM entitlement_sync.user_sync AS s
                 CROSS JOIN LATERAL entitlement_sync_host.read_users(ARRAY[s.user_id]) AS u
                 WHERE u.type = 'subscriber' AND u.status NOT IN ('active', 'onboarding')
                """,
            fine: "no subscriber is banned or being deleted",
            wrong: "subscribers are banned or being deleted; nothing changes them silently",
            fix: "Decide for each whether the status or the type is right, and set it in the host."
        ),
        Count(
            name: "law.one_decision",
            query: """
                SELECT count(*) FROM entitlement_sync.job_history AS h
                 WHERE h.state = 'done'
                   AND NOT EXISTS (SELECT 1 FROM entitlement_sync.decision AS d WHERE d.job_id = h.id)
                """,
            fine: "every done job has its decision",
            wrong: "done jobs have no decision",
            fix: "Report this; reconcile the users concerned."
        ),
        Count(
            name: "law.one_open_ticket",
            query: """
                SELECT count(*) FROM (
                    SELECT 1 FROM entitlement_sync.ticket AS t
                     WHERE t.state NOT IN ('transferred', 'refused', 'expired', 'auto_resolved', 'duplicate')
                     GROUP BY t.claimant_key, coalesce(t.purchase_id, 0) HAVING count(*) > 1) AS twice
                """,
            fine: "at most one open ticket a claimant and purchase",
            wrong: "claimants have two open tickets for one purchase",
            fix: "The unique index ticket_open is missing: restore it."
        ),
        Count(
            name: "unexplained_subscribers",
            query: """
                SELECT count(*) FROM (
                    SELECT DISTINCT ON (d.user_key) d.rule FROM entitlement_sync.decision AS d
                     ORDER BY d.user_key, d.id DESC) AS last
                 WHERE last.rule = 'unexplained'
                """,
            fine: "no subscriber is without an explanation",
            wrong: "subscribers have no purchase or grant that anybody ever saw",
            fix: "Give each a grant (entitlement-sync adopt --file CSV), or set their type in the host."
        ),
        Count(
            name: "refused_assets",
            query: """
                SELECT count(*) FROM entitlement_sync.asset_batch AS b
                 WHERE b.failed IS NOT NULL AND b.at > now() - interval '7 days'
                """,
            fine: "no asset was refused by the host's database",
            wrong: "times an asset was refused by the host's own triggers or constraints",
            fix: "Mend the trigger or constraint (asset_batch.failed holds the SQLSTATE), then reconcile the user."
        ),
        Count(
            name: "paused",
            query: "SELECT count(*) FROM entitlement_sync.control AS c WHERE c.paused",
            fine: "nothing is paused",
            wrong: "switches are paused",
            fix: "entitlement-sync resume demotions|transfers|all, once the reason is gone."
        ),
    ]
}
