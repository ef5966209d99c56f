package import Postgres

/// What stays behind when the schema goes, and the SQL that removes it.
///
/// Nothing is written.
package struct Uninstallation: Sendable {
    /// Users with assets that are frozen for `subscription_lapsed`; nothing unfreezes these once the schema is gone.
    package private(set) var users: Int64 = 0
    package private(set) var assets: Int64 = 0
    /// The database roles that exist; other databases of the server may use them too.
    package private(set) var roles: [String] = []

    private static let page: Int32 = 1000

    /// Counts, a page of the host's users after the other.
    ///
    /// - Throws: `PostgresError`, also where there is no schema.
    package static func read(_ pool: PostgresPool) async throws -> Uninstallation {
        var found = Uninstallation()
        var after: String?
        repeat {
            let row = try await pool.query(
                """
                WITH page AS MATERIALIZED (SELECT u.id FROM entitlement_sync_host.page_users(\(after), \(page)) AS u)
                SELECT (SELECT x.id FROM page AS x OFFSET \(page - 1)),
                       count(c.user_id) FILTER (WHERE c.lapsed > 0), coalesce(sum(c.lapsed), 0)::bigint
                  FROM page AS p
                  LEFT JOIN entitlement_sync_host.count_assets(ARRAY(SELECT x.id FROM page AS x)) AS c ON c.user_id = p.id
                """
            ).one
            let (last, users, assets) = try row.decode(String?.self, Int64.self, Int64.self)
            after = last
            found.users += users
            found.assets += assets
        } while after != nil
        found.roles = try await pool.query(
            """
            SELECT DISTINCT quote_ident(p.role) FROM entitlement_sync.role_privilege AS p
              JOIN pg_catalog.pg_roles AS r ON r.rolname = p.role ORDER BY 1
            """
        ).map { try $0.decode(String.self, at: 0) }
        return found
    }

    /// SQL for psql: gives users their assets back, then drops the schemas, then the roles.
    package var script: [String] {
        var lines: [String] = []
        if assets > 0 {
            lines += [
                "-- \(assets) assets of \(users) users are frozen because a subscription lapsed. This unfreezes them; leave it out"
                    + " to keep them frozen.",
                """
                DO $$
                DECLARE
                    page text[];
                    after text;
                BEGIN
                    LOOP
                        page := ARRAY(SELECT u.id FROM entitlement_sync_host.page_users(after, 1000) AS u);
                        EXIT WHEN cardinality(page) = 0;
                        after := page[cardinality(page)];
                        LOOP
                            EXIT WHEN NOT EXISTS (
                                SELECT 1 FROM entitlement_sync_host.unfreeze_assets(
                                    page, array_fill(NULL::text, ARRAY[cardinality(page)]), 1000
                                ) AS u WHERE u.changed > 0
                            );
                        END LOOP;
                    END LOOP;
                END
                $$;
                """,
            ]
        }
        lines += [
            "-- The records: purchases, observations, decisions, tickets. Make a backup first.",
            "DROP SCHEMA entitlement_sync CASCADE;", "DROP SCHEMA entitlement_sync_host CASCADE;",
        ]
        guard !roles.isEmpty else { return lines }
        return lines + ["-- Fails for a role that another database of this server still uses, which is right."]
            + roles.map { "DROP ROLE IF EXISTS \($0);" }
    }
}
