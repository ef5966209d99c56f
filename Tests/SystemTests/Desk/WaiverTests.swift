import Entitlements
import Foundation
import Postgres
import SupportDesk
import TestSupport
import Testing
import UserRequests

/// A senior who skips the rest of the time that an owner has to object: who may, when, and what undoes it.
@Suite struct WaiverTests {
    private static let waive = DeskTickets.Act.waive(reason: "the owner wrote that they gave it away")

    /// A case whose owner has three days, with evidence.
    private static func with(_ body: @Sendable (DeskCase, Int64) async throws -> Void) async throws {
        try await DeskCase.with { scene, ticket in
            try await scene.world.working(scene.patient) { try await scene.collect(ticket) }
            try await body(scene, ticket)
        }
    }

    @Test func `A senior skips what is left of the owner's time, with a reason on record; then the transfer begins`()
        async throws
    {
        try await Self.with { scene, ticket in
            try await scene.askOwner(ticket)
            #expect(try await scene.act(scene.bea, .transfer, on: ticket) == "waiting_owner")
            #expect(try await scene.act(scene.cid, Self.waive, on: ticket) == nil)
            #expect(try await scene.state(ticket) == "approved")
            #expect(try await scene.events(ticket).suffix(2) == ["owner_window_waived", "note"])
            #expect(try await scene.ended() == ["-", "-"])
            let shown = try await scene.shown(ticket)
            #expect(shown.ownerWaiver?.by == "cid" && shown.ownerUntil == shown.ownerWaiver?.at)
            #expect(shown.events.last?.text == "the owner wrote that they gave it away")
            #expect(try await scene.agreed() == 0, "nobody has agreed in the owner's name")
            try await scene.world.working(scene.patient) {
                #expect(try await scene.act(scene.bea, .transfer, on: ticket) == nil)
                try await scene.untilEnded(ticket)
            }
            #expect(try await scene.state(ticket) == "transferred")
            #expect(try await scene.calls() == 1)
            #expect(try await scene.shown(ticket).ownerWaiver?.by == "cid", "it stays on record")
            let told = try await scene.world.texts(
                """
                SELECT e.words FROM entitlement_sync.user_sync AS u
                 CROSS JOIN LATERAL entitlement_sync.user_events(u.user_key) AS e
                 WHERE u.user_id = 'claimant' AND e.words LIKE '%owner no longer%'
                """
            )
            #expect(told.count == 1)
        }
    }

    @Test func `Skipped before the second approval, it waits for that approval and for nothing else`() async throws {
        try await Self.with { scene, ticket in
            try await scene.askOwner(ticket, approvals: 1)
            #expect(try await scene.act(scene.cid, Self.waive, on: ticket) == nil)
            #expect(try await scene.state(ticket) == "needs_second", "a waiver is no approval")
            #expect(try await scene.act(scene.bea, .transfer, on: ticket) == "state")
            #expect(try await scene.approve(scene.cid, ticket) == nil)
            #expect(try await scene.state(ticket) == "approved")
            #expect(try await scene.act(scene.bea, .transfer, on: ticket) == nil)
        }
    }

    // MARK: Who, and with what

    @Test func `Nobody but a senior skips it, and with a fresh sign-in and a reason alone`() async throws {
        try await Self.with { scene, ticket in
            try await scene.askOwner(ticket)
            let view = try await scene.desk.enter("vic", .viewer, by: scene.admin)
            let audit = try await scene.desk.enter("aud", .auditor, by: scene.admin)
            for person in [view, audit, scene.admin, scene.ann, scene.bea] {
                await expectRefusal { _ = try await scene.act(person, Self.waive, on: ticket) }
            }
            let new = try await scene.desk.enter("new", .senior, by: scene.admin, confirmed: false)
            await expectRefusal { _ = try await scene.act(new, Self.waive, on: ticket) }
            for reason in ["", " \n\t", String(repeating: "x", count: 4001)] {
                await expectRefusal("22023") { _ = try await scene.act(scene.cid, .waive(reason: reason), on: ticket) }
            }
            await expectRefusal("22023") { _ = try await scene.act(scene.cid, Self.waive, on: 999) }
            try await scene.world.pool.query(
                "UPDATE entitlement_sync.operator_session SET proved_at = proved_at - interval '10 minutes'"
            )
            await expectRefusal("ES007") { _ = try await scene.act(scene.cid, Self.waive, on: ticket) }
            #expect(try await scene.state(ticket) == "waiting_owner")
            #expect(try await scene.shown(ticket).ownerWaiver == nil)
            let noted = try await scene.world.number(
                "SELECT count(*) FROM entitlement_sync.operator_event AS e WHERE e.kind = 'refused'"
            )
            #expect(noted == 7)
        }
    }

