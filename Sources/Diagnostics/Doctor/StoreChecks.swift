import Postgres

/// The stores: their answers, limits and credentials, and RevenueCat's settings.
struct StoreChecks {
    let pool: PostgresPool

    /// How the stores answer, and how far their clocks are from ours.
    func health() async throws -> [Check] {
        try await pool.query(
            """
            SELECT h.store, coalesce(h.skew_seconds, 0)::double precision, coalesce(h.last_error, ''),
                   coalesce(h.last_error_at >= coalesce(h.last_answer_at, '-infinity'), false)
              FROM entitlement_sync.store_health AS h ORDER BY h.store
            """
        ).flatMap { row -> [Check] in
            let (store, skew, error, failing) = try row.decode(String.self, Double.self, String.self, Bool.self)
            return [
                Check(
                    name: "store.\(store)",
                    ok: !failing,
                    detail: failing ? "the last requests failed: \(error)" : "answers",
                    fix: error == "unauthorized"
                        ? "The store refuses our credentials: check its variables; no user is demoted meanwhile."
                        : "See the store's status page and this machine's network; no user is demoted meanwhile."
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

    /// The limits of requests, and what the stores say of them.
    func budgets() async throws -> [Check] {
        try await pool.query(
            """
            SELECT b.credential, b.per_minute, coalesce(b.seen_limit, 0), coalesce(b.seen_usage, 0),
                   coalesce(greatest(extract(epoch FROM b.blocked_until - now()), 0), 0)::double precision
              FROM entitlement_sync.rate_budget AS b ORDER BY b.credential
            """
        ).map { row in
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

    /// Credentials that know none of our customers, and the pauses that the product has set by itself.
    func credentials() async throws -> [Check] {
        let rows = try await pool.query(
            """
            SELECT c.store, c.state FROM entitlement_sync.store_credential AS c WHERE c.digest IS NOT NULL ORDER BY c.store
            """
        )
        var checks = try rows.map { row in
            let (store, state) = try row.decode(String.self, String.self)
            let detail =
                switch state {
                case "doubted": "none of the customers who were asked for is known with the credentials in use"
                case "unchecked": "the credentials changed, and the store has not answered with them yet"
                default: "nothing is known against the credentials in use"
                }
            return Check(
                name: "credentials.\(store)",
                ok: state == "confirmed",
                detail: detail,
                fix: "Check the store's key and project, or app, in the variables. Where they are right and"
                    + " demotions are paused: entitlement-sync resume demotions."
            )
        }
        let causes = try await pool.query(
            "SELECT c.name, c.cause FROM entitlement_sync.control AS c WHERE c.paused AND c.cause IS NOT NULL ORDER BY c.name"
        )
        checks += try causes.map { row in
            let (name, cause) = try row.decode(String.self, String.self)
            let why =
                switch cause {
                case "credentials": "a store knows none of our customers"
                case "commits_lost": "a failover of the database may have lost commits"
                default: "a store no longer lists the purchases of too many users"
                }
            return Check(
                name: "paused.\(name)",
                ok: false,
                detail: "entitlement-sync paused \(name): \(why)",
                fix: "Mend what the alarms say, then entitlement-sync resume \(name)."
            )
        }
        return checks
    }

    /// Purchases that RevenueCat moved between accounts, which its required setting rules out.
    func restoreBehavior() async throws -> Check? {
        let rows = try await pool.query(
            """
            SELECT count(*) FROM entitlement_sync.ticket AS t
             WHERE t.kind = 'external_transfer' AND t.created_at > now() - interval '30 days'
            """
        )
        let moved = try rows.first?.decode(Int64.self, at: 0) ?? 0
        return Check(
            name: "restore_behavior",
            ok: moved == 0,
            detail: moved == 0
                ? "RevenueCat moved no purchase in 30 days; its restore behavior has to be \"Keep with original App User ID\""
                : "RevenueCat moved \(moved) purchases to other accounts in 30 days",
            fix: "Set RevenueCat's restore behavior to \"Keep with original App User ID\"; transfer purchases here."
        )
    }
}
