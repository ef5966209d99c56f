import Postgres
import SupportDesk
import TestSupport
import Testing

/// Operators' sessions: when they end, and what is refused in them.
@Suite struct OperatorSessionTests {
    @Test(arguments: ["seen_at = seen_at - interval '61 minutes'", "started_at = started_at - interval '12 hours'"])
    func `A session ends when it is not used, and at its end`(_ change: String) async throws {
        try await World.with { world in
            let desk = DeskPeople(world: world)
            let admin = try await desk.enter("root", .admin)
            #expect(try await desk.acting(admin, "manage") == "root")
            try await world.pool.query("UPDATE entitlement_sync.operator_session SET \(rawSQL: change)")
            await expectRefusal { _ = try await desk.acting(admin, "view") }
        }
    }

    @Test func `What asks for a fresh sign-in is refused ten minutes after it, and does not end the session`()
        async throws
    {
        try await World.with { world in
            let desk = DeskPeople(world: world)
            let admin = try await desk.enter("root", .admin)
            let ask: PostgresQuery =
                "SELECT entitlement_sync.acting(\(PostgresBytes(admin.token.digest)), 'manage', interval '10 minutes')"
            try await world.pool.query(ask)
            try await world.pool.query(
                "UPDATE entitlement_sync.operator_session SET proved_at = proved_at - interval '10 minutes'"
            )
            await expectRefusal("ES007") { try await world.pool.query(ask) }
            #expect(try await desk.acting(admin, "manage") == "root")
        }
    }

    @Test func `An operator sees where they are signed in, and ends the others`() async throws {
        try await World.with { world in
            let desk = DeskPeople(world: world)
            let root = try await desk.enter("root", .admin)
            let other = try await desk.enter("toor", .admin)
            guard case .signedIn(let stolen, _) = try await desk.signIn(root) else {
                Issue.record("root could not sign in again")
                return
            }
            let seen = try await desk.operators.sessions(of: root.token.digest)
            #expect(seen.count == 2 && seen.filter(\.isThis).count == 1)
            #expect(try await desk.operators.endOthers(than: root.token.digest) == 1)
            await expectRefusal { _ = try await desk.operators.acting(stolen.digest, as: "view") }
            for person in [root, other] { #expect(try await desk.acting(person, "view") == person.name) }
            await expectRefusal { _ = try await desk.operators.sessions(of: stolen.digest) }
        }
    }

    @Test func `A session that ended while a decision waited for the operator's row is over`() async throws {
        try await World.with { world in
            let desk = DeskPeople(world: world)
            let root = try await desk.enter("root", .admin)
            let ann = try await desk.enter("ann", .agent, by: root)
            let (locked, isLocked) = AsyncStream.makeStream(of: Void.self)
            async let reset: Void = world.pool.withTransaction { connection in
                try await connection.query("SELECT FROM entitlement_sync.operator WHERE name = 'ann' FOR UPDATE")
                isLocked.yield()
                try await world.waitUntilBlocked("the decision does not wait for the operator's row")
                try await connection.query(
                    """
                    DELETE FROM entitlement_sync.operator_session AS s USING entitlement_sync.operator AS o
                     WHERE o.id = s.operator_id AND o.name = 'ann'
                    """
                )
            }
            _ = await locked.first { _ in true }
            await expectRefusal { _ = try await desk.acting(ann, "refuse") }
            try await reset
        }
    }

    @Test func `No older snapshot is acted on`() async throws {
        try await World.with { world in
            let desk = DeskPeople(world: world)
            let root = try await desk.enter("root", .admin)
            for level in ["repeatable read", "serializable"] {
                await expectRefusal("25001") {
                    try await world.pool.withTransaction { connection in
                        try await connection.query("SET TRANSACTION ISOLATION LEVEL \(rawSQL: level)")
                        try await connection.query(
                            "SELECT entitlement_sync.acting(\(PostgresBytes(root.token.digest)), 'view')"
                        )
                    }
                }
            }
        }
    }

    @Test func `What is stored of a session is no session`() async throws {
        try await World.with { world in
            let desk = DeskPeople(world: world)
            _ = try await desk.enter("root", .admin)
            await expectRefusal {
                try await world.pool.query(
                    "SELECT entitlement_sync.acting(s.digest, 'view') FROM entitlement_sync.operator_session AS s"
                )
            }
        }
    }

    @Test func `What was only needed for a while is forgotten`() async throws {
        try await World.with { world in
            let desk = DeskPeople(world: world)
            _ = try await desk.enter("root", .admin)
            _ = try await desk.signIn(.init(name: "nobody", password: "guess"))
            try await world.pool.query(
                """
                WITH attempts AS (UPDATE entitlement_sync.sign_in_attempt SET at = at - interval '31 days')
                UPDATE entitlement_sync.known_client SET used_at = used_at - interval '31 days'
                """
            )
            try await world.pool.query(
                "UPDATE entitlement_sync.sign_in_refusal SET at = at - interval '91 days'"
            )
            try await world.pool.query(
                "UPDATE entitlement_sync.operator_session SET started_at = started_at - interval '13 hours'"
            )
            try await world.pool.query("SELECT entitlement_sync.forget_sign_ins()")
            for table in ["sign_in_attempt", "sign_in_refusal", "known_client", "operator_session"] {
                #expect(
                    try await world.number("SELECT count(*) FROM entitlement_sync.\(rawSQL: table)") == 0,
                    "\(table)"
                )
            }
        }
    }
}