    @Test(arguments: ["claimant", "owner"])
    func `145: nobody skips a time in a case of their own account`(_ side: String) async throws {
        try await Self.with { scene, ticket in
            try await scene.askOwner(ticket)
            let eve = try await scene.desk.enter("eve", .senior, by: scene.admin, user: side)
            #expect(try await scene.act(eve, Self.waive, on: ticket) == "own_case")
            #expect(try await scene.world.alarms().contains("operator_own_case"))
            #expect(try await scene.state(ticket) == "waiting_owner")
        }
    }

    @Test func `It is skipped where it runs, by whom the case is not kept from, and once`() async throws {
        try await Self.with { scene, ticket in
            #expect(try await scene.act(scene.cid, Self.waive, on: ticket) == "state")
            #expect(try await scene.act(scene.bea, .claim, on: ticket) == nil)
            #expect(try await scene.act(scene.cid, Self.waive, on: ticket) == "held")
            #expect(try await scene.act(scene.bea, .release, on: ticket) == nil)
            #expect(try await scene.act(scene.cid, .claim, on: ticket) == nil)
            #expect(try await scene.act(scene.cid, Self.waive, on: ticket) == "state")
            #expect(try await scene.act(scene.cid, .release, on: ticket) == nil)
            try await scene.askOwner(ticket)
            #expect(try await scene.act(scene.cid, Self.waive, on: ticket) == nil)
            #expect(try await scene.act(scene.cid, Self.waive, on: ticket) == "no_window")
            #expect(try await scene.act(scene.bea, .transfer, on: ticket) == nil)
            #expect(try await scene.act(scene.cid, Self.waive, on: ticket) == "state")
            #expect(try await scene.events(ticket).count { $0 == "owner_window_waived" } == 1)
        }
    }

    @Test func `When the owner changes, nothing stays of what they were asked and of the waiver`() async throws {
        try await Self.with { scene, ticket in
            try await scene.askOwner(ticket, approvals: 1)
            #expect(try await scene.act(scene.cid, Self.waive, on: ticket) == nil)
            _ = try await scene.evidenceAnew(ticket, owned: false)
            #expect(try await scene.world.number("SELECT count(*) FROM entitlement_sync.owner_window") == 0)
            #expect(try await scene.world.number("SELECT count(*) FROM entitlement_sync.owner_waiver") == 0)
            #expect(try await scene.state(ticket) == "new")
        }
    }

    @Test func `Where no time of the owner's runs there is none to skip`() async throws {
        try await DeskCase.with { scene, ticket in
            try await scene.world.working(scene.setup) { try await scene.collect(ticket) }
            #expect(try await scene.act(scene.bea, .claim, on: ticket) == nil)
            #expect(try await scene.approve(scene.bea, ticket) == nil)
            #expect(try await scene.act(scene.cid, Self.waive, on: ticket) == "no_window")
            #expect(try await scene.approve(scene.cid, ticket) == nil)
            #expect(try await scene.state(ticket) == "approved")
            #expect(try await scene.act(scene.cid, Self.waive, on: ticket) == "no_window")
            // As where the end of the time was moved after everybody had agreed.
            try await scene.world.pool.query(
                "UPDATE entitlement_sync.owner_window SET ends_at = clock_timestamp() + interval '1 day'"
            )
            #expect(try await scene.act(scene.cid, Self.waive, on: ticket) == nil)
            #expect(try await scene.act(scene.bea, .transfer, on: ticket) == nil)
        }
    }

