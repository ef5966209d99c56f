import Postgres
import SupportDesk
import TestSupport
import Testing
import UserRequests

/// Operators' accounts: how they come to be, how they change, and how a second admin confirms them.
@Suite struct OperatorAccountTests {
    @Test func `Admins may be added by the schema's owner, and by nobody else who is not signed in`()
        async throws
    {
        try await World.with { world in
            let desk = DeskPeople(world: world)
            await expectRefusal { _ = try await desk.enter("ann", .agent) }
            let shown = try PasswordKey(new: "initial password", for: "", cost: .least)
            await expectRefusal {
                try await world.pool.withTransaction { connection in
                    try await connection.query("SET LOCAL SESSION AUTHORIZATION entitlement_sync_support")
                    try await connection.query(
                        """
                        SELECT entitlement_sync.add_operator(NULL, 'eve', 'admin', NULL, \(shown.cost.text),
                                                             \(PostgresBytes(shown.salt)), \(PostgresBytes(shown.bytes)))
                        """
                    )
                }
            }
            let admin = try await desk.enter("root", .admin)
            let agent = try await desk.enter("ann", .agent, by: admin)
            await expectRefusal { _ = try await desk.enter("bob", .agent, by: agent) }
            #expect(try await desk.acting(agent, "work") == "ann")
            await expectRefusal { _ = try await desk.acting(agent, "approve") }
            await expectRefusal { _ = try await desk.acting(admin, "work") }
            let nobody = DeskPeople.Person(name: "", token: SessionToken(), device: SecondFactor())
            await expectRefusal { _ = try await desk.acting(nobody, "view") }
            #expect(try await desk.operators.all(by: admin.token.digest).map(\.name) == ["ann", "root"])
            await expectRefusal { _ = try await desk.operators.all(by: agent.token.digest) }
        }
    }

    @Test func `A name and an account in the app are one operator's`() async throws {
        try await World.with { world in
            try await world.add("user")
            let desk = DeskPeople(world: world)
            let admin = try await desk.enter("root", .admin)
            _ = try await desk.enter("ann", .agent, by: admin, user: "user")
            await expectRefusal("22023") { _ = try await desk.enter("ann", .agent, by: admin) }
            await expectRefusal("22023") { _ = try await desk.enter("bob", .agent, by: admin, user: "user") }
            await expectRefusal("ES001") { _ = try await desk.enter("bob", .agent, by: admin, user: "nobody") }
            await expectRefusal("22023") { _ = try await desk.enter("Bob Smith", .agent, by: admin) }
        }
    }

    @Test func `Who is disabled is out at once; who is reset begins anew; the last admin stays`() async throws {
        try await World.with { world in
            let desk = DeskPeople(world: world)
            let admin = try await desk.enter("root", .admin)
            let agent = try await desk.enter("ann", .agent, by: admin)
            await expectRefusal("22023") { try await desk.operators.disable("root", by: admin.token.digest) }
            let initial = try PasswordKey(new: "initial password", for: "", cost: .least)
            await expectRefusal("22023") {
                try await desk.operators.reset("root", password: initial.shown, by: admin.token.digest)
            }
            try await desk.operators.disable("ann", by: admin.token.digest)
            await expectRefusal { _ = try await desk.acting(agent, "view") }
            #expect(try await desk.signIn(agent).isRefused)
            try await desk.operators.reset("ann", password: initial.shown, by: admin.token.digest)
            #expect(try await desk.signIn(agent).isRefused)
            let device = SecondFactor()
            let result = try await desk.signIn(
                .init(
                    name: "ann",
                    password: "initial password",
                    code: try await desk.code(device),
                    newPassword: "yet another password",
                    newDevice: device
                )
            )
            guard case .signedIn(let token, _) = result else {
                Issue.record("\(result)")
                return
            }
            #expect(try await desk.operators.acting(token.digest, as: "work").name == "ann")
            try await desk.operators.signOut(token.digest)
            await expectRefusal { _ = try await desk.operators.acting(token.digest, as: "view") }
        }
    }

