import Entitlements
import Foundation
import Postgres
import SupportDesk
import TestSupport
import Testing
import UserRequests

/// What support asks a claimant, and what the claimant says.
@Suite struct AnswerTests {
    @Test func `A question reaches the claimant, and the answer brings the case back to the desk`() async throws {
        try await DeskCase.with { scene, ticket in
            let world = scene.world
            let before = try await scene.only("claimant")
            let shown = try #require(try await world.app.entitlement(of: "claimant")).tickets
            #expect(shown.map(\.reference) == [before.reference], "the case is the one that the app shows")
            #expect(before.role == .claimant && before.state == .open && before.question == nil)
            #expect(try await scene.cases("owner").isEmpty, "who was asked nothing hears nothing")
            #expect(
                try await scene.act(scene.ann, .ask(question: "which_store", words: nil), on: ticket) == "not_claimed"
            )
            #expect(try await scene.act(scene.ann, .claim, on: ticket) == nil)
            #expect(
                try await scene.act(scene.ann, .ask(question: "which_store", words: "looks odd"), on: ticket) == nil
            )
            #expect(try await scene.state(ticket) == "waiting_claimant")
            let asked = try await scene.only("claimant")
            #expect(asked.state == .question && asked.question == "which_store" && asked.id == before.id)
            #expect(try #require(asked.askedAt) < #require(asked.answerBy))
            #expect(try await scene.news("claimant") == ["ticket.question which_store"])
            let told = try await world.texts("SELECT n.data::text FROM entitlement_sync.ticket_news AS n")
            #expect(!told.contains { $0.contains("odd") }, "an agent's words stay at the desk")

