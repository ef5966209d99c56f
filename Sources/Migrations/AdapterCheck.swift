package import Postgres

/// Reads a page of the host's real rows through the adapter: rows that the worker can't read show here, not in a job.
package struct AdapterCheck: Sendable {
    private let pool: PostgresPool

    package init(pool: PostgresPool) { self.pool = pool }

    /// What is wrong with the installed adapter, each with its function and value; empty: nothing.
    ///
    /// Users are locked for the moment of the check. Throws `PostgresError` where a function of the adapter fails.
    package func faults() async throws -> [String] {
        do {
            return try await pool.withTransaction { connection in
                throw Found(faults: try await Self.faults(on: connection))
            }
        } catch let found as Found { return found.faults }
    }

    /// Carries what was found out of a transaction that is undone.
    private struct Found: Error {
        var faults: [String]
    }

    /// Checks within a transaction of the caller's, which is to be undone or to end soon.
    static func faults(on connection: PostgresConnection) async throws -> [String] {
        try await connection.execute(script: "SET LOCAL lock_timeout = '2s'")
        return try await connection.query("\(rawSQL: page)").map { try $0.decode(String.self, at: 0) }
    }

    /// Without SECURITY DEFINER a function runs with the worker's rights, which end at the host's tables.
    private static let page = """
        WITH page AS MATERIALIZED (
            SELECT p.id, p.type, p.status, p.created_at FROM entitlement_sync_host.page_users(NULL, 1000) AS p
        ), ids AS MATERIALIZED (
            SELECT coalesce(array_agg(p.id), '{}') AS all_ids, coalesce((array_agg(p.id))[1:20], '{}') AS few_ids
              FROM page AS p WHERE p.id IS NOT NULL
        ), users AS MATERIALIZED (
            SELECT 'page_users' AS function, p.id, p.type, p.status, p.created_at IS NOT NULL AS is_dated FROM page AS p
             UNION ALL
            SELECT 'read_users', u.id, u.type, u.status, u.created_at IS NOT NULL
              FROM ids AS i CROSS JOIN LATERAL entitlement_sync_host.read_users(i.all_ids) AS u
             UNION ALL
            SELECT 'lock_users', u.id, u.type, u.status, true
              FROM ids AS i CROSS JOIN LATERAL entitlement_sync_host.lock_users(i.few_ids) AS u
        ), counted AS MATERIALIZED (
            SELECT a.user_id, a.lapsed, a.others
              FROM ids AS i CROSS JOIN LATERAL entitlement_sync_host.count_assets(i.few_ids) AS a
        ), said (function, field, value, is_wrong, allowed) AS (
            SELECT u.function, 'id', u.id, u.id IS NULL, 'no NULL' FROM users AS u
             UNION ALL
            SELECT u.function, 'type', u.type, u.type IS NULL OR u.type NOT IN ('free', 'subscriber'), 'free, subscriber'
              FROM users AS u
             UNION ALL
            SELECT u.function, 'status', u.status,
                   u.status IS NULL OR u.status NOT IN ('active', 'onboarding', 'banned', 'banned_final', 'to_be_deleted'),
                   'active, onboarding, banned, banned_final, to_be_deleted'
              FROM users AS u
             UNION ALL
            SELECT u.function, 'created_at', NULL, NOT u.is_dated, 'no NULL' FROM users AS u
             UNION ALL
            SELECT 'count_assets', f.field, f.value, f.value IS NULL, 'no NULL'
              FROM counted AS c
             CROSS JOIN LATERAL (VALUES ('user_id', c.user_id), ('lapsed', c.lapsed::text), ('others', c.others::text))
                   AS f(field, value)
             UNION ALL
            SELECT 'count_subscribers', 'its count', s.count::text, s.count IS NULL, 'no NULL'
              FROM (SELECT entitlement_sync_host.count_subscribers() AS count) AS s
        )
        SELECT w.fault
          FROM (SELECT 1 AS place, format('%s %s not SECURITY DEFINER, and the worker has no rights on the host''s tables',
                                          string_agg(p.proname, ', ' ORDER BY p.proname),
                                          CASE count(*) WHEN 1 THEN 'is' ELSE 'are' END) AS fault
                  FROM pg_catalog.pg_proc AS p
                 WHERE p.pronamespace = to_regnamespace('entitlement_sync_host') AND NOT p.prosecdef
                   AND p.proname = ANY (ARRAY['read_users', 'lock_users', 'set_type', 'freeze_assets', 'unfreeze_assets',
                                              'next_asset', 'count_assets', 'page_users', 'count_subscribers',
                                              'unexplained_assets'])
                HAVING count(*) > 0
                 UNION ALL
                SELECT 2, format('%s gave %s %s in %s of %s rows (allowed: %s)', s.function, s.field,
                                 coalesce(quote_literal(left(regexp_replace(s.value, '[[:cntrl:]]', ' ', 'g'), 40)), 'NULL'),
                                 count(*), (SELECT count(*) FROM said AS t
                                             WHERE t.function = s.function AND t.field = s.field), s.allowed)
                  FROM said AS s WHERE s.is_wrong
                 GROUP BY s.function, s.field, left(regexp_replace(s.value, '[[:cntrl:]]', ' ', 'g'), 40), s.allowed) AS w
         ORDER BY w.place, w.fault LIMIT 20
        """
}