    @Test func `Whoever skips it is never the only one who agreed`() async throws {
        try await Self.with { scene, ticket in
            let pool = scene.world.pool
            try await pool.query("ALTER TABLE entitlement_sync.ticket_evidence DISABLE TRIGGER append_only")
            try await pool.query("UPDATE entitlement_sync.ticket_evidence SET approvals = 1")
            #expect(try await scene.act(scene.cid, .claim, on: ticket) == nil)
            #expect(try await scene.approve(scene.cid, ticket) == nil)
            #expect(try await scene.state(ticket) == "waiting_owner")
            #expect(try await scene.act(scene.cid, Self.waive, on: ticket) == "only_approver")
            #expect(try await scene.state(ticket) == "waiting_owner")
            let dan = try await scene.desk.enter("dan", .senior, by: scene.admin)
            #expect(try await scene.act(dan, Self.waive, on: ticket) == nil)
            #expect(try await scene.state(ticket) == "approved")
            // Whatever stands in the row.
            try await pool.query(
                """
                UPDATE entitlement_sync.owner_waiver SET operator_id =
                       (SELECT o.id FROM entitlement_sync.operator AS o WHERE o.name = 'cid')
                """
            )
            #expect(try await scene.act(scene.bea, .transfer, on: ticket) == "approvals")
            #expect(try await scene.state(ticket) == "new")
        }
    }

    // MARK: The owner's word

