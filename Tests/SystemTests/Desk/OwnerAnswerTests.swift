import Entitlements
import Foundation
import Postgres
import SupportDesk
import TestSupport
import Testing
import UserRequests

/// What owners of purchases hear of transfers, and say to them.
@Suite struct OwnerAnswerTests {
    @Test func `An owner who is asked hears of the transfer and of nobody; an objection voids what was agreed to`()
        async throws
    {
        try await DeskCase.with { scene, ticket in
            try await scene.world.working(scene.patient) {
                try await scene.collect(ticket)
                try await scene.askOwner(ticket)
                let asked = try await scene.only("owner")
                #expect(asked.role == .owner && asked.state == .question && asked.question == "transfer")
                #expect(asked.reference == nil && asked.store == "app_store" && asked.productID != nil)
                let days = try #require(asked.answerBy).prefix(10) > #require(asked.askedAt).prefix(10)
                #expect(days)
                #expect(try await scene.news("owner") == ["ticket.owner_asked owner"])
                let claimants = try await scene.only("claimant")
                #expect(claimants.id != asked.id && claimants.state == .open, "who asks is told nothing of it")

                for user in ["claimant", "nobody"] {
                    let foreign = try await scene.world.app.reply(
                        CaseReply(text: nil, decision: "agree", questionID: asked.questionID),
                        to: asked.id,
                        by: user
                    )
                    #expect(foreign == .notFound, "nobody but the owner has a word in it")
                }
                for _ in 0..<2 { #expect(try await scene.reply("owner", "it is mine", decision: "object") == .taken) }
                #expect(try await scene.replies() == 1)
                #expect(try await scene.ended() == ["owner_objected", "owner_objected"])
                #expect(try await scene.state(ticket) == "new")
                #expect(try await scene.only("owner").state == .open)
                try await scene.world.waitUntil(
                    """
                    SELECT count(*) FROM entitlement_sync.ticket AS t
                      JOIN entitlement_sync.ticket_evidence AS e ON e.id = t.evidence_id
                     WHERE 'owner_objected' = ANY (e.facts) AND e.reason = 'owner_objected' AND e.hindrance = 'needs_senior'
                    """,
                    comment: "the evidence does not say that the owner objected"
                )
                #expect(try await scene.act(scene.bea, .claim, on: ticket) == nil)
                #expect(try await scene.approve(scene.bea, ticket) == "needs_senior")
                // A word that is in the evidence undoes nothing a second time.
                #expect(try await scene.act(scene.bea, .release, on: ticket) == nil)
                #expect(try await scene.act(scene.cid, .claim, on: ticket) == nil)
                #expect(try await scene.approve(scene.cid, ticket) == nil)
                #expect(try await scene.reply("owner", "still mine", decision: "object") == .taken)
                #expect(try await scene.ended().last == "-")
            }
        }
    }

    @Test func `Before the evidence knows of an objection nobody can go past it`() async throws {
        try await DeskCase.with { scene, ticket in
            try await scene.world.working(scene.patient) { try await scene.collect(ticket) }
            try await scene.askOwner(ticket)
            #expect(try await scene.reply("owner", nil, decision: "object") == .taken)
            #expect(try await scene.act(scene.bea, .claim, on: ticket) == nil)
            #expect(try await scene.approve(scene.bea, ticket) == nil)
            #expect(try await scene.approve(scene.cid, ticket) == nil)
            #expect(try await scene.state(ticket) == "needs_second")
            #expect(try await scene.act(scene.cid, .transfer, on: ticket) == "state")
        }
    }

    @Test func `An owner who agrees is waited for no longer, whoever agrees next; nothing else is skipped`()
        async throws
    {
        try await DeskCase.with { scene, ticket in
            try await scene.world.working(scene.patient) { try await scene.collect(ticket) }
            try await scene.askOwner(ticket, approvals: 1)
            #expect(try await scene.reply("owner", nil, decision: "agree") == .taken)
            #expect(try await scene.only("owner").state == .open)
            #expect(try await scene.state(ticket) == "needs_second")
            #expect(try await scene.act(scene.bea, .transfer, on: ticket) == "state")
            #expect(try await scene.approve(scene.cid, ticket) == nil)
            #expect(try await scene.state(ticket) == "approved")
            #expect(try await scene.facts(ticket).isEmpty, "to whom it goes the owner has not said")
            // A change of mind counts as long as nothing has begun.
            #expect(try await scene.reply("owner", nil, decision: "object") == .taken)
            #expect(try await scene.state(ticket) == "new")
        }
    }

    @Test func `What has begun an objection puts on record; before anything was moved it stops by its own rules`()
        async throws
    {
        try await DeskCase.with { scene, ticket in
            try await scene.world.working(scene.patient) { try await scene.collect(ticket) }
            try await scene.askOwner(ticket)
            #expect(try await scene.reply("owner", nil, decision: "agree") == .taken)
            #expect(try await scene.act(scene.bea, .transfer, on: ticket) == nil)
            #expect(try await scene.state(ticket) == "executing")
            #expect(try await scene.reply("owner", "stop", decision: "object") == .taken)
            #expect(try await scene.state(ticket) == "executing")
            #expect(try await scene.ended() == ["-", "-"])
            #expect(try await scene.events(ticket).last == "owner_objected")
            try await scene.world.working(scene.patient) { try await scene.untilEnded(ticket) }
            #expect(try await scene.state(ticket) == "new")
            #expect(try await scene.calls() == 0)
        }
    }

    @Test func `An objection after the call changes nothing of it`() async throws {
        try await DeskCase.with { scene, ticket in
            try await scene.world.working(scene.patient) {
                try await scene.collect(ticket)
                try await scene.askOwner(ticket)
                #expect(try await scene.reply("owner", nil, decision: "agree") == .taken)
                #expect(try await scene.act(scene.bea, .transfer, on: ticket) == nil)
                try await scene.untilEnded(ticket)
                #expect(try await scene.state(ticket) == "transferred")
            }
            #expect(try await scene.only("owner").state == .decided)
            #expect(try await scene.reply("owner", "too late", decision: "object") == .decided)
            #expect(try await scene.news("owner") == ["ticket.owner_asked owner", "ticket.decided owner transferred"])
        }
    }

    @Test func `A claimant's answer leaves an owner's time alone, and an objection finds every ticket of the purchase`()
        async throws
    {
        try await DeskCase.with { scene, ticket in
            try await scene.world.add("other")
            let second = try #require(
                try await scene.tickets(scene.ann)
                    .open(claimant: "other", orderID: "200000070000001", reason: "wrote a mail")
            )
            try await scene.world.working(scene.patient) {
                for id in [ticket, second] {
                    try await scene.collect(id)
                    try await scene.askOwner(id)
                }
            }
            #expect(try await scene.only("owner").state == .question, "how many asked is not the owner's to know")
            #expect(try await scene.reply("claimant", "please hurry") == .taken)
            #expect(try await scene.state(ticket) == "waiting_owner")
            // With two who want it, consent is to neither; the owner sees what they would see with one.
            let running: PostgresQuery =
                "SELECT count(*) FROM entitlement_sync.owner_window WHERE ends_at > clock_timestamp() + interval '71 hours'"
            #expect(try await scene.reply("owner", nil, decision: "agree") == .taken)
            #expect(try await scene.only("owner").state == .open)
            #expect(try await scene.world.number(running) == 2)
            for id in [ticket, second] { #expect(try await scene.state(id) == "waiting_owner") }
            #expect(try await scene.reply("owner", nil, decision: "object") == .taken)
            for id in [ticket, second] { #expect(try await scene.state(id) == "new") }
        }
    }

    @Test func `136: two claimants of one purchase are linked, and one blocks the other`() async throws {
        try await DeskCase.with { scene, ticket in
            let world = scene.world
            try await world.add("other")
            _ = try await world.restore("other", proofs: DeskCase.proof, clientError: "7")
            try await world.work()
            let second = try await world.number("SELECT max(t.id) FROM entitlement_sync.ticket AS t")
            #expect(second > ticket)
            func linked(_ id: Int64) async throws -> [Int64] {
                struct Shown: Decodable {
                    struct Link: Decodable { var id: Int64 }
                    var linked: [Link]
                }
                let shown = try #require(try await scene.tickets(scene.ann).show(id))
                return try JSONDecoder().decode(Shown.self, from: Data(shown.utf8)).linked.map(\.id)
            }
            #expect(try await linked(ticket) == [second])
            #expect(try await linked(second) == [ticket])
            try await world.working(scene.setup) { for id in [ticket, second] { try await scene.collect(id) } }
            for id in [ticket, second] { try await scene.approveAll(id) }
            #expect(try await scene.act(scene.bea, .transfer, on: ticket) == nil)
            #expect(try await scene.act(scene.bea, .transfer, on: second) == "busy")
            try await world.working(scene.setup) { try await scene.untilEnded(ticket) }
            #expect(try await scene.state(ticket) == "transferred")
            #expect(try await scene.state(second) == "duplicate")
            #expect(try await scene.only("other").state == .decided)
            #expect(try await scene.news("other") == ["ticket.decided duplicate"])
            #expect(try await linked(second) == [ticket], "it stays on record")
        }
    }

    @Test func `137: owner and claimant both complain: each hears, and what they begin is linked`() async throws {
        try await DeskCase.with { scene, ticket in
            let world = scene.world
            try await world.working(scene.patient) {
                try await scene.collect(ticket)
                try await scene.askOwner(ticket)
            }
            #expect(try await scene.reply("claimant", "it is mine") == .taken)
            #expect(try await scene.reply("owner", "no, mine", decision: "object") == .taken)
            let shown = try #require(try await scene.tickets(scene.ann).show(ticket))
            #expect(shown.contains("it is mine") && shown.contains("no, mine"))
            #expect(try await scene.act(scene.ann, .claim, on: ticket) == nil)
            #expect(try await scene.act(scene.ann, .refuse(how: "refuse", words: nil), on: ticket) == nil)
            #expect(try await scene.news("claimant") == ["ticket.decided refused"])
            #expect(try await scene.news("owner") == ["ticket.owner_asked owner", "ticket.decided owner refused"])
            #expect(try await scene.cases("owner").isEmpty)
        }
    }

    @Test func `137: who lost a purchase complains in turn: the case is linked with the one that moved it`()
        async throws
    {
        try await DeskCase.with { scene, ticket in
            let world = scene.world
            try await world.working(scene.setup) {
                try await scene.transfer(ticket)
                _ = try await scene.askedBack()
            }
            let back = try await world.number("SELECT max(t.id) FROM entitlement_sync.ticket AS t")
            let shown = try #require(try await scene.tickets(scene.ann).show(back))
            #expect(back != ticket && shown.contains(#""state": "transferred""#))
            // Whoever has it now is asked, as the other was.
            try await world.working(scene.patient) { try await scene.collect(back) }
            let dan = try await scene.desk.enter("dan", .senior, by: scene.admin)
            #expect(try await scene.act(scene.cid, .claim, on: back) == nil)
            #expect(try await scene.approve(scene.cid, back) == nil)
            #expect(try await scene.approve(dan, back) == nil)
            #expect(try await scene.news("claimant").last == "ticket.owner_asked owner")
            #expect(try await scene.cases("claimant").contains { $0.role == .owner && $0.state == .question })
        }
    }
}
