import Foundation
import HTTPTypes
import Postgres
import TestSupport
import Testing

/// What belongs to one app opens nothing at another, which does not say so either.
struct MixedAttemptTests {
    /// Of each kind.
    private static let attempts = Profile.isFull ? 2_000 : 20

    @Test
    func `A token, proof, webhook, job or ticket of one app is nothing to another, like one that there never was`()
        async throws
    {
        try await AppsSite.with(["games", "golf"]) { site in
            let endpoint = try await site.open("serve")
            try await site.untilAllReady(endpoint)
            let ann = try await site.caller("ann", of: "games", at: endpoint)
            let stranger = try await site.caller("ann", of: "golf", at: endpoint)
            let restore: SeenRestore = try await ann.ask(.post, "/v1/apps/games/restores").decode()
            let record = try site.record("golf")
            let before = try await record.content()
            let event = try await site.endpoints.webhook("revenuecat", #"{"event": \#(AccessScene.event)}"#)
            var answers: [String: Set<Seen>] = [:]
            for attempt in 0..<Self.attempts {
                let unknown = UUID().uuidString.lowercased()
                func note(_ what: String, _ answer: HTTPAnswer) { answers[what, default: []].insert(Seen(answer)) }
                // Its own project's users are known there; those of the other one are as good as none.
                note("token", try await ann.ask(.get, "/v1/apps/golf/entitlement"))
                note("token", try await ann.ask(.post, "/v1/apps/golf/restores", body: "{}"))
                let garbage = Caller(endpoint: endpoint, token: "not-a-token-\(attempt)")
                note("token", try await garbage.ask(.get, "/v1/apps/golf/entitlement"))
                note("token", try await garbage.ask(.post, "/v1/apps/golf/restores", body: "{}"))
                note("job", try await stranger.ask(.get, "/v1/apps/golf/restores/\(restore.id)"))
                note("job", try await stranger.ask(.get, "/v1/apps/golf/restores/\(unknown)"))
                note(
                    "ticket",
                    try await stranger.ask(.post, "/v1/apps/golf/tickets/\(restore.id)/replies", body: Self.reply)
                )
                note(
                    "ticket",
                    try await stranger.ask(.post, "/v1/apps/golf/tickets/\(unknown)/replies", body: Self.reply)
                )
                var fields = event.headers
                fields["Content-Type"] = "application/json"
                fields["Authorization"] = "Bearer of games"
                note(
                    "webhook",
                    try await endpoint.ask(.post, "/v1/apps/golf/webhooks/revenuecat", fields, body: event.body)
                )
                fields["Authorization"] = "Bearer of \(unknown)"
                note(
                    "webhook",
                    try await endpoint.ask(.post, "/v1/apps/golf/webhooks/revenuecat", fields, body: event.body)
                )
            }
            #expect(answers.mapValues(\.count) == ["token": 1, "job": 1, "ticket": 1, "webhook": 1], "\(answers)")
            #expect(answers.values.joined().allSatisfy { [401, 403, 404].contains($0.status) }, "\(answers)")
            #expect(try await record.content() == before)
            #expect(try await stranger.ask(.get, "/v1/apps/golf/entitlement").status == 200)
            try await endpoint.close()
        }
    }

    @Test func `A purchase in one store app restores nothing in an app with another`() async throws {
        let scenario = AccessScene.scenario.replacing(
            "customers: [{id: ann, state: active}, {id: ben, state: active}]",
            with: ""
        )
        try await AppsSite.with(["games", "golf"], scenario: scenario) { site in
            try site.write("golf", changing: ["APP_STORE_BUNDLE_ID": "com.example.another", "APP_STORE_APP_ID": nil])
            let endpoint = try await site.open()
            try await site.untilAllReady(endpoint)
            let proof = try site.endpoints.showing(transaction: "2000000700000001")
            func outcome(of app: String) async throws -> String? {
                let caller = try await site.caller("ben", of: app, at: endpoint)
                let accepted = try await caller.ask(.post, "/v1/apps/\(app)/restores", body: proof)
                let path = try #require(accepted["Location"], "\(accepted)")
                let seen: SeenRestore = try await caller.ask(.get, path + "?wait=25").decode()
                return seen.outcome
            }
            #expect(try await outcome(of: "golf") == "nothing_to_restore")
            #expect(try await outcome(of: "games") == "restored")
            let known = PostgresQuery("SELECT count(*) FROM entitlement_sync.purchase")
            #expect(try await site.record("golf").number(known) == 0)
            try await endpoint.close()
        }
    }

    private static let reply = #"{"text": "It is mine."}"#

    /// An answer without what names the request.
    private struct Seen: Hashable, CustomStringConvertible {
        let status: Int
        let text: String

        init(_ answer: HTTPAnswer) {
            status = answer.status
            text = answer.text.replacing(/"instance":"[^"]*"/, with: "").replacing(/"request_id":"[^"]*"/, with: "")
        }

        var description: String { "\(status) \(text)" }
    }
}
