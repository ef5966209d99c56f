package import Postgres

/// What stays behind when the schema goes, and the SQL that removes it.
///
/// Nothing is written.
package struct Uninstallation: Sendable {
    /// Assets that are frozen for `subscription_lapsed`, and how many users have them; no process unfreezes these once the schema is
    /// gone.
    package struct Frozen: Sendable {
        package fileprivate(set) var users: Int64 = 0
        package fileprivate(set) var assets: Int64 = 0
    }

    /// Of users that may have access: the script unfreezes them.
    package private(set) var eligible = Frozen()
    /// Of users that are banned or being deleted: they stay frozen.
    package private(set) var others = Frozen()
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
                WITH page AS MATERIALIZED (SELECT u.id, u.status FROM entitlement_sync_host.page_users(\(after), \(page)) AS u)
                SELECT (SELECT x.id FROM page AS x OFFSET \(page - 1)),
                       count(*) FILTER (WHERE c.lapsed > 0 AND p.status IN ('active', 'onboarding')),
                       coalesce(sum(c.lapsed) FILTER (WHERE p.status IN ('active', 'onboarding')), 0)::bigint,
                       count(*) FILTER (WHERE c.lapsed > 0 AND p.status NOT IN ('active', 'onboarding')),
                       coalesce(sum(c.lapsed) FILTER (WHERE p.status NOT IN ('active', 'onboarding')), 0)::bigint
                  FROM page AS p
                  LEFT JOIN entitlement_sync_host.count_assets(ARRAY(SELECT x.id FROM page AS x)) AS c ON c.user_id = p.id
                """
            ).one
            let (last, users, assets, otherUsers, otherAssets) = try row.decode(
                String?.self,
                Int64.self,
                Int64.self,
                Int64.self,
                Int64.self
            )
            after = last
            found.eligible.users += users
            found.eligible.assets += assets
            found.others.users += otherUsers
            found.others.assets += otherAssets
        } while after != nil
        found.roles = try await pool.query(
            """
            SELECT DISTINCT quote_ident(p.role) FROM entitlement_sync.role_privilege AS p
              JOIN pg_catalog.pg_roles AS r ON r.rolname = p.role ORDER BY 1
            """
        ).map { try $0.decode(String.self, at: 0) }
        return found
    }

    /// SQL for psql: in one transaction it gives users their assets back and drops the schemas; then it drops the roles.
    package var script: [String] {
        var lines = ["BEGIN;"]
        if eligible.assets > 0 {
            lines += [
                "-- \(eligible.assets) assets of \(eligible.users) users are frozen because a subscription lapsed. This unfreezes them;"
                    + " leave it out to keep them frozen.",
                Self.unfreezing,
            ]
        }
        if others.assets > 0 {
            lines.append(
                "-- \(others.assets) assets of \(others.users) users that are banned or being deleted stay frozen."
            )
        }
        lines += [
            "-- The records: purchases, observations, decisions, tickets. CASCADE also drops what of yours depends on them, such as views.",
            "DROP SCHEMA entitlement_sync CASCADE;", "DROP SCHEMA entitlement_sync_host CASCADE;", "COMMIT;",
            "-- The extension pgcrypto stays: other schemas may use it.",
        ]
        guard !roles.isEmpty else { return lines }
        return lines + [
            "-- By a user who may drop roles. It fails for one that other privileges or another database of this server name."
        ]
            + roles.map { "DROP ROLE IF EXISTS \($0);" }
    }

    /// Where an asset stays frozen, because its row is locked or a trigger refuses it, nothing is dropped.
    private static let unfreezing = """
        DO $$
        DECLARE
            page text[];
            ids text[];
            places text[];
            after text;
        BEGIN
            LOOP
                SELECT array_agg(u.id), array_agg(u.id) FILTER (WHERE u.status IN ('active', 'onboarding')) INTO page, ids
                  FROM entitlement_sync_host.page_users(after, 1000) AS u;
                EXIT WHEN page IS NULL;
                after := page[cardinality(page)];
                page := ids;
                places := array_fill(NULL::text, ARRAY[coalesce(cardinality(ids), 0)]);
                WHILE ids IS NOT NULL LOOP
                    SELECT array_agg(u.user_id), array_agg(u.cursor) INTO ids, places
                      FROM entitlement_sync_host.unfreeze_assets(ids, places, 1000) AS u WHERE u.more AND u.changed > 0;
                END LOOP;
                IF EXISTS (SELECT 1 FROM entitlement_sync_host.count_assets(page) AS c WHERE c.lapsed > 0) THEN
                    RAISE EXCEPTION 'assets are still frozen: a row is locked, or a trigger refuses it; nothing was dropped';
                END IF;
            END LOOP;
        END
        $$;
        """
}
