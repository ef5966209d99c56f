import Entitlements
package import Postgres

/// One thing that `doctor` checked.
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

/// Finds what is wrong in the records, and says how to mend it.
package struct Doctor: Sendable {
    let pool: PostgresPool
    let limits: DoctorLimits

    package init(pool: PostgresPool, limits: DoctorLimits = DoctorLimits()) {
        self.pool = pool
        self.limits = limits
    }

    /// A count that has to be zero.
    struct Count {
        var name: String
        var query: PostgresQuery
        var fine: String
        var wrong: String
        var fix: String
    }

    /// Runs every check; one that can't run is a finding itself.
    package func checks() async -> [Check] {
        var checks: [Check] = []
        for count in Self.counts + workCounts + Self.laws {
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
                checks.append(Self.unread(count.name, error))
            }
        }
        let looks: [(name: String, look: () async throws -> [Check])] = [
            ("privileges", privileges), ("users", users), ("unexplained_assets", unexplainedAssets),
            ("horizon", horizon), ("bloat", bloat),
            ("notifications", notifications),
            ("replication_slots", slots), ("alarms", alarms), ("stores", stores), ("budgets", budgets),
            ("unclaimed_purchases", unclaimed), ("desk_grants", deskGrants), ("sign_in", signIn),
            ("database_tls", databaseTLS), ("inbox", inbox),
            ("letter_case", letterCase), ("events", events),
            ("credentials", credentials), ("restore_behavior", restoreBehavior), ("outbox", outbox), ("runs", runs),
            ("shadow", shadow),
        ]
        // Each by itself: one that can't be taken must not hide what the others find.
        for (name, look) in looks {
            do {
                checks += try await look()
            } catch {
                checks.append(Self.unread(name, error))
            }
        }
        return checks
    }

    /// A check that could not be made.
    private static func unread(_ name: String, _ error: any Error) -> Check {
        let error = error as? PostgresError
        guard error?.sqlState != SQLState.insufficientPrivilege else {
            return Check(
                name: name,
                ok: false,
                detail: "could not be checked: this database user lacks a right (\(error?.message ?? ""))",
                fix:
                    "Run doctor as a user that was granted entitlement_sync_worker; if it was, run entitlement-sync migrate."
            )
        }
        let detail = error.map { "\($0.message)\($0.sqlState.map { " (SQLSTATE \($0))" } ?? "")" } ?? ""
        return Check(
            name: name,
            ok: false,
            detail: "could not be checked: \(detail.isEmpty ? "an unexpected error" : detail)",
            fix: "Mend what the detail says."
        )
    }

    /// Goes through every user of the host, page by page: many never had a job.
    private func users() async throws -> [Check] {
        var cursor: String?
        var ineligible: Int64 = 0
        var unread: Int64 = 0
        var unexplained: Int64 = 0
        while true {
            let rows = try await pool.query(
                """
                SELECT (array_agg(u.id ORDER BY u.place DESC))[1],
                       count(*) FILTER (WHERE u.type = 'subscriber' AND NOT u.eligible),
                       count(*) FILTER (WHERE u.type = 'subscriber' AND u.eligible AND NOT EXISTS (
                           SELECT 1 FROM entitlement_sync.user_sync AS s
                            WHERE s.user_id = u.id
                              AND (s.ever_observed OR EXISTS (SELECT 1 FROM entitlement_sync."grant" AS g
                                                               WHERE g.user_key = s.user_key)))),
                       count(*) FILTER (WHERE NOT coalesce(u.type IN ('free', 'subscriber'), false) OR NOT u.is_known)
                  FROM (SELECT p.id, p.type, entitlement_sync.is_eligible(p.status) AS eligible, p.place,
                               coalesce(p.status IN ('active', 'onboarding', 'banned', 'banned_final', 'to_be_deleted'),
                                        false) AS is_known
                          FROM entitlement_sync_host.page_users(\(cursor), 5000) WITH ORDINALITY
                               AS p(id, type, status, created_at, place)) AS u
                """
            )
            guard let row = rows.first else { break }
            let (last, banned, unknown, strange) = try row.decode(String?.self, Int64.self, Int64.self, Int64.self)
            // By the adapter's order, and not for ever where it gives out one page again.
            guard let last, cursor.map(last.isExactly) != true else { break }
            cursor = last
            unread += strange
            ineligible += banned
            unexplained += unknown
        }
        return [
            Check(
                name: "law.ineligible_subscribers",
                ok: ineligible == 0,
                detail: ineligible == 0
                    ? "no subscriber is banned or being deleted"
                    : "\(ineligible) subscribers are banned or being deleted; nothing changes them silently",
                fix: "Decide for each whether the status or the type is right, and set it in the host."
            ),
            Check(
                name: "unexplained_subscribers",
                ok: unexplained == 0,
                detail: unexplained == 0
                    ? "no subscriber is without an explanation"
                    : "\(unexplained) subscribers have no purchase or grant that was ever seen",
                fix:
                    "Reconcile those who were never looked at; give the others a grant (entitlement-sync adopt --file CSV),"
                    + " or set their type in the host."
            ),
            Check(
                name: "adapter_users",
                ok: unread == 0,
                detail: unread == 0
                    ? "every user has a type and a status that the worker can read"
                    : "\(unread) users have a type or status that the worker can't read: their jobs end as adapter_refused",
                fix: "See the check adapter_words and alarm.adapter_refused; let the adapter translate them."
            ),
        ]
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
                   coalesce(h.last_error_at >= coalesce(h.last_answer_at, '-infinity'), false)
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
                    fix: error == "unauthorized"
                        ? "The store refuses our credentials: check its variables; nobody is demoted meanwhile."
                        : "Look at the store's status page and at this machine's network; nobody is demoted meanwhile."
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

    private func budgets() async throws -> [Check] {
        let rows = try await pool.query(
            """
            SELECT b.credential, b.per_minute, coalesce(b.seen_limit, 0), coalesce(b.seen_usage, 0),
                   coalesce(greatest(extract(epoch FROM b.blocked_until - now()), 0), 0)::double precision
              FROM entitlement_sync.rate_budget AS b ORDER BY b.credential
            """
        )
        return try rows.map { row in
            let (credential, perMinute, limit, usage, blocked) = try row.decode(
                String.self,
                Int32.self,
                Int32.self,
                Int32.self,
                Double.self
            )
            let ours = perMinute == 0 ? "no limit of ours" : "\(perMinute) requests a minute"
            let theirs = limit == 0 ? "" : "; the store last said \(usage) of \(limit)"
            let wait = blocked > 0 ? "; the store asked for \(Int(blocked.rounded(.up))) s of silence" : ""
            return Check(
                name: "budget.\(credential)",
                ok: blocked == 0 && (limit == 0 || perMinute <= limit),
                detail: ours + theirs + wait,
                fix: blocked > 0
                    ? "Wait: restores go on by themselves. If it happens often, lower the requests per minute."
                    : "The store allows less than is configured: set"
                        + " \(credential.prefix { $0 != "." }.uppercased())_REQUESTS_PER_MINUTE to its limit."
            )
        }
    }

    /// Laws are checked on the newest decisions: on all of them it would take longer than anybody waits.
    private static let newest: Int64 = 100_000

    private static let laws = Invariant.all.filter { $0.name != "ineligible_subscribers" }.map {
        Count(name: "law." + $0.name, query: $0.broken(newest), fine: $0.fine, wrong: $0.wrong, fix: $0.fix)
    }

    private static let counts: [Count] = [
        Count(
            name: "roles",
            query: """
                SELECT count(*) FROM unnest('{worker,api,support,auditor,client,console}'::text[]) AS r(name)
                 WHERE NOT EXISTS (SELECT 1 FROM pg_roles AS p WHERE p.rolname = 'entitlement_sync_' || r.name)
                """,
            fine: "all six roles exist",
            wrong: "roles are missing",
            fix:
                "Run entitlement-sync migrate as a user with CREATEROLE, or have a superuser run what it prints and run it again."
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
            name: "sequences",
            query: """
                SELECT count(*)
                  FROM (VALUES ('entitlement_sync.purchase_id_block',
                                (SELECT max(x.id) FROM entitlement_sync.purchase AS x)),
                               ('entitlement_sync.ticket_number',
                                (SELECT max(x.id) FROM entitlement_sync.ticket AS x)),
                               (pg_get_serial_sequence('entitlement_sync.user_sync', 'user_key'),
                                (SELECT max(x.user_key) FROM entitlement_sync.user_sync AS x)),
                               (pg_get_serial_sequence('entitlement_sync.grant', 'id'),
                                (SELECT max(x.id) FROM entitlement_sync."grant" AS x)),
                               -- The newest confirmations have numbers of decisions as well.
                               ('entitlement_sync.decision_id_seq',
                                (SELECT greatest((SELECT max(x.id) FROM entitlement_sync.decision AS x), max(n.decision_id))
                                   FROM (SELECT h.decision_id FROM entitlement_sync.job_history AS h
                                          ORDER BY h.id DESC LIMIT 10000) AS n)),
                               (pg_get_serial_sequence('entitlement_sync.inbox', 'id'),
                                (SELECT max(x.id) FROM entitlement_sync.inbox AS x))) AS s(name, top)
                 WHERE CASE WHEN has_sequence_privilege(s.name, 'USAGE')
                            THEN coalesce(pg_sequence_last_value(s.name::regclass), 0) ELSE s.top END < s.top
                """,
            fine: "every sequence is ahead of its table",
            wrong: "sequences are behind their tables, as after a restore that left them out",
            fix: "As the schema's owner: SELECT setval(SEQUENCE, (SELECT max(ID) FROM TABLE));"
                + " purchase_id_block: round the maximum up to a multiple of 1000. decision_id_seq: the greatest of decision.id,"
                + " user_sync.confirmed_id and job_history.decision_id."
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
            name: "acknowledgements",
            query: """
                SELECT count(*) FROM entitlement_sync.acknowledgement AS a
                 WHERE a.attempt > 2 OR a.deadline < now() + interval '1 day' AND a.attempt > 0
                """,
            fine: "no sale waits to be acknowledged to Google Play for long",
            wrong: "granted sales could not be acknowledged to Google Play, which will refund them",
            fix:
                "Mend what the store.google_play check or the worker's log says; acknowledgement.last_error holds the code."
        ),
        Count(
            name: "paused",
            query: "SELECT count(*) FROM entitlement_sync.control AS c WHERE c.paused AND c.cause IS NULL",
            fine: "nothing is paused",
            wrong: "switches are paused",
            fix: "entitlement-sync resume demotions|transfers|all, once the reason is gone."
        ),
    ]
}
