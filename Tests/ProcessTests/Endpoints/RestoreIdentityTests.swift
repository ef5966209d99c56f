import Foundation
import HTTPTypes
import Postgres
import TestSupport
import Testing

/// Which restore a repeated request, a second tap or another launch gets, and whose a restore is.
struct RestoreIdentityTests {
    @Test func `A repeat with its key is the same restore, and other content under the key is refused`() async throws {
        try await EndpointSite.with(scenario: RestoreScene.scenario, users: RestoreScene.users) { endpoints in
            let endpoint = try await endpoints.open()
            let ann = try await endpoints.caller("ann", at: endpoint)
            let first = try await ann.restore(#"{"origin": "paywall"}"#, key: "tap-1")
            let ended = try await ann.end(of: first)
            let again = try await ann.restore(#"{"origin": "paywall"}"#, key: "tap-1")
            #expect(again == ended, "it is answered with its end")
            let other = try await ann.ask(
                .post,
                "/v1/restores",
                ["Idempotency-Key": "tap-1"],
                body: #"{"origin": "profile"}"#
            )
            #expect(other.status == 422, "\(other)")
            let problem = try other.problem
            #expect(problem.kind == "key-reused" && problem.field == "Idempotency-Key", "\(problem)")
            // Keys are each user's own.
            let owner = try await endpoints.caller("owner", at: endpoint)
            let theirs = try await owner.restore(#"{"origin": "profile"}"#, key: "tap-1")
            #expect(theirs.id != first.id)
            let jobs = try await endpoints.jobs()
            #expect(jobs == 2)
            try await endpoint.close()
        }
    }

    @Test func `How and when the user signed in stands with the restore`() async throws {
        try await EndpointSite.serving { endpoints, endpoint, _ in
            let token = try await endpoints.token(
                #"{"sub": "ann", "provider": "apple.com", "auth_time": 1700000000}"#
            )
            _ = try await Caller(endpoint: endpoint, token: token).restore()
            let kept = try await endpoints.site.texts(
                """
                SELECT concat_ws(' ', r.sign_in_provider, extract(epoch FROM r.signed_in_at)::bigint)
                  FROM entitlement_sync.job_request AS r
                """
            )
            #expect(kept == ["apple.com 1700000000"])
        }
    }

    @Test func `78: two taps are one restore while it waits, and a tap while it runs gets the one that follows`()
        async throws
    {
        let scenario = "customers: [{id: ann, state: active}]\nfaults: [{endpoint: subscriptions, latency: 6s}]\n"
        try await EndpointSite.with(scenario: scenario, users: ["ann"]) { endpoints in
            let endpoint = try await endpoints.open("serve")
            // Two devices have two tokens.
            let phone = try await endpoints.caller("ann", at: endpoint)
            let tablet = try await endpoints.caller("ann", at: endpoint)
            let first = try await phone.restore()
            let second = try await tablet.restore()
            #expect(first.id == second.id && second.state == "queued")

            let worker = try await endpoints.site.start("worker")
            try await endpoints.site.waitUntil(
                "SELECT count(*) FROM entitlement_sync.job_status AS s WHERE s.state = 'running'"
            )
            let next = try await tablet.restore()
            let joined = try await phone.restore()
            #expect(next.id != first.id && joined.id == next.id && next.state == "queued", "\(next), \(joined)")
            let ends = [try await phone.end(of: first), try await tablet.end(of: second)]
            #expect(ends.map(\.outcome) == ["restored", "restored"] && ends[0] == ends[1])
            let last = try await phone.end(of: next)
            #expect(last.outcome == "already_subscriber", "\(last)")
            let jobs = try await endpoints.jobs()
            #expect(jobs == 2)
            try await worker.stop()
            try await endpoint.close()
        }
    }

    @Test func `191: who restores at every launch is told the last result, until there is something new to look at`()
        async throws
    {
        try await EndpointSite.with(scenario: RestoreScene.scenario, users: RestoreScene.users) { endpoints in
            let endpoint = try await endpoints.open()
            let fresh = try await endpoints.caller("fresh", at: endpoint)
            var ids: Set<String> = []
            for _ in 0..<10 {
                let end = try await fresh.end(of: try await fresh.restore())
                #expect(end.messageKey == "nothing")
                ids.insert(end.id)
            }
            #expect(ids.count == 10)
            let asked = try await endpoints.simulator.requests(for: "fresh")
            let eleventh = try await fresh.restore()
            #expect(ids.contains(eleventh.id) && eleventh.state == "done" && eleventh.messageKey == "nothing")
            let askedAgain = try await endpoints.simulator.requests(for: "fresh")
            #expect(asked > 0 && askedAgain == asked, "the store is spared")
            let body = try endpoints.showing(transaction: "2000000800000001")
            let shown = try await fresh.end(of: try await fresh.restore(body))
            #expect(!ids.contains(shown.id) && shown.outcome == "restored", "\(shown)")
            try await endpoint.close()
        }
    }

    @Test func `Whose a restore is the token says and nothing else, and to others it is as if there were none`()
        async throws
    {
        try await EndpointSite.with(scenario: RestoreScene.scenario, users: RestoreScene.users) { endpoints in
            let endpoint = try await endpoints.open()
            let ann = try await endpoints.caller("ann", at: endpoint)
            let owner = try await endpoints.caller("owner", at: endpoint)
            let hers = try await ann.restore(#"{"user_id": "owner", "sub": "owner", "origin": "profile"}"#)
            let ended = try await ann.end(of: hers)
            #expect(ended.outcome == "restored")
            let whose = try await endpoints.site.texts("SELECT s.user_id FROM entitlement_sync.job_status AS s")
            #expect(whose == ["ann"])

            let unknown = "/v1/restores/0197a0b2-0000-7000-8000-000000000000"
            let malformed = "/v1/restores/no-id"
            let long = "/v1/restores/" + String(repeating: "7", count: 500)
            // A request's own name is all that tells answers apart.
            let name = ["X-Request-Id": "same"]
            for end in ["", "?wait=1", "/events"] {
                let others = try await owner.ask(.get, hers.path + end, name)
                #expect(others.status == 404, "\(end): \(others)")
                let problem = try others.problem
                #expect(problem.kind == "not-found" && problem.detail == nil, "\(problem)")
                for path in [unknown, malformed, long] {
                    let none = try await owner.ask(.get, path + end, name)
                    #expect(none.status == 404 && none.body == others.body, "\(path + end): \(none)")
                    for header in ["Content-Type", "Content-Length", "Vary", "Content-Language", "Cache-Control"] {
                        #expect(none[header] == others[header], "\(path + end): \(header)")
                    }
                }
            }
            let stranger = try await endpoints.caller("stranger", at: endpoint)
            for (method, path) in [(HTTPRequest.Method.post, "/v1/restores"), (.get, "/v1/entitlement")] {
                let answer = try await stranger.ask(method, path)
                let problem = try answer.problem
                #expect(answer.status == 404 && problem.kind == "unknown-user", "\(answer)")
            }
            try await endpoint.close()
        }
    }
}