    @Test func `Who objected is not passed over, not even when everybody agrees knowing of it`() async throws {
        try await Self.with { scene, ticket in
            try await scene.askOwner(ticket)
            #expect(try await scene.reply("owner", nil, decision: "object") == .taken)
            #expect(try await scene.act(scene.cid, Self.waive, on: ticket) == "owner_objected")
            try await scene.world.working(scene.patient) { try await scene.collect(ticket) }
            let dan = try await scene.desk.enter("dan", .senior, by: scene.admin)
            #expect(try await scene.act(scene.cid, .claim, on: ticket) == nil)
            for person in [scene.cid, dan] { #expect(try await scene.approve(person, ticket) == nil) }
            #expect(try await scene.state(ticket) == "waiting_owner")
            #expect(try await scene.act(dan, Self.waive, on: ticket) == "owner_objected")
            #expect(try await scene.state(ticket) == "waiting_owner")
        }
    }

    @Test func `An owner whose time was skipped objects as long as nothing has begun, and has all of it anew`()
        async throws
    {
        try await Self.with { scene, ticket in
            try await scene.askOwner(ticket)
            #expect(try await scene.act(scene.cid, Self.waive, on: ticket) == nil)
            #expect(try await scene.only("owner").state == .open)
            #expect(try await scene.reply("owner", nil, decision: "object") == .taken)
            #expect(try await scene.state(ticket) == "new")
            #expect(try await scene.ended() == ["owner_objected", "owner_objected"])
            #expect(try await scene.shown(ticket).ownerWaiver == nil)
            try await scene.world.working(scene.patient) { try await scene.collect(ticket) }
            let dan = try await scene.desk.enter("dan", .senior, by: scene.admin)
            #expect(try await scene.act(scene.cid, .claim, on: ticket) == nil)
            for person in [scene.cid, dan] { #expect(try await scene.approve(person, ticket) == nil) }
            #expect(try await scene.state(ticket) == "waiting_owner")
            #expect(try await scene.left(ticket) > 71)
        }
    }

    @Test func `An owner's yes to a question that was skipped meanwhile counts for nothing, and is not needed`()
        async throws
    {
        try await Self.with { scene, ticket in
            try await scene.askOwner(ticket, approvals: 1)
            let asked = try #require(try await scene.only("owner").questionID)
            #expect(try await scene.act(scene.cid, Self.waive, on: ticket) == nil)
            #expect(try await scene.only("owner").questionID == nil, "nobody is asked any more")
            #expect(try await scene.reply("owner", nil, decision: "agree", questionID: asked) == .questionChanged)
            #expect(try await scene.agreed() == 0, "neither by the owner nor in their name")
            #expect(try await scene.approve(scene.cid, ticket) == nil)
            #expect(try await scene.state(ticket) == "approved")
        }
    }

    @Test func `A desk's database user skips it by the function alone, and a worker's not at all`() async throws {
        try await Self.with { scene, ticket in
            try await scene.askOwner(ticket)
            let session = PostgresBytes(scene.cid.token.digest)
            func act(_ role: String, _ query: PostgresQuery) async throws -> [PostgresRow] {
                try await scene.world.pool.withTransaction { connection in
                    try await connection.query("SET LOCAL ROLE \(rawSQL: role)")
                    return Array(try await connection.query(query))
                }
            }
            let waive: PostgresQuery =
                "SELECT entitlement_sync.waive_owner_window(\(session), \(ticket), 'gave it away')"
            await expectRefusal(SQLState.insufficientPrivilege) { _ = try await act("entitlement_sync_worker", waive) }
            for role in ["entitlement_sync_support", "entitlement_sync_worker", "entitlement_sync_auditor"] {
                await expectRefusal(SQLState.insufficientPrivilege) {
                    _ = try await act(role, "UPDATE entitlement_sync.owner_waiver SET at = now()")
                }
            }
            let said = try await act("entitlement_sync_support", waive)
            #expect(try said.first?.decode(String?.self, at: 0) == nil)
            #expect(try await scene.state(ticket) == "approved")
            for query: PostgresQuery in [
                "SELECT w.operator FROM entitlement_sync.ticket_waiver(\(session), \(ticket)) AS w",
                "SELECT entitlement_sync.retry_tokens(\(session), \(ticket))",
            ] {
                #expect(try await act("entitlement_sync_support", query).count == 1)
            }
            #expect(
                try await act(
                    "entitlement_sync_support",
                    "SELECT k.state FROM entitlement_sync.ticket_tokens(\(session), \(ticket)) AS k"
                ).isEmpty
            )
        }
    }

    // MARK: What undoes it

    @Test func `138: on other evidence nothing is skipped: the owner has the whole time again`() async throws {
        try await Self.with { scene, ticket in
            try await scene.askOwner(ticket)
            #expect(try await scene.act(scene.cid, Self.waive, on: ticket) == nil)
            try await scene.changeOwner(ends: "+60d")
            try await scene.world.working(scene.patient) { try await scene.collect(ticket) }
            #expect(try await scene.state(ticket) == "new")
            #expect(try await scene.shown(ticket).ownerWaiver == nil)
            try await scene.askOwner(ticket)
            #expect(try await scene.left(ticket) > 71)
            #expect(try await scene.act(scene.bea, .transfer, on: ticket) == "waiting_owner")
        }
    }

    @Test(arguments: ["expired", "withdrawn", "evidence"])
    func `With the approvals goes what was skipped; on the same evidence the time that had begun runs on`(_ how: String)
        async throws
    {
        try await Self.with { scene, ticket in
            let pool = scene.world.pool
            try await scene.askOwner(ticket, approvals: 1)
            #expect(try await scene.act(scene.cid, Self.waive, on: ticket) == nil)
            #expect(try await scene.left(ticket) == 0)
            switch how {
            case "expired":
                try await pool.query("UPDATE entitlement_sync.ticket_approval SET expires_at = clock_timestamp()")
                try await pool.query("SELECT entitlement_sync.apply_ticket_deadlines()")
            case "withdrawn": #expect(try await scene.act(scene.bea, .withdraw, on: ticket) == nil)
            default:
                // Nobody's agreement is left that the change of evidence could end.
                try await pool.query(
                    "UPDATE entitlement_sync.ticket_approval SET ended_at = clock_timestamp(), ended_by = 'role_lost'"
                )
                try await scene.changeOwner(ends: "+60d")
                try await scene.world.working(scene.patient) { try await scene.collect(ticket) }
            }
            #expect(try await scene.shown(ticket).ownerWaiver == nil)
            // Who is asked again is given the whole time again; what was asked about the same evidence runs on.
            if how == "expired" { #expect(try await scene.left(ticket) > 71) }
            #expect(
                try await scene.world.number(
                    "SELECT count(*) FROM entitlement_sync.owner_window AS w WHERE w.asked_at IS NOT NULL"
                ) == (how == "expired" ? 1 : 0)
            )
            #expect(
                try await scene.world.number(
                    "SELECT count(*) FROM entitlement_sync.owner_waiver"
                ) == 0
            )
        }
    }

