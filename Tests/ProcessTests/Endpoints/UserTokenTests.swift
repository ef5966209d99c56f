import Foundation
import TestSupport
import HTTPTypes
import Testing

/// Who gets in with a user's token, who does not, and what operators read of it.
struct UserTokenTests {
    /// Claims by a name for what is wrong with them, and what the log has to call it.
    private static var wrongTokens: [(name: String, claims: String, reason: String)] {
        let now = AccessScene.now
        let long = String(repeating: "a", count: 129)
        return [
            ("expired", #"{"sub": "ann", "iat": \#(now - 7200), "exp": \#(now - 3600)}"#, "expired"),
            ("just-expired", #"{"sub": "ann", "iat": \#(now - 3800), "exp": \#(now - 90)}"#, "expired"),
            ("other-project", #"{"sub": "ann", "project": "other-project"}"#, "wrong_audience"),
            ("other-audience", #"{"sub": "ann", "aud": "other-project"}"#, "wrong_audience"),
            ("other-issuer", #"{"sub": "ann", "iss": "https://securetoken.google.com/other"}"#, "wrong_issuer"),
            ("unsigned", #"{"sub": "ann", "alg": "none"}"#, "malformed"),
            ("secret-is-public", #"{"sub": "ann", "alg": "HS256"}"#, "wrong_algorithm"),
            ("tampered", #"{"sub": "ann", "tampered": true}"#, "bad_signature"),
            ("tenant", #"{"sub": "ann", "tenant": "tenant-1"}"#, "tenant"),
            ("future", #"{"sub": "ann", "iat": \#(now + 600)}"#, "from_the_future"),
            ("signs-in-tomorrow", #"{"sub": "ann", "auth_time": \#(now + 86_400)}"#, "from_the_future"),
            ("nameless-key", #"{"sub": "ann", "kid": ""}"#, "malformed"),
            ("nobody", #"{"sub": ""}"#, "wrong_subject"),
            ("too-long-a-name", #"{"sub": "\#(long)"}"#, "wrong_subject"),
            ("strange-key", #"{"sub": "ann", "kid": "nobodys-key"}"#, "unknown_key"),
        ]
    }

    @Test func `A token that is not right in everything opens nothing, and nobody but the log learns why`() async throws
    {
        let settings = ["LOG_LEVEL": "trace"]
        try await EndpointSite.with(scenario: AccessScene.scenario, users: ["ann"], settings: settings) { endpoints in
            let endpoint = try await endpoints.open("serve")
            let genuine = try await endpoints.token(#"{"sub": "ann"}"#)
            let push = try await endpoints.pushToken("{}")
            var headers: [(name: String, value: String?, reason: String)] = [
                ("none", nil, "missing"), ("garbage", "Bearer hunter2", "malformed"),
                ("basic", "Basic YW5uOmh1bnRlcjI=", "malformed"), ("other-endpoint", "Bearer \(push)", "malformed"),
                ("endless", "Bearer " + String(repeating: "hunter2.", count: 1200), "too_large"),
            ]
            for (name, claims, reason) in Self.wrongTokens {
                let token = try await endpoints.token(claims)
                headers.append((name, "Bearer \(token)", reason))
            }
            let before = try await endpoints.site.content()
            var refusals: [String: Refusal] = [:]
            var problems: Set<HTTPAnswer.Problem> = []
            for (name, value, reason) in headers {
                var fields = ["X-Request-Id": name]
                fields["Authorization"] = value
                let answer = try await endpoint.ask(.get, "/v1/entitlement", fields)
                #expect(answer.status == 401, "\(name): \(answer)")
                #expect(
                    answer["WWW-Authenticate"] == (value == nil ? "Bearer" : "Bearer error=\"invalid_token\""),
                    "\(name)"
                )
                var problem = try answer.problem
                #expect(problem.kind == "unauthenticated" && problem.instance.hasSuffix(":\(name)"), "\(problem)")
                problem.instance = ""
                if value != nil { problems.insert(problem) }
                refusals[name] = Refusal(endpoint: "app", reason: reason)
            }
            #expect(problems.count == 1, "what is wrong with a token cannot be told from the answers: \(problems)")
            // A tap is refused before anything is read of it.
            let tap = try await endpoint.ask(
                .post,
                "/v1/restores",
                ["X-Request-Id": "tap", "Content-Type": "application/json"],
                body: #"{"client_error": "hunter2 typed this"}"#
            )
            #expect(tap.status == 401, "\(tap)")
            refusals["tap"] = Refusal(endpoint: "app", reason: "missing")
            let isSame = try await endpoints.site.content() == before
            #expect(isSame, "nothing is written")

            let caller = Caller(endpoint: endpoint, token: genuine)
            let shown = try await caller.entitlement()
            #expect(shown.type == "free")
            _ = try await caller.restore(#"{"client_error": "hunter2 typed this"}"#)
            let isWritten = try await endpoints.site.content().contains("hunter2 typed this")
            #expect(isWritten, "the search above finds what is there")
            var secrets = [genuine, String(genuine.suffix(60)), "hunter2", "revenuecat-demo", "sk_process_tests"]
            for header in headers { if let value = header.value { secrets.append(String(value.dropFirst(7))) } }
            try await Refusal.expectLines(refusals, of: endpoint, withoutAnyOf: secrets)
            try await endpoint.close()
        }
    }

    @Test func `Without keys to verify with callers are asked to come again, and let in as soon as there are some`()
        async throws
    {
        let faults = """
            faults:
              - {endpoint: identity.firebase_keys, status: 500}
              - {endpoint: identity.oauth_keys, status: 500}

            """
        try await EndpointSite.with(scenario: AccessScene.scenario + faults, users: ["ann"]) { endpoints in
            let endpoint = try await endpoints.open("serve")
            let ann = try await endpoints.caller("ann", at: endpoint)
            let push = try await endpoints.webhook("google-play", #"{"test": {}}"#)
            let waiting = [
                try await ann.ask(.get, "/v1/entitlement"), try await endpoint.post(push, to: "google-play"),
            ]
            for answer in waiting {
                #expect(answer.status == 503, "\(answer)")
                let wait = answer["Retry-After"].flatMap { Int($0) } ?? 0
                #expect((1...60).contains(wait) && answer["WWW-Authenticate"] == nil, "\(answer.response)")
                let problem = try answer.problem
                #expect(problem.kind == "unavailable", "\(problem)")
            }
            // Whose token is nobody's anyway need not wait.
            let foreign = try await endpoints.token(#"{"sub": "ann", "project": "other-project"}"#)
            let refused = try await Caller(endpoint: endpoint, token: foreign).ask(.get, "/v1/entitlement")
            #expect(refused.status == 401, "\(refused)")

            try await endpoints.simulator.heal()
            try await eventually("nobody is let in") { try await ann.ask(.get, "/v1/entitlement").status == 200 }
            try await eventually("no push is let in") { try await endpoint.post(push, to: "google-play").status == 200 }
            try await endpoint.close()
        }
    }

    @Test func `New keys are taken up while the process runs, and withdrawn ones serve no longer`() async throws {
        try await EndpointSite.with(scenario: AccessScene.scenario, users: ["ann", "ben", "cyd"]) { endpoints in
            let endpoint = try await endpoints.open("serve")
            // Signed by the first keys; one of them is shown for the first time when those are withdrawn.
            let ann = try await endpoints.caller("ann", at: endpoint)
            let ben = try await endpoints.caller("ben", at: endpoint)
            let oldPush = try await endpoints.webhook("google-play", #"{"test": {}}"#)
            let first = try await ann.entitlement()
            #expect(first.type == "free")
            let pushed = try await endpoint.post(oldPush, to: "google-play")
            #expect(pushed.status == 200, "\(pushed)")

            try await endpoints.control("/control/identity/rotate", #"{"published": "new"}"#)
            let cyd = try await endpoints.caller("cyd", at: endpoint)
            let second = try await cyd.entitlement()
            #expect(second.type == "free")
            let newPush = try await endpoints.webhook("google-play", #"{"test": {}}"#)
            let taken = try await endpoint.post(newPush, to: "google-play")
            #expect(taken.status == 200, "\(taken)")

            let late = try await ben.ask(.get, "/v1/entitlement")
            #expect(late.status == 401, "\(late)")
            let lateText = try await endpoints.pushToken(#"{"kid": "oauth-key-1"}"#)
            let latePush = Webhook(headers: ["Authorization": "Bearer \(lateText)"], body: newPush.body)
            let lateAnswer = try await endpoint.post(latePush, to: "google-play")
            #expect(lateAnswer.status == 401, "\(lateAnswer)")
            try await endpoint.close()
        }
    }
}
