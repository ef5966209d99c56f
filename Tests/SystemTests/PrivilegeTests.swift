import Foundation
import Migrations
import Postgres
import TestSupport
import Testing

/// What the roles may do, and who makes that true.
@Suite struct PrivilegeTests {
    /// What the roles hold, by the server's own lists; partitions follow their parents.
    private static let held = """
        WITH held AS (
            SELECT 'schema' AS kind, n.nspname::text AS object, '' AS part, a.grantee, a.privilege_type
              FROM pg_namespace AS n, aclexplode(n.nspacl) AS a WHERE n.nspname = 'entitlement_sync'
             UNION ALL
            SELECT CASE c.relkind WHEN 'S' THEN 'sequence' ELSE 'table' END, c.relname, '', a.grantee, a.privilege_type
              FROM pg_class AS c, aclexplode(c.relacl) AS a
             WHERE c.relnamespace = 'entitlement_sync'::regnamespace AND NOT c.relispartition
             UNION ALL
            SELECT 'table', c.relname, t.attname, a.grantee, a.privilege_type
              FROM pg_class AS c JOIN pg_attribute AS t ON t.attrelid = c.oid, aclexplode(t.attacl) AS a
             WHERE c.relnamespace = 'entitlement_sync'::regnamespace AND NOT c.relispartition
             UNION ALL
            SELECT DISTINCT 'function', p.proname, '', a.grantee, a.privilege_type
              FROM pg_proc AS p, aclexplode(p.proacl) AS a WHERE p.pronamespace = 'entitlement_sync'::regnamespace
        )
        SELECT r.rolname::text AS role, h.kind, h.object, h.part, h.privilege_type AS privilege
          FROM held AS h JOIN pg_roles AS r ON r.oid = h.grantee
         WHERE r.rolname LIKE 'entitlement\\_sync\\_%'
        """
    private static let listed = """
        SELECT p.role, p.kind, p.object, p.part, p.privilege FROM entitlement_sync.role_privilege AS p
         WHERE p.kind = 'schema'
            OR p.kind = 'function' AND EXISTS (SELECT 1 FROM pg_proc AS f WHERE f.proname = p.object)
            OR to_regclass(format('entitlement_sync.%I', p.object)) IS NOT NULL
        """

    @Test func `The roles hold what is on record for them, and nothing else`() async throws {
        try await World.with { world in
            for (one, other, what) in [
                (Self.held, Self.listed, "held, and not listed"), (Self.listed, Self.held, "not held"),
            ] {
                let rows = try await world.texts(
                    """
                    SELECT concat_ws(' ', x.role, x.kind, x.object, x.part, x.privilege)
                      FROM (SELECT * FROM (\(rawSQL: one)) AS a EXCEPT SELECT * FROM (\(rawSQL: other)) AS b) AS x ORDER BY 1
                    """
                )
                #expect(rows == [], "\(what)")
            }
        }
    }

    @Test func `What a role lost is a finding, and the next migration gives it back`() async throws {
        try await World.with { world in
            let missing: PostgresQuery = "SELECT count(*) FROM entitlement_sync.missing_privileges()"
            #expect(try await world.number(missing) == 0)
            for statement in [
                "REVOKE INSERT ON entitlement_sync.decision FROM entitlement_sync_worker",
                "REVOKE EXECUTE ON FUNCTION entitlement_sync.enqueue_reconciles FROM entitlement_sync_worker",
                "REVOKE UPDATE (due) ON entitlement_sync.transfer FROM entitlement_sync_worker",
                "REVOKE USAGE ON SEQUENCE entitlement_sync.worker_epoch FROM entitlement_sync_worker",
                "REVOKE EXECUTE ON FUNCTION entitlement_sync_host.lock_users FROM entitlement_sync_worker",
                "REVOKE USAGE ON SCHEMA entitlement_sync FROM entitlement_sync_api",
            ] {
                try await world.pool.query("\(rawSQL: statement)")
                #expect(try await world.number(missing) == 1, "\(statement)")
                #expect(try await world.texts("SELECT entitlement_sync.apply_privileges()::text") == ["{}"])
                #expect(try await world.number(missing) == 0, "\(statement)")
            }
        }
    }

    @Test func `The role with the list of testers may allow one`() async throws {
        try await World.with { world in
            try await world.add("tester")
            try await world.pool.withTransaction { connection in
                try await connection.query("SET LOCAL ROLE entitlement_sync_client")
                try await connection.query("SELECT max(r.release) FROM entitlement_sync.schema_release AS r")
                let job = try await connection.query(
                    "SELECT entitlement_sync.request_reconcile('tester', 'sandbox allowed')::text"
                ).first?.decode(String.self)
                try await connection.query(
                    """
                    INSERT INTO entitlement_sync.sandbox_user (user_id, until)
                    SELECT s.user_id, 'infinity' FROM entitlement_sync.job_status AS s WHERE s.id = \(job)::uuid
                    """
                )
            }
            #expect(try await world.texts("SELECT s.user_id FROM entitlement_sync.sandbox_user AS s") == ["tester"])
        }
    }

    @Test(arguments: [
        "INSERT INTO entitlement_sync.product (store, product_id, entitlement) VALUES ('appstore', 'p', 'premium')",
        "INSERT INTO entitlement_sync.product (store, product_id, entitlement) VALUES ('Google Play', 'p', 'premium')",
        "INSERT INTO entitlement_sync.product (store, product_id, entitlement) VALUES ('app_store', '', 'premium')",
        "INSERT INTO entitlement_sync.product (store, product_id, entitlement) VALUES ('app_store', ' ', 'premium')",
    ])
    func `A product of no store, or without an id, is refused`(_ statement: String) async throws {
        try await World.with { world in
            await #expect(throws: PostgresError.self) { try await world.pool.query("\(rawSQL: statement)") }
        }
    }
}
