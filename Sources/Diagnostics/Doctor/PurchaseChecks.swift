import Postgres

/// Purchases without an owner, and access by support's decision.
struct PurchaseChecks {
    let pool: PostgresPool

    /// Purchases that are paid for and belong to no known user, by age.
    func unclaimed() async throws -> Check? {
        let rows = try await pool.query(
            """
            SELECT count(*),
                   count(*) FILTER (WHERE p.first_seen_at > now() - interval '1 day'),
                   count(*) FILTER (WHERE p.first_seen_at <= now() - interval '1 day'
                                      AND p.first_seen_at > now() - interval '7 days'),
                   count(*) FILTER (WHERE p.first_seen_at <= now() - interval '7 days'),
                   coalesce((SELECT string_agg(o.line, '; ') FROM (
                       SELECT format('%s %s, since %s', x.store, coalesce(i.value, 'number ' || x.id),
                                     to_char(x.first_seen_at AT TIME ZONE 'UTC', 'YYYY-MM-DD')) AS line
                         FROM entitlement_sync.purchase AS x
                         LEFT JOIN LATERAL (
                              SELECT n.value FROM entitlement_sync.purchase_identifier AS n
                               -- A purchase token opens the purchase to any holder of it: it is never shown.
                               WHERE n.purchase_id = x.id AND n.kind IN ('store_id', 'order_id')
                               ORDER BY n.kind, n.value LIMIT 1) AS i ON true
                        WHERE x.owner_key IS NULL AND x.merged_into IS NULL AND x.environment = 'production'
                          AND (x.gives_access OR x.kind = 'one_time' AND x.status = 'owned')
                        ORDER BY x.first_seen_at LIMIT 5) AS o), '')
              FROM entitlement_sync.purchase AS p
             WHERE p.owner_key IS NULL AND p.merged_into IS NULL AND p.environment = 'production'
               AND (p.gives_access OR p.kind = 'one_time' AND p.status = 'owned')
            """
        )
        guard let row = rows.first else { return nil }
        let (all, day, week, old, oldest) = try row.decode(Int64.self, Int64.self, Int64.self, Int64.self, String.self)
        return Check(
            "unclaimed_purchases",
            zero: all,
            fine: "every active purchase belongs to a user",
            wrong: "active purchases belong to no user: \(day) seen within a day, \(week) within a week, \(old)"
                + " before that; the oldest: \(oldest)",
            fix:
                "A buyer pays and has no access. A claimant who has shown the purchase has a ticket, which operators decide"
                + " (entitlement-sync tickets); else find the buyer by the order in the store's console, and let them"
                + " restore in the app while signed in."
        )
    }

    /// Access that the desk has given beyond a loan of three days, and that still runs.
    func deskGrants() async throws -> Check? {
        let rows = try await pool.query(
            """
            SELECT count(*), coalesce(string_agg(g.line, '; ' ORDER BY g.id DESC) FILTER (WHERE g.place <= 5), '')
              FROM (SELECT x.id, row_number() OVER (ORDER BY x.id DESC) AS place,
                           format('%s until %s by %s', x.reason, to_char(x.until AT TIME ZONE 'UTC', 'YYYY-MM-DD'),
                                  x.granted_by) AS line
                      FROM entitlement_sync."grant" AS x
                     WHERE x.reason LIKE 'decided in ticket %' AND x.revoked_at IS NULL AND x.until > now()) AS g
            """
        )
        guard let (count, newest) = try rows.first?.decode(Int64.self, String.self) else { return nil }
        return Check(
            "desk_grants",
            fine: count == 0
                ? "no user has access by support's decision until a paid period ends"
                : "\(count) users have access by support's decision until a paid period ends; the newest: \(newest)"
        )
    }
}