    @Test func `146: what somebody skipped counts by their role of this moment`() async throws {
        try await Self.with { scene, ticket in
            let dan = try await scene.desk.enter("dan", .senior, by: scene.admin)
            try await scene.askOwner(ticket)
            #expect(try await scene.act(dan, Self.waive, on: ticket) == nil)
            #expect(try await scene.state(ticket) == "approved")
            try await scene.desk.operators.disable("dan", by: scene.admin.token.digest)
            #expect(try await scene.act(scene.bea, .transfer, on: ticket) == "role_lost")
            #expect(try await scene.state(ticket) == "new")
            #expect(try await scene.shown(ticket).ownerWaiver == nil)
            #expect(try await scene.calls() == 0)
        }
    }

    @Test func `146: lost before the second approval, the owner is waited for again`() async throws {
        try await Self.with { scene, ticket in
            let dan = try await scene.desk.enter("dan", .senior, by: scene.admin)
            try await scene.askOwner(ticket, approvals: 1)
            #expect(try await scene.act(dan, Self.waive, on: ticket) == nil)
            try await scene.desk.operators.disable("dan", by: scene.admin.token.digest)
            #expect(try await scene.approve(scene.cid, ticket) == nil)
            #expect(try await scene.state(ticket) == "waiting_owner")
            #expect(try await scene.left(ticket) > 71)
        }
    }

    @Test func `146: lost after the transfer has begun, it stops before anything is moved`() async throws {
        try await Self.with { scene, ticket in
            let dan = try await scene.desk.enter("dan", .senior, by: scene.admin)
            try await scene.askOwner(ticket)
            #expect(try await scene.act(dan, Self.waive, on: ticket) == nil)
            #expect(try await scene.act(scene.bea, .transfer, on: ticket) == nil)
            try await scene.desk.operators.disable("dan", by: scene.admin.token.digest)
            try await scene.world.working(scene.patient) { try await scene.untilEnded(ticket) }
            #expect(try await scene.state(ticket) == "new")
            #expect(
                try await scene.world.texts("SELECT x.last_error FROM entitlement_sync.transfer AS x") == ["role_lost"]
            )
            #expect(try await scene.calls() == 0)
        }
    }
}

extension DeskCase {
    /// What the desk shows of a ticket.
    func shown(_ ticket: Int64) async throws -> DeskTicket {
        try DeskTicket(json: try #require(try await tickets(ann).show(ticket)))
    }

    /// How many whole hours the owner still has.
    func left(_ ticket: Int64) async throws -> Int64 {
        try await world.number(
            """
            SELECT greatest(0, ceil(extract(epoch FROM w.ends_at - clock_timestamp()) / 3600))::bigint
              FROM entitlement_sync.owner_window AS w WHERE w.ticket_id = \(ticket)
            """
        )
    }

    fileprivate func agreed() async throws -> Int64 {
        try await world.number(
            "SELECT count(*) FROM entitlement_sync.owner_window AS w WHERE w.consented_at IS NOT NULL"
        )
    }
}
