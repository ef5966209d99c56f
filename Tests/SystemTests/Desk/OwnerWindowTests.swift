import Entitlements
import Foundation
import Postgres
import SupportDesk
import TestSupport
import Testing
import UserRequests

/// What an owner was asked, and said, holds for the evidence of that time, and for no other.
@Suite struct OwnerWindowTests {
    /// A case whose owner has three days, with evidence.
    private static func with(_ body: @Sendable (DeskCase, Int64) async throws -> Void) async throws {
        try await DeskCase.with { scene, ticket in
            try await anew(scene, ticket)
            try await body(scene, ticket)
        }
    }

    private static func anew(_ scene: DeskCase, _ ticket: Int64) async throws {
        try await scene.world.working(scene.patient) { try await scene.collect(ticket) }
    }

    /// Lets what was agreed to run out.
    private static func expire(_ scene: DeskCase) async throws {
        try await scene.world.pool.query("UPDATE entitlement_sync.ticket_approval SET expires_at = clock_timestamp()")
        try await scene.world.pool.query("SELECT entitlement_sync.apply_ticket_deadlines()")
    }

    @Test func `A time that a release made nothing of runs in full once the release is over`() async throws {
        try await Self.with { scene, ticket in
            let pool = scene.world.pool
            let reference = try #require(try await scene.only("claimant").reference)
            try await scene.world.app.release(to: reference, by: "owner")
            try await Self.anew(scene, ticket)
            try await scene.approveAll(ticket)
            #expect(try await scene.news("owner").isEmpty, "who gives it away is not asked")
            try await Self.expire(scene)
            #expect(try await scene.state(ticket) == "new")
            try await pool.query("UPDATE entitlement_sync.purchase_consent SET at = at - interval '31 days'")
            try await Self.anew(scene, ticket)
            try await pool.query(
                """
                UPDATE entitlement_sync.owner_window
                   SET asked_at = asked_at - interval '4 days', ends_at = ends_at - interval '4 days'
                """
            )
            try await scene.askOwner(ticket)
            #expect(try await scene.left(ticket) > 71)
            #expect(try await scene.news("owner") == ["ticket.owner_asked owner"])
            #expect(try await scene.act(scene.bea, .transfer, on: ticket) == "waiting_owner")
        }
    }

    @Test func `138: consent to one purchase's standing is none to another, also after everybody's approval ran out`()
        async throws
    {
        try await Self.with { scene, ticket in
            try await scene.askOwner(ticket)
            #expect(try await scene.reply("owner", nil, decision: "agree") == .taken)
            try await Self.expire(scene)
            try await scene.changeOwner(ends: "+60d")
            try await Self.anew(scene, ticket)
            try await scene.askOwner(ticket)
            #expect(try await scene.left(ticket) > 71)
        }
    }

    @Test func `Who takes a release back that they gave after an objection stops the transfer on its way`() async throws
    {
        try await Self.with { scene, ticket in
            let dan = try await scene.desk.enter("dan", .senior, by: scene.admin)
            let reference = try #require(try await scene.only("claimant").reference)
            try await scene.askOwner(ticket, approvals: 1)
            #expect(try await scene.reply("owner", nil, decision: "object") == .taken)
            try await scene.world.app.release(to: reference, by: "owner")
            try await Self.anew(scene, ticket)
            #expect(try await scene.facts(ticket).isSuperset(of: ["owner_objected", "owner_consented"]))
            #expect(try await scene.act(scene.cid, .claim, on: ticket) == nil)
            for person in [scene.cid, dan] { #expect(try await scene.approve(person, ticket) == nil) }
            try await scene.world.pool.query(
                "UPDATE entitlement_sync.owner_window SET ends_at = clock_timestamp() WHERE ends_at IS NOT NULL"
            )
            #expect(try await scene.act(scene.cid, .transfer, on: ticket) == nil)
            let transfers = Transfers(pool: scene.world.pool)
            let due = try #require(try await transfers.take(upTo: 1).first)
            let fresh = try await scene.evidenceAnew(ticket)
            #expect(try await scene.reply("owner", nil, decision: "object") == .taken, "again, in the same words")
            #expect(try await transfers.goOn(due, on: fresh, moving: ["sub"]) == .stopped("owner_objected"))
            #expect(try await scene.state(ticket) == "new")
            #expect(try await scene.calls() == 0)
        }
    }

    @Test func `A release that is over before the transfer begins is none`() async throws {
        try await Self.with { scene, ticket in
            let reference = try #require(try await scene.only("claimant").reference)
            try await scene.world.app.release(to: reference, by: "owner")
            try await Self.anew(scene, ticket)
            try await scene.approveAll(ticket)
            try await scene.world.pool.query(
                "UPDATE entitlement_sync.purchase_consent SET at = at - interval '31 days'"
            )
            #expect(try await scene.act(scene.bea, .transfer, on: ticket) == "evidence_changed")
            #expect(try await scene.state(ticket) == "new")
        }
    }

    @Test func `136: an owner hears once that a transfer was asked for, and nothing that a claimant typed`()
        async throws
    {
        try await Self.with { scene, ticket in
            let world = scene.world
            try await world.add("other")
            let second = try #require(
                try await scene.tickets(scene.ann)
                    .open(claimant: "other", orderID: "Somebody.Real@example.com", reason: "wrote a mail")
            )
            try await world.pool.query(
                """
                UPDATE entitlement_sync.ticket AS t SET subject_id = x.purchase_id
                  FROM entitlement_sync.ticket AS x WHERE t.id = \(second) AND x.id = \(ticket)
                """
            )
            try await Self.anew(scene, second)
            try await scene.askOwner(second)
            try await scene.askOwner(ticket)
            #expect(try await scene.state(second) == "waiting_owner")
            let told = try await world.texts(
                """
                SELECT n.data::text FROM entitlement_sync.ticket_news AS n
                  JOIN entitlement_sync.user_sync AS u USING (user_key)
                 WHERE u.user_id = 'owner' AND n.topic = 'ticket.owner_asked'
                """
            )
            #expect(told.count == 1)
            #expect(told.first?.contains("example.com") == false && told.first?.contains("\"until\"") == true)
            let shown = try await scene.only("owner").id.uuidString.lowercased()
            #expect(told.first?.contains(shown) == true)
        }
    }

