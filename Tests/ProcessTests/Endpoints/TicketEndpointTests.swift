import Foundation
import HTTPTypes
import Postgres
import TestSupport
import Testing

/// What users read of their cases over HTTP, and what they say to them.
struct TicketEndpointTests {
    private static let scenario = """
        customers:
          - {id: owner, subscriptions: [{state: active, store_subscription_identifier: "2000000700000001"}]}
          - {id: ann, state: none}
        """

    private struct Cases: Decodable {
        struct Case: Decodable {
            var id: String
            var role: String
            var reference: String?
            var state: String
            var question: String?
            var message: String
        }
        var tickets: [Case]
    }

    private static func cases(_ caller: Caller, _ language: String = "en") async throws -> [Cases.Case] {
        let answer = try await caller.ask(.get, "/v1/tickets", ["Accept-Language": language])
        try #require(answer.status == 200, "\(answer)")
        #expect(answer["Content-Language"] == language)
        let cases: Cases = try answer.decode()
        return cases.tickets
    }

    @Test func `A case is read and answered by its claimant; for others it is as one that there is not`() async throws {
        try await EndpointSite.with(scenario: Self.scenario, users: ["owner", "ann", "bob"]) { endpoints in
            let endpoint = try await endpoints.open()
            let owner = try await endpoints.caller("owner", at: endpoint)
            let ann = try await endpoints.caller("ann", at: endpoint)
            let bob = try await endpoints.caller("bob", at: endpoint)
            _ = try await owner.end(of: owner.restore())
            #expect(try await Self.cases(ann).isEmpty)
            let mismatch = try await ann.end(of: ann.restore(#"{"client_error": "receipt_already_in_use"}"#))
            #expect(mismatch.outcome == "store_account_mismatch")
            let shown = try #require(try await Self.cases(ann).first)
            #expect(shown.role == "claimant" && shown.state == "open" && shown.reference == mismatch.reference)
            let german = try #require(try await Self.cases(ann, "de").first)
            #expect(german.id == shown.id && german.message != shown.message)
            try await endpoints.site.execute(
                """
                SELECT entitlement_sync.move_ticket(t.id, 'claim') FROM entitlement_sync.ticket AS t;
                SELECT entitlement_sync.move_ticket(t.id, 'ask_claimant') FROM entitlement_sync.ticket AS t;
                INSERT INTO entitlement_sync.ticket_question (ticket_id, question, answer_until)
                SELECT t.id, 'order_number', now() + interval '1 day' FROM entitlement_sync.ticket AS t
                """
            )
            let asked = try #require(try await Self.cases(ann).first)
            #expect(
                asked.state == "question" && asked.question == "order_number" && asked.message.contains("order number")
            )

            func reply(_ caller: Caller, _ id: String, _ body: String) async throws -> HTTPAnswer {
                try await caller.ask(
                    .post,
                    "/v1/tickets/\(id)/replies",
                    ["X-Request-Id": "same", "Idempotency-Key": "tap"],
                    body: body
                )
            }
            let words = #"{"text": "It is MABC123DEF."}"#
            var refused: Set<[String]> = []
            for id in [shown.id, UUID().uuidString.lowercased(), "nonsense"] {
                let answer = try await reply(bob, id, words)
                #expect(answer.status == 404, "\(answer)")
                refused.insert([answer.text] + ["Content-Type", "Retry-After"].map { answer[$0] ?? "" })
                let wrong = try await reply(bob, id, #"{"text": ""}"#)
                #expect(wrong.status == 400, "what is wrong is said for any id: \(wrong)")
            }
            #expect(refused.count == 1, "one that is ann's can be told from one that there is not")
            for _ in 0..<2 {
                let taken = try await reply(ann, shown.id, words)
                #expect(taken.status == 202 && taken.text.contains("reply.noted"), "\(taken)")
            }
            let reused = try await reply(ann, shown.id, #"{"text": "something else"}"#)
            #expect(reused.status == 422, "\(reused)")
            #expect(try await Self.cases(ann).first?.state == "open")
            let kept = try await endpoints.site.texts("SELECT r.words FROM entitlement_sync.ticket_reply AS r")
            #expect(kept == ["It is MABC123DEF."])

            func release(_ caller: Caller, _ reference: String) async throws -> HTTPAnswer {
                try await caller.ask(
                    .post,
                    "/v1/releases",
                    ["X-Request-Id": "same"],
                    body: #"{"reference": "\#(reference)"}"#
                )
            }
            var answers: Set<String> = []
            for (caller, reference) in [
                (owner, mismatch.reference), (owner, "R-0000-00"), (bob, mismatch.reference), (bob, "R-0000-00"),
            ] {
                let answer = try await release(caller, reference)
                #expect(answer.status == 202, "\(answer)")
                answers.insert(answer.text)
            }
            #expect(answers.count == 1, "a reference that leads somewhere can be told from one that does not")
            let wrong = try await release(owner, "7K3Q-92")
            #expect(wrong.status == 400 && wrong.text.contains(#""field":"reference""#), "\(wrong)")

            try await endpoints.site.execute(
                """
                SELECT entitlement_sync.move_ticket(t.id, 'claim') FROM entitlement_sync.ticket AS t;
                SELECT entitlement_sync.move_ticket(t.id, 'refuse') FROM entitlement_sync.ticket AS t
                """
            )
            let late = try await ann.ask(
                .post,
                "/v1/tickets/\(shown.id)/replies",
                body: words.replacing("It", with: "It really")
            )
            #expect(late.status == 409, "\(late)")
            #expect(try await Self.cases(ann).first?.state == "decided")
            try await endpoint.close()
        }
    }
}