            try await world.pool.query("UPDATE entitlement_sync.evidence_request SET due_at = NULL")
            #expect(try await scene.reply("claimant", " I paid in the App Store. ") == .taken)
            #expect(try await scene.state(ticket) == "new")
            #expect(try await scene.only("claimant").state == .open)
            #expect(
                try await world.number(
                    "SELECT count(*) FROM entitlement_sync.evidence_request WHERE due_at <= clock_timestamp()"
                )
                    == 1
            )
            #expect(try await scene.events(ticket).suffix(2) == ["note", "claimant_replied"])
            let text = try #require(try await scene.tickets(scene.ann).show(ticket))
            #expect(text.contains("I paid in the App Store.") && text.contains(#""side": "claimant""#))
        }
    }

    @Test func `A reply that comes again is taken once, by its words or by its key`() async throws {
        try await DeskCase.with { scene, ticket in
            let world = scene.world
            for _ in 0..<3 { #expect(try await scene.reply("claimant", "same words") == .taken) }
            async let one = scene.reply("claimant", "at once")
            async let two = scene.reply("claimant", "at once")
            #expect(try await [one, two] == [.taken, .taken])
            #expect(try await scene.replies() == 2)
            for _ in 0..<2 { #expect(try await scene.reply("claimant", "with a key", key: "k") == .taken) }
            try await world.pool.query("UPDATE entitlement_sync.ticket_reply SET at = at - interval '2 minutes'")
            #expect(try await scene.reply("claimant", "with a key", key: "k") == .taken)
            #expect(try await scene.replies() == 3)
            await expectRefusal("ES004") { _ = try await scene.reply("claimant", "other words", key: "k") }
            // Later the same words are said anew, and after a week the key is forgotten.
            #expect(try await scene.reply("claimant", "same words") == .taken)
            try await world.pool.query("UPDATE entitlement_sync.ticket_reply SET at = at - interval '8 days'")
            #expect(try await scene.reply("claimant", "other words", key: "k") == .taken)
            #expect(try await scene.replies() == 5)
            #expect(try await scene.events(ticket).filter { $0 == "claimant_replied" }.count == 5)
        }
    }

    @Test func `Nobody else's case is answered otherwise than one that there is not`() async throws {
        try await DeskCase.with { scene, ticket in
            let world = scene.world
            try await world.add("typist")
            // A typed id opens a ticket that nobody is told of.
            _ = try await world.restore("typist", proofs: DeskCase.proof)
            try await world.work()
            #expect(try await world.tickets(of: "typist").map(\.kind) == ["needs_proof"])
            #expect(try await scene.cases("typist").isEmpty)
            let foreign = try await scene.only("claimant").id
            let inside = try #require(
                try await world.pool.query("SELECT t.uid FROM entitlement_sync.ticket AS t ORDER BY t.id DESC").first
            ).decode(UUID.self)
            for user in ["typist", "owner", "nobody"] {
                for id in [foreign, inside, UUID()] {
                    for decision in [nil, "object"] {
                        let reply = CaseReply(text: "let me in", decision: decision)
                        #expect(try await world.app.reply(reply, to: id, by: user) == .notFound, "\(user) \(id)")
                    }
                }
            }
            #expect(try await scene.replies() == 0)
            #expect(try await world.app.cases(of: "nobody") == nil)
            // What is wrong with the words is said for any case.
            for id in [foreign, UUID()] {
                for user in ["claimant", "typist"] {
                    await expectRefusal("22023") {
                        _ = try await world.app.reply(CaseReply(text: " \n"), to: id, by: user)
                    }
                    await expectRefusal("ES005") {
                        _ = try await world.app.reply(
                            CaseReply(text: String(repeating: "é", count: 2001)),
                            to: id,
                            by: user
                        )
                    }
                    await expectRefusal("22023") {
                        _ = try await world.app.reply(CaseReply(text: "x", decision: "yes"), to: id, by: user)
                    }
                }
            }
            #expect(try await scene.reply("claimant", String(repeating: "é", count: 2000)) == .taken)
            #expect(try await scene.reply("claimant", "mine", decision: "object") == .notAsked)
            // Nobody can be asked who knows nothing of the case.
            let hidden = try await world.number(
                "SELECT max(t.id) FROM entitlement_sync.ticket AS t WHERE NOT t.visible"
            )
            #expect(try await scene.act(scene.ann, .claim, on: hidden) == nil)
            let ask = DeskTickets.Act.ask(question: "order_number", words: nil)
            #expect(try await scene.act(scene.ann, ask, on: hidden) == "not_visible")
            #expect(hidden != ticket)
        }
    }

    @Test func `Who says a lot in a day is heard the next; another question goes round no limit`() async throws {
        try await DeskCase.with { scene, _ in
            for number in 1...10 { #expect(try await scene.reply("claimant", "word \(number)") == .taken) }
            await expectRefusal("ES008") { _ = try await scene.reply("claimant", "word 11") }
            #expect(try await scene.reply("claimant", "word 10") == .taken, "it was taken before")
            #expect(try await scene.replies() == 10)
            try await scene.world.pool.query("UPDATE entitlement_sync.ticket_reply SET at = at - interval '1 day'")
            #expect(try await scene.reply("claimant", "word 11") == .taken)
        }
    }

    @Test func `A case that is decided takes no more words`() async throws {
        try await DeskCase.with { scene, ticket in
            #expect(try await scene.act(scene.ann, .claim, on: ticket) == nil)
            #expect(
                try await scene.act(scene.ann, .refuse(how: "guide_to_login", words: "not theirs"), on: ticket) == nil
            )
            let told = try await scene.world.texts(
                "SELECT n.data ->> 'verdict' FROM entitlement_sync.ticket_news AS n WHERE n.topic = 'ticket.decided'"
            )
            #expect(told == ["guide_to_login"], "what to do about it depends on how it was decided")
            let decided = try await scene.only("claimant")
            #expect(decided.state == .decided && decided.question == nil)
            #expect(try await scene.reply("claimant", "but I paid") == .decided)
            #expect(try await scene.replies() == 0)
        }
    }

    @Test func `A question that nobody answers in time closes the case, and the claimant hears of it`() async throws {
        try await DeskCase.with { scene, ticket in
            let world = scene.world
            #expect(try await scene.act(scene.ann, .claim, on: ticket) == nil)
            await expectRefusal("22023") {
                _ = try await scene.act(scene.ann, .ask(question: "favourite_colour", words: nil), on: ticket)
            }
            #expect(try await scene.act(scene.ann, .ask(question: "order_number", words: nil), on: ticket) == nil)
            let days = try await world.number(
                """
                SELECT round(extract(epoch FROM q.answer_until - q.asked_at) / 86400)::bigint
                  FROM entitlement_sync.ticket_question AS q WHERE q.ticket_id = \(ticket)
                """
            )
            #expect(days == 7)
            #expect(try await world.number("SELECT entitlement_sync.expire_questions()::bigint") == 0)
            try await world.pool.query("UPDATE entitlement_sync.ticket_question SET answer_until = clock_timestamp()")
            try await world.working(scene.setup) {
                try await world.waitUntil("SELECT count(*) FROM entitlement_sync.ticket WHERE state = 'expired'")
            }
            #expect(try await scene.events(ticket).last == "expired")
            #expect(try await scene.news("claimant") == ["ticket.question order_number", "ticket.decided expired"])
            #expect(try await scene.only("claimant").state == .decided)
            // Whoever comes back begins a case anew.
            _ = try await world.restore("claimant", proofs: DeskCase.proof, clientError: "7")
            try await world.work()
            #expect(try await scene.only("claimant").state == .open)
        }
    }

    @Test func `Who wrote to support and has tapped nothing sees the case once they are asked`() async throws {
        try await DeskCase.with { scene, _ in
            try await scene.world.add("writer")
            let id = try #require(
                try await scene.tickets(scene.ann).open(claimant: "writer", orderID: nil, reason: "wrote a mail")
            )
            #expect(try await scene.cases("writer").isEmpty)
            #expect(try await scene.act(scene.ann, .claim, on: id) == nil)
            #expect(try await scene.act(scene.ann, .ask(question: "proof_of_purchase", words: nil), on: id) == nil)
            #expect(try await scene.only("writer").state == .question)
            #expect(try await scene.reply("writer", "here it is") == .taken)
            #expect(try await scene.state(id) == "new")
        }
    }

    @Test(arguments: ["claimant", "owner"])
    func `What somebody wrote to support is gone when either side is erased`(_ erased: String) async throws {
        try await DeskCase.with { scene, ticket in
            #expect(try await scene.reply("claimant", "call me Joe", key: "joe") == .taken)
            let id = try await scene.only("claimant").id
            _ = try await Erasure(pool: scene.world.pool).erase(erased)
            let left = try await scene.world.number(
                """
                SELECT count(*) FROM entitlement_sync.ticket_reply AS r
                 WHERE r.words IS NOT NULL OR r.key IS NOT NULL OR r.request IS NOT NULL
                """
            )
            #expect(left == 0)
            #expect(try await scene.tickets(scene.ann).show(ticket)?.contains("Joe") == false)
            guard erased == "claimant" else { return }
            #expect(try await scene.world.app.reply(CaseReply(text: "back"), to: id, by: "claimant") == .notFound)
            #expect(try await scene.act(scene.ann, .claim, on: ticket) == nil)
            let ask = DeskTickets.Act.ask(question: "order_number", words: nil)
            #expect(try await scene.act(scene.ann, ask, on: ticket) == "claimant_gone")
        }
    }

    @Test func `The desk's questions are those that the app has words for`() async throws {
        try await World.with { world in
            let keys = try await world.texts("SELECT q.key FROM entitlement_sync.desk_question AS q")
            #expect(Set(keys) == Set(DeskQuestion.allCases.map(\.rawValue)))
        }
    }
}
