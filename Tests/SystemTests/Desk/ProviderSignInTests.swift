import Foundation
import Postgres
import SupportDesk
import TestSupport
import Testing

/// Operators whom the identity provider names: their accounts, roles and holds, as the database keeps them.
@Suite struct ProviderSignInTests {
    private static let issuer = "https://id.example.com"

    private func arrive(
        _ desk: DeskPeople,
        _ subject: String,
        role: String?,
        names: [String] = ["bea@example.com"],
        issuer: String = issuer,
        provedAgo: Duration? = .zero
    ) async throws -> (arrival: Operators.Arrival, token: SessionToken) {
        let token = SessionToken()
        let arrival = try await desk.operators.signIn(
            Operators.Identity(issuer: issuer, subject: subject, names: names, role: role, provedAgo: provedAgo),
            session: token.digest,
            for: .seconds(1_800)
        )
        return (arrival, token)
    }

    private func held(_ world: World, _ name: String) async throws -> Bool {
        try await world.number(
            """
            SELECT count(*) FROM entitlement_sync.operator AS o
             WHERE o.name = \(name) AND o.held_until > clock_timestamp() + interval '2 days'
            """
        ) == 1
    }

    @Test func `A person is a subject: names, roles and holds follow, and another's name is not taken`() async throws {
        try await World.with { world in
            let desk = DeskPeople(world: world)
            let root = try await desk.enter("root", .admin)
            #expect(try await arrive(desk, "s-1", role: "agent").arrival == .otherProvider, "none is in use")
            try await desk.operators.markBreakGlass("root", true, by: nil)
            try await desk.operators.use(provider: Self.issuer)
            #expect(try await desk.operators.provider() == Self.issuer)
            let first = try await arrive(desk, "s-1", role: "agent", names: ["Bea.Smith@example.com"])
            #expect(first.arrival == .signedIn)
            #expect(try await desk.operators.acting(first.token.digest, as: "work").name == "bea.smith")
            // A hold of a day, as for any new agent; of an approver until an admin's word.
            #expect(try await held(world, "bea.smith") == false)
            let promoted = try await arrive(desk, "s-1", role: "approver", names: ["another name"])
            #expect(try await desk.operators.acting(promoted.token.digest, as: "view").name == "bea.smith")
            #expect(try await held(world, "bea.smith"))
            await expectRefusal { _ = try await desk.operators.acting(promoted.token.digest, as: "approve") }
            try await desk.operators.confirm("bea.smith", by: root.token.digest)
            #expect(try await desk.operators.acting(promoted.token.digest, as: "approve").role == "approver")
            _ = try await arrive(desk, "s-1", role: "approver")
            #expect(try await held(world, "bea.smith") == false, "confirmed once is confirmed")
            _ = try await arrive(desk, "s-1", role: "agent")
            _ = try await arrive(desk, "s-1", role: "senior")
            #expect(try await held(world, "bea.smith"), "each rise waits for a word")
            // Names of others, and names that are none.
            #expect(try await arrive(desk, "s-2", role: "agent", names: ["bea.smith"]).arrival == .nameTaken)
            #expect(try await arrive(desk, "s-2", role: "agent", names: ["root"]).arrival == .nameTaken)
            #expect(try await arrive(desk, "s-2", role: "agent", names: ["", "@", "--"]).arrival == .nameTaken)
            #expect(try await arrive(desk, "s-2", role: "agent", names: ["Cid Ölund"]).arrival == .signedIn)
            #expect(
                try await arrive(desk, "s-1", role: "agent", issuer: "https://evil.example").arrival == .otherProvider
            )
            let rows = try await desk.operators.all(by: root.token.digest)
            #expect(rows.map(\.name) == ["bea.smith", "cid-lund", "root"])
            #expect(rows.map(\.signsIn) == ["provider", "provider", "break_glass"])
        }
    }

    @Test func `Without a role, disabled, or too old, a sign-in does nothing`() async throws {
        try await World.with { world in
            let desk = DeskPeople(world: world)
            let root = try await desk.enter("root", .admin)
            try await desk.operators.markBreakGlass("root", true, by: nil)
            try await desk.operators.use(provider: Self.issuer)
            let session = try await arrive(desk, "s-1", role: "approver").token
            #expect(try await arrive(desk, "s-1", role: nil).arrival == .noRole)
            await expectRefusal { _ = try await desk.operators.acting(session.digest, as: "view") }
            #expect(try await arrive(desk, "s-9", role: nil).arrival == .noRole, "no account comes of it")
            #expect(try await world.number("SELECT count(*) FROM entitlement_sync.operator") == 2)
            let back = try await arrive(desk, "s-1", role: "approver", provedAgo: nil).token
            let fresh: PostgresQuery =
                "SELECT entitlement_sync.acting(\(PostgresBytes(back.digest)), 'view', interval '10 minutes')"
            await expectRefusal("ES007") { try await world.pool.query(fresh) }
            try await world.pool.query("UPDATE entitlement_sync.operator_session SET ends_at = clock_timestamp()")
            await expectRefusal { _ = try await desk.operators.acting(back.digest, as: "view") }
            let again = try await desk.signIn(root)
            guard case .signedIn(let admin, _) = again else {
                Issue.record("\(again)")
                return
            }
            #expect(try await world.alarms() == ["break_glass_used", "operator_held"])
            try await desk.operators.disable("bea", by: admin.digest)
            #expect(try await arrive(desk, "s-1", role: "approver").arrival == .disabled)
        }
    }

    @Test func `One person is one pair of eyes, whichever way they come in`() async throws {
        try await DeskCase.with { scene, ticket in
            try await scene.world.working(scene.setup) { try await scene.collect(ticket) }
            #expect(try await scene.act(scene.bea, .claim, on: ticket) == nil)
            #expect(try await scene.approve(scene.bea, ticket) == nil)
            let counts: PostgresQuery = """
                SELECT count(*) FROM entitlement_sync.ticket_approval AS a
                  JOIN entitlement_sync.ticket AS t ON t.id = a.ticket_id
                  JOIN entitlement_sync.ticket_evidence AS e ON e.id = t.evidence_id
                 WHERE entitlement_sync.approval_counts(a, t, e, 'approve')
                """
            #expect(try await scene.world.number(counts) == 1)
            try await scene.desk.operators.markBreakGlass(scene.admin.name, true, by: nil)
            // What a password agreed to counts no more, since its owner may come back under another account.
            try await scene.desk.operators.use(provider: Self.issuer)
            #expect(try await scene.world.number(counts) == 0)
            await expectRefusal { _ = try await scene.desk.acting(scene.bea, "view") }
            guard case .not(.provider) = try await scene.desk.signIn(scene.bea) else {
                Issue.record("bea's password is taken")
                return
            }
            // An admin says whose the account is; it waits for another admin then, and is nobody's second account.
            try await scene.desk.operators.identify("bea", as: "s-1", by: scene.admin.token.digest)
            let session = try await arrive(scene.desk, "s-1", role: "approver").token
            #expect(try await scene.desk.operators.acting(session.digest, as: "view").name == "bea")
            await expectRefusal { _ = try await scene.desk.operators.acting(session.digest, as: "approve") }
            await expectRefusal { try await scene.desk.operators.confirm("bea", by: scene.admin.token.digest) }
            await expectRefusal("22023") {
                try await scene.desk.operators.identify("cid", as: "s-1", by: scene.admin.token.digest)
            }
            #expect(try await scene.desk.operators.leaveProvider())
            await expectRefusal { _ = try await scene.desk.operators.acting(session.digest, as: "view") }
        }
    }

    @Test func `A terminal is signed in for as long as the console was, by a fresh sign-in, and once`() async throws {
        try await World.with { world in
            let desk = DeskPeople(world: world)
            let root = try await desk.enter("root", .admin)
            let terminal = SessionToken()
            let code = try await desk.operators.askTerminal(terminal.digest)
            #expect(code.wholeMatch(of: /[BCDFGHJKLMNPQRSTVWXZ]{8}/) != nil)
            #expect(try await desk.operators.name(of: terminal.digest) == nil)
            #expect(try await desk.operators.terminal(asking: "BBBBBBBB", root.token.digest) == nil)
            #expect(try await desk.operators.terminal(asking: code, root.token.digest)?.user.isEmpty == false)
            #expect(try await desk.operators.allowTerminal("BBBBBBBB", by: root.token.digest) == false)
            try await world.pool.query(
                """
                UPDATE entitlement_sync.operator_session SET proved_at = proved_at - interval '11 minutes',
                                                             ends_at = clock_timestamp() + interval '1 hour'
                """
            )
            await expectRefusal("ES007") {
                _ = try await desk.operators.allowTerminal(code, by: root.token.digest)
            }
            try await world.pool.query("UPDATE entitlement_sync.operator_session SET proved_at = clock_timestamp()")
            #expect(try await desk.operators.allowTerminal(code, by: root.token.digest))
            #expect(try await desk.operators.name(of: terminal.digest) == "root")
            #expect(try await desk.operators.allowTerminal(code, by: root.token.digest) == false)
            let alike = try await world.number(
                "SELECT count(DISTINCT s.ends_at) FROM entitlement_sync.operator_session AS s"
            )
            #expect(alike == 1)
            let late = try await desk.operators.askTerminal(SessionToken().digest)
            try await world.pool.query("UPDATE entitlement_sync.terminal_request SET at = at - interval '6 minutes'")
            #expect(try await desk.operators.allowTerminal(late, by: root.token.digest) == false)
        }
    }
}