    @Test func `189: a case that is opened again asks the owner again`() async throws {
        try await Self.with { scene, ticket in
            try await scene.askOwner(ticket, approvals: 1)
            #expect(try await scene.act(scene.bea, .refuse(how: "refuse", words: nil), on: ticket) == nil)
            try await scene.changeOwner(ends: "+60d")
            try await Self.anew(scene, ticket)
            #expect(try await scene.state(ticket) == "new")
            try await scene.world.pool.query(
                """
                UPDATE entitlement_sync.owner_window
                   SET asked_at = asked_at - interval '4 days', ends_at = ends_at - interval '4 days'
                """
            )
            try await scene.askOwner(ticket)
            #expect(try await scene.left(ticket) > 71)
        }
    }

    @Test func `136: an owner who has answered hears of the time that begins for another`() async throws {
        try await Self.with { scene, ticket in
            let world = scene.world
            func asked() async throws -> Int {
                try await scene.news("owner").count { $0.hasPrefix("ticket.owner_asked") }
            }
            func another(_ claimant: String) async throws {
                try await world.add(claimant)
                let other = try #require(
                    try await scene.tickets(scene.ann)
                        .open(claimant: claimant, orderID: "200000070000001", reason: "wrote a mail")
                )
                try await Self.anew(scene, other)
                #expect(try await scene.act(scene.bea, .claim, on: other) == nil)
                #expect(try await scene.approve(scene.bea, other) == nil)
            }
            try await scene.askOwner(ticket)
            try await another("second")
            #expect(try await asked() == 1)
            // To none of the two, for to whom it goes is not theirs to choose: both times run on.
            #expect(try await scene.reply("owner", nil, decision: "agree") == .taken)
            try await another("third")
            #expect(try await asked() == 2)
        }
    }

    @Test func `Evidence that was asked for is collected before an approval's turn comes`() async throws {
        try await Self.with { scene, ticket in
            #expect(try await scene.act(scene.bea, .claim, on: ticket) == nil)
            #expect(try await scene.reply("claimant", "there is something new") == .taken)
            #expect(try await scene.approve(scene.bea, ticket) == nil)
            let due = try await scene.world.number(
                "SELECT count(*) FROM entitlement_sync.evidence_request AS r WHERE r.due_at <= clock_timestamp()"
            )
            #expect(due == 1)
        }
    }

    @Test func `The owner has time to object: nothing is moved before it is over`() async throws {
        try await DeskCase.with { scene, ticket in
            var setup = scene.setup
            setup.variables["TRANSFER_OWNER_HOURS"] = "1"
            try await scene.world.working(setup) {
                try await scene.collect(ticket)
                #expect(try await scene.act(scene.bea, .claim, on: ticket) == nil)
                #expect(try await scene.approve(scene.bea, ticket) == nil)
                #expect(try await scene.approve(scene.cid, ticket) == nil)
                #expect(try await scene.state(ticket) == "waiting_owner")
                #expect(try await scene.act(scene.bea, .transfer, on: ticket) == "waiting_owner")
                // The owner hears of it, once, and not who asks.
                #expect(try await CaseRecords(pool: scene.world.pool).tell() == 1)
                let told = try await scene.ticketMessages()
                #expect(told.count == 1 && told.first?.hasPrefix("owner ticket.owner_asked") == true, "\(told)")
                #expect(told.first?.contains("claimant") == false && told.first?.contains("200000070000001") == true)
                try await scene.world.pool.query(
                    "UPDATE entitlement_sync.owner_window SET ends_at = clock_timestamp() WHERE ticket_id = \(ticket)"
                )
                #expect(try await scene.act(scene.bea, .transfer, on: ticket) == nil)
                try await scene.untilEnded(ticket)
            }
            #expect(try await scene.state(ticket) == "transferred")
            #expect(try await CaseRecords(pool: scene.world.pool).tell() == 2)
            let told = try await scene.ticketMessages().suffix(2)
            #expect(told.first?.hasPrefix("claimant ticket.decided") == true)
            #expect(told.last?.hasPrefix("owner ticket.decided") == true && told.last?.contains("claimant") == false)
            #expect(told.allSatisfy { $0.contains("transferred") })
        }
    }
}
