import Foundation
import HTTPTypes
import Postgres
import TestSupport
import Testing

/// What whoever types an id that is not their own learns of it: nothing.
struct TypedIDTests {
    private static let scenario = """
        customers:
          - {id: owner, subscriptions: [{state: active, store_subscription_identifier: "2000000700000001"}]}
          - id: player
            subscriptions:
              - {state: active, store: play_store, store_subscription_identifier: "GPA.3300-0000-0000-00001"}
          - id: "$RCAnonymousID:0123456789abcdef0123456789abcdef"
            subscriptions: [{state: active, store_subscription_identifier: "2000000700000003"}]
        app_store:
          customers:
            - id: apple-owner
              transactions: [{original: "2000000700000001", product: premium_monthly, state: active, expires: +20d}]
        """

    /// Somebody's id, somebody's who never signed in, and nobody's.
    private static let ids = [
        ("app_store", "transaction_id", ["2000000700000001", "2000000700000003", "2000000700000002"]),
        ("play_store", "order_id", ["GPA.3300-0000-0000-00001", "GPA.3300-0000-0000-00002"]),
    ]

    @Test func `5, 6: answers about somebody's purchase and about one that never was are the same to the byte`()
        async throws
    {
        let users = Self.ids.flatMap { $0.2.map { "asking-\($0)" } } + ["owner", "player"]
        try await EndpointSite.with(scenario: Self.scenario, users: users) { endpoints in
            let endpoint = try await endpoints.open()
            for (store, kind, values) in Self.ids {
                var seen: [[String]] = []
                for value in values {
                    let caller = try await endpoints.caller("asking-\(value)", at: endpoint)
                    let body = #"{"proofs": [{"store": "\#(store)", "kind": "\#(kind)", "value": "\#(value)"}]}"#
                    let accepted = try await caller.ask(.post, "/v1/restores", ["X-Request-Id": "same"], body: body)
                    let asked: SeenRestore = try accepted.decode()
                    #expect(accepted.status == 202)
                    let end = try await caller.ask(.get, asked.path + "?wait=25", ["X-Request-Id": "same"])
                    let ended: SeenRestore = try end.decode()
                    #expect(ended.outcome == "nothing_to_restore", "\(value): \(ended)")
                    let again = try await caller.ask(.get, asked.path, ["X-Request-Id": "same"])
                    let stream = try await caller.ask(.get, asked.path + "/events", ["X-Request-Id": "same"])
                    let launch = try await caller.ask(.get, "/v1/entitlement", ["X-Request-Id": "same"])
                    seen.append([accepted, end, again, stream, launch].map { Self.text($0, without: asked) })
                }
                for (value, answers) in zip(values, seen) {
                    #expect(answers == seen.last, "\(value) can be told from one that never was")
                }
            }
            let tickets = try await endpoints.site.texts(
                "SELECT concat_ws(' ', t.user_id, t.kind) FROM entitlement_sync.ticket_status AS t ORDER BY 1"
            )
            #expect(
                tickets == ["asking-2000000700000001 needs_proof", "asking-GPA.3300-0000-0000-00001 needs_proof"],
                "support knows"
            )
            try await endpoint.close()
        }
    }

    /// Status, headers and body, without the restore's id, its reference and the hour.
    private static func text(_ answer: HTTPAnswer, without restore: SeenRestore) -> String {
        let headers = answer.response.headerFields.filter { $0.name != .date }
            .map { "\($0.name.canonicalName): \($0.value)" }.sorted().joined(separator: "\n")
        return "\(answer.status)\n\(headers)\n\(String(decoding: answer.body, as: UTF8.self))"
            .replacing(restore.id, with: "ID").replacing(restore.reference, with: "REFERENCE")
    }
}
