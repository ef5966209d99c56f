import Postgres
import SupportDesk
import TestSupport
import Testing

/// What database roles may read and call of operators' sign-ins.
@Suite struct OperatorPrivilegeTests {
    @Test func `Every role and every duty of the database is known to the program`() async throws {
        try await World.with { world in
            let roles = try await world.texts("SELECT DISTINCT d.role FROM entitlement_sync.operator_permission AS d")
            #expect(Set(roles) == Set(DeskRole.allCases.map(\.rawValue)))
        }
    }

    @Test(arguments: ["support", "auditor", "api", "client", "worker"])
    func `What signs an operator in can be read by nobody, and forged by nobody`(_ role: String) async throws {
        try await World.with { world in
            let desk = DeskPeople(world: world)
            _ = try await desk.enter("root", .admin)
            for statement in [
                "SELECT count(*) FROM entitlement_sync.operator_secret",
                "SELECT count(*) FROM entitlement_sync.operator_session",
                "SELECT count(*) FROM entitlement_sync.sign_in_attempt",
                "SELECT count(*) FROM entitlement_sync.known_client",
                "SELECT count(*) FROM entitlement_sync.operator_ban",
                "DELETE FROM entitlement_sync.operator_ban",
                "SELECT count(*) FROM entitlement_sync.terminal_request",
                "INSERT INTO entitlement_sync.operator_identity VALUES (1, 'x', 'x')",
                "SELECT entitlement_sync.use_provider('x')",
                "SELECT entitlement_sync.provider_sign_in('x', 'x', '{eve}', 'admin', '0', sha256('x'), '1 hour')",
                "SELECT count(*) FROM entitlement_sync.desk_secret",
                "INSERT INTO entitlement_sync.operator_session (digest, operator_id, kind) VALUES (sha256('x'), 1, 'console')",
                "INSERT INTO entitlement_sync.operator (name, role) VALUES ('eve', 'admin')",
                "UPDATE entitlement_sync.operator SET role = 'admin'",
                "INSERT INTO entitlement_sync.operator_permission VALUES ('approve', 'agent')",
                "SELECT entitlement_sync.one_time_code('x', 1)",
                "SELECT entitlement_sync.try_wait('root', NULL, NULL)",
                "SELECT entitlement_sync.remember_client(1, sha256('x'))",
                "INSERT INTO entitlement_sync.sign_in_attempt (digest, xact, name, address) VALUES ('x', '1', 'x', 'x')",
                "SELECT entitlement_sync.hmac_sha1('x', 'x')", "SELECT entitlement_sync.operator_named('root')",
                "INSERT INTO entitlement_sync.operator_event (kind) VALUES ('approved')",
            ] {
                await expectRefusal(SQLState.insufficientPrivilege) {
                    try await world.pool.withTransaction { connection in
                        try await connection.query("SET LOCAL ROLE entitlement_sync_\(rawSQL: role)")
                        try await connection.query(PostgresQuery(rawSQL: statement))
                    }
                }
            }
        }
    }

    @Test func `What operators did can't be changed, and tells of refusals`() async throws {
        try await World.with { world in
            let desk = DeskPeople(world: world)
            _ = try await desk.enter("root", .admin)
            _ = try await desk.signIn(.init(name: "root", password: "wrong"))
            let kinds = try await world.texts("SELECT e.kind FROM entitlement_sync.operator_event AS e ORDER BY e.id")
            #expect(kinds == ["added", "enrolled", "signed_in"])
            let refusals = try await world.texts("SELECT r.reason FROM entitlement_sync.sign_in_refusal AS r")
            #expect(refusals == ["password"])
            for change in [
                "UPDATE entitlement_sync.operator_event SET kind = 'x'",
                "DELETE FROM entitlement_sync.operator_event", "TRUNCATE entitlement_sync.operator_event",
            ] {
                await expectRefusal(SQLState.insufficientPrivilege) {
                    try await world.pool.query(PostgresQuery(rawSQL: change))
                }
            }
        }
    }

    @Test func `The desk's own role can sign people in, and acts for nobody who is not`() async throws {
        try await World.with { world in
            let desk = DeskPeople(world: world)
            let admin = try await desk.enter("root", .admin)
            try await world.pool.withTransaction { connection in
                try await connection.query("SET LOCAL ROLE entitlement_sync_support")
                try await connection.query(
                    "SELECT * FROM entitlement_sync.sign_in_salt('root', NULL, NULL, 'scrypt$1$1$1')"
                )
                try await connection.query(
                    "SELECT * FROM entitlement_sync.announce_sign_in('root', NULL, NULL, sha256('x'), sha256('k'))"
                )
                try await connection.query(
                    """
                    SELECT entitlement_sync.sign_in(gen_random_uuid(), 'root', sha256('x'), NULL, sha256('y'), 'console',
                                                    NULL, NULL, NULL, NULL, NULL)
                    """
                )
                try await connection.query("SELECT name, role FROM entitlement_sync.operator")
                try await connection.query(
                    "SELECT * FROM entitlement_sync.operators(\(PostgresBytes(admin.token.digest)))"
                )
            }
            for statement in [
                "SELECT entitlement_sync.acting(NULL, 'view')", "SELECT entitlement_sync.acting(sha256('x'), 'view')",
                "SELECT entitlement_sync.disable_operator(NULL, 'root')",
                "SELECT entitlement_sync.reset_operator(NULL, 'root', 'x', 'x', 'x')",
                "SELECT entitlement_sync.confirm_operator(NULL, 'root')",
                "SELECT entitlement_sync.link_operator(NULL, 'root', 'ann')",
                "SELECT * FROM entitlement_sync.operators(NULL)",
            ] {
                await expectRefusal {
                    try await world.pool.withTransaction { connection in
                        // As somebody who has signed in to the database as nothing else.
                        try await connection.query("SET LOCAL SESSION AUTHORIZATION entitlement_sync_support")
                        try await connection.query(PostgresQuery(rawSQL: statement))
                    }
                }
            }
        }
    }
}