    @Test func `A new account that approves or manages decides nothing before a second admin has confirmed it`()
        async throws
    {
        try await World.with { world in
            let desk = DeskPeople(world: world)
            let first = try await desk.enter("root", .admin)
            let second = try await desk.enter("toor", .admin)
            let ann = try await desk.enter("ann", .approver, by: first, confirmed: false)
            #expect(try await desk.acting(ann, "work") == "ann")
            for duty in ["approve", "transfer", "give_access", "refuse"] {
                await expectRefusal { _ = try await desk.acting(ann, duty) }
            }
            await expectRefusal { try await desk.operators.confirm("ann", by: first.token.digest) }
            await expectRefusal { try await desk.operators.confirm("ann", by: ann.token.digest) }
            try await desk.operators.confirm("ann", by: second.token.digest)
            #expect(try await desk.acting(ann, "approve") == "ann")
            let initial = try PasswordKey(new: "initial password", for: "", cost: .least)
            try await desk.operators.reset("ann", password: initial.shown, by: second.token.digest)
            await expectRefusal { try await desk.operators.confirm("ann", by: second.token.digest) }
            try await desk.operators.confirm("ann", by: first.token.digest)
            // An admin whom another one made adds nobody either.
            let third = try await desk.enter("new", .admin, by: first, confirmed: false)
            await expectRefusal { _ = try await desk.enter("bob", .viewer, by: third) }
            #expect(try await world.alarms() == ["operator_held"])
            // No day changes that, which the account of an agent waits for alone.
            let held = try await world.texts(
                "SELECT o.name FROM entitlement_sync.operator AS o WHERE o.held_until > now() + interval '10 years'"
            )
            #expect(held == ["new"])
            _ = try await desk.enter("amy", .agent, by: second, confirmed: false)
            let soon = try await world.texts(
                "SELECT o.name FROM entitlement_sync.operator AS o WHERE o.held_until < now() + interval '25 hours'"
            )
            #expect(soon == ["amy"])
            await expectRefusal { try await desk.operators.confirm("new", by: first.token.digest) }
            // Where nobody else is left, whoever owns the schema says so.
            try await desk.operators.confirm("new", by: nil)
            #expect(try await world.alarms() == [])
            _ = try await desk.enter("bob", .viewer, by: third)
        }
    }

    @Test func `Who manages operators has signed in a few minutes ago`() async throws {
        try await World.with { world in
            let desk = DeskPeople(world: world)
            let admin = try await desk.enter("root", .admin)
            try await world.pool.query(
                "UPDATE entitlement_sync.operator_session SET proved_at = proved_at - interval '5 minutes'"
            )
            await expectRefusal("ES007") { _ = try await desk.enter("ann", .agent, by: admin) }
            await expectRefusal("ES007") { try await desk.operators.disable("root", by: admin.token.digest) }
            #expect(try await desk.operators.all(by: admin.token.digest).count == 1)
            let noted = try await world.number(
                "SELECT count(*) FROM entitlement_sync.operator_event AS e WHERE e.kind = 'refused'"
            )
            #expect(noted == 2)
        }
    }

    @Test func `An erased account is no operator's any more`() async throws {
        try await World.with { world in
            try await world.add("user")
            try await world.add("other")
            let desk = DeskPeople(world: world)
            let root = try await desk.enter("root", .admin)
            _ = try await desk.enter("ann", .agent, by: root, user: "user")
            _ = try await desk.enter("bob", .agent, by: root)
            await expectRefusal("22023") { try await desk.operators.link("bob", to: "user", by: root.token.digest) }
            try await desk.operators.link("bob", to: "other", by: root.token.digest)
            _ = try await Erasure(pool: world.pool).erase("user")
            let linked = try await desk.operators.all(by: root.token.digest).compactMap(\.userID)
            #expect(linked == ["other"])
            let keys = try await world.number(
                "SELECT count(*) FROM entitlement_sync.operator AS o WHERE o.user_key IS NOT NULL"
            )
            #expect(keys == 1)
        }
    }
}
