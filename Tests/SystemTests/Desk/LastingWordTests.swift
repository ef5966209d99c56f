import Entitlements
import Foundation
import Postgres
import SupportDesk
import TestSupport
import Testing
import UserRequests

/// Words that come late, twice, or to what is not asked any more.
@Suite struct LastingWordTests {
    @Test func `The same words answer a second question, within the minute too`() async throws {
        try await DeskCase.with { scene, ticket in
            let shown = try await scene.only("claimant")
            for _ in 0..<2 {
                #expect(try await scene.act(scene.ann, .claim, on: ticket) == nil)
                #expect(try await scene.act(scene.ann, .ask(question: "which_store", words: nil), on: ticket) == nil)
                #expect(try await scene.reply("claimant", "App Store") == .taken)
                #expect(try await scene.state(ticket) == "new")
            }
            #expect(try await scene.reply("claimant", "App Store") == .taken)
            #expect(try await scene.replies() == 2)
            #expect(try await scene.only("claimant").id == shown.id)
            // A key names one request, whatever was said without one.
            #expect(try await scene.reply("claimant", "App Store", key: "new") == .taken)
            #expect(try await scene.replies() == 3)
        }
    }

    @Test func `What a claimant says goes to a case that they know of`() async throws {
        try await DeskCase.with { scene, ticket in
            let pool = scene.world.pool
            try await pool.query(
                """
                INSERT INTO entitlement_sync.ticket (claimant_key, kind, visible)
                SELECT t.claimant_key, 'owner_mismatch', false FROM entitlement_sync.ticket AS t WHERE t.id = \(ticket)
                """
            )
            #expect(try await scene.reply("claimant", "it is mine") == .taken)
            #expect(
                try await scene.world.number("SELECT max(r.ticket_id) FROM entitlement_sync.ticket_reply AS r")
                    == ticket
            )
            try await pool.query("SELECT entitlement_sync.move_ticket(\(ticket), 'cause_gone')")
            #expect(try await scene.reply("claimant", "and still") == .decided)
        }
    }

    @Test func `An objection within the minute finds a claimant who came since`() async throws {
        try await DeskCase.with { scene, ticket in
            try await scene.world.working(scene.patient) { try await scene.collect(ticket) }
            try await scene.askOwner(ticket)
            #expect(try await scene.reply("owner", nil, decision: "object") == .taken)
            try await scene.world.add("other")
            let second = try #require(
                try await scene.tickets(scene.ann)
                    .open(claimant: "other", orderID: "200000070000001", reason: "wrote a mail")
            )
            try await scene.world.working(scene.patient) { try await scene.collect(second) }
            try await scene.askOwner(second)
            #expect(try await scene.reply("owner", nil, decision: "object") == .taken)
            #expect(try await scene.state(second) == "new")
            #expect(try await scene.events(second).suffix(2) == ["owner_objected", "approvals_voided"])
        }
    }

    @Test func `An owner who was told may object, whatever became of the question`() async throws {
        try await DeskCase.with { scene, ticket in
            try await scene.world.working(scene.patient) { try await scene.collect(ticket) }
            try await scene.askOwner(ticket)
            #expect(try await scene.act(scene.cid, .withdraw, on: ticket) == nil)
            let shown = try await scene.only("owner")
            #expect(shown.state == .open && shown.question == nil && shown.questionID == nil && shown.answerBy == nil)
            #expect(try await scene.reply("owner", nil, decision: "object") == .taken)
            try await scene.world.working(scene.patient) { try await scene.collect(ticket) }
            #expect(try await scene.facts(ticket).contains("owner_objected"))
            // Whoever owns it next has been told nothing, and has said nothing.
            try await scene.world.pool.query(
                """
                SELECT entitlement_sync.keep_evidence(
                           \(ticket), clock_timestamp(), sha256('x'), '{}', 'none', NULL, 'no_proof', 2::smallint, '{}', 0, 60, '{}',
                           (SELECT max(user_key) + 1 FROM entitlement_sync.user_sync))
                """
            )
            #expect(try await scene.world.number("SELECT count(*) FROM entitlement_sync.owner_window") == 0)
        }
    }

    @Test func `Consent is to the question that was shown`() async throws {
        try await DeskCase.with { scene, ticket in
            try await scene.world.working(scene.patient) { try await scene.collect(ticket) }
            try await scene.askOwner(ticket)
            let first = try await scene.only("owner")
            #expect(try await scene.act(scene.cid, .withdraw, on: ticket) == nil)
            func agree(_ question: UUID?) async throws -> ReplyFate {
                try await scene.world.app.reply(
                    CaseReply(text: nil, decision: "agree", questionID: question),
                    to: first.id,
                    by: "owner"
                )
            }
            #expect(try await agree(first.questionID) == .questionChanged, "nothing is asked")
            try await scene.askOwner(ticket)
            let second = try await scene.only("owner")
            #expect(second.id == first.id && second.questionID != first.questionID)
            #expect(try await agree(first.questionID) == .questionChanged)
            #expect(try await agree(UUID()) == .questionChanged)
            await expectRefusal("22023") { _ = try await agree(nil) }
            #expect(try await scene.replies() == 0)
            #expect(try await scene.state(ticket) == "waiting_owner")
            #expect(try await agree(second.questionID) == .taken)
            #expect(try await agree(second.questionID) == .taken, "the answer may have been lost")
            #expect(try await scene.replies() == 1)
            #expect(try await scene.events(ticket).filter { $0 == "owner_agreed" }.count == 1)
            try await scene.world.pool.query("UPDATE entitlement_sync.ticket_reply SET at = at - interval '2 minutes'")
            try await scene.world.pool.query(
                "UPDATE entitlement_sync.owner_window SET asked_at = asked_at - interval '1 hour'"
            )
            #expect(try await agree(second.questionID) == .questionChanged, "it is answered")
            // What was stopped asks anew.
            #expect(try await scene.act(scene.bea, .transfer, on: ticket) == nil)
            try await scene.world.pool.query("SELECT entitlement_sync.move_ticket(\(ticket), 'stopped')")
            #expect(
                try await scene.world.number(
                    "SELECT count(*) FROM entitlement_sync.owner_window WHERE num_nonnulls(asked_at, consented_at) = 0"
                ) == 1
            )
        }
    }

    @Test func `Who objected has agreed to nothing, and the record says so`() async throws {
        try await DeskCase.with { scene, ticket in
            try await scene.world.working(scene.patient) { try await scene.collect(ticket) }
            try await scene.askOwner(ticket)
            let question = try await scene.only("owner").questionID
            #expect(try await scene.reply("owner", nil, decision: "object") == .taken)
            let fate = try await scene.world.app.reply(
                CaseReply(text: "or not", decision: "agree", questionID: question),
                to: scene.only("owner").id,
                by: "owner"
            )
            #expect(fate == .questionChanged)
            #expect(try await !scene.events(ticket).contains("owner_agreed"))
        }
    }

    @Test func `An owner hears once what came of it, and not how many asked`() async throws {
        try await DeskCase.with { scene, ticket in
            try await scene.world.add("other")
            let second = try #require(
                try await scene.tickets(scene.ann)
                    .open(claimant: "other", orderID: "200000070000001", reason: "wrote a mail")
            )
            try await scene.world.working(scene.patient) { for id in [ticket, second] { try await scene.collect(id) } }
            for id in [ticket, second] { try await scene.askOwner(id) }
            let asked = try await scene.news("owner")
            #expect(try await scene.act(scene.cid, .refuse(how: "refuse", words: nil), on: ticket) == nil)
            #expect(try await scene.news("owner") == asked, "somebody still asks for it")
            #expect(try await scene.only("owner").state == .question)
            // The other's cause goes away.
            try await scene.world.pool.query(
                "SELECT entitlement_sync.move_ticket(\(second), 'cause_gone')"
            )
            #expect(try await scene.news("owner") == asked + ["ticket.decided owner closed"])
            #expect(try await scene.cases("owner").isEmpty)
        }
    }

    @Test func `A case keeps the ids that its claimant was ever given`() async throws {
        try await DeskCase.with { scene, _ in
            let world = scene.world
            try await world.add("writer")
            let id = try #require(
                try await scene.tickets(scene.ann)
                    .open(claimant: "writer", orderID: "200000070000001", reason: "wrote a mail")
            )
            #expect(try await scene.act(scene.ann, .claim, on: id) == nil)
            #expect(try await scene.act(scene.ann, .ask(question: "which_store", words: nil), on: id) == nil)
            let before = try await scene.only("writer")
            _ = try await world.restore("writer", proofs: DeskCase.proof, clientError: "7")
            try await world.work()
            let after = try await scene.only("writer")
            #expect(after.id != before.id && after.reference != before.reference)
            #expect(try await world.app.reply(CaseReply(text: "App Store"), to: before.id, by: "writer") == .taken)
            #expect(try await scene.state(id) == "new")
            #expect(try await world.app.reply(CaseReply(text: "or Play"), to: after.id, by: "writer") == .taken)
            #expect(try await world.app.reply(CaseReply(text: "x"), to: before.id, by: "claimant") == .notFound)
            // The app may still show the reference that it showed first.
            try await world.app.release(to: try #require(before.reference), by: "owner")
            #expect(try await world.number("SELECT entitlement_sync.has_owner_consent(\(id))::int::bigint") == 1)
        }
    }

    @Test func `One key for two cases at once is refused as one that was used before`() async throws {
        try await DeskCase.with { scene, ticket in
            let world = scene.world
            async let other: Void = world.pool.withTransaction { connection in
                _ = try await connection.query(
                    """
                    INSERT INTO entitlement_sync.ticket_reply (ticket_id, user_key, side, words, key, request)
                    SELECT t.id, t.claimant_key, 'claimant', 'elsewhere', 'k', sha256('x') FROM entitlement_sync.ticket AS t
                    """
                )
                try await world.waitUntil(
                    """
                    SELECT count(*) FROM pg_stat_activity
                     WHERE wait_event_type = 'Lock' AND query LIKE '%reply_to_ticket%' AND datname = current_database()
                    """
                )
            }
            try await world.waitUntil(
                """
                SELECT count(*) FROM pg_stat_activity
                 WHERE backend_xid IS NOT NULL AND query LIKE '%elsewhere%' AND pid <> pg_backend_pid()
                   AND datname = current_database()
                """
            )
            await expectRefusal("ES004") { _ = try await scene.reply("claimant", "here", key: "k") }
            try await other
            #expect(try await scene.replies() == 1)
        }
    }

    @Test func `A figure that was deleted is no licence`() async throws {
        try await DeskCase.with { scene, _ in
            try await scene.world.pool.query("DELETE FROM entitlement_sync.desk_setting")
            for number in 1...10 { #expect(try await scene.reply("claimant", "word \(number)") == .taken) }
            await expectRefusal("ES008") { _ = try await scene.reply("claimant", "word 11") }
        }
    }
}
