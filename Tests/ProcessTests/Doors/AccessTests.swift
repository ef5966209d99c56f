import Foundation
import Glibc
import HTTPTypes
import Postgres
import TestSupport
import Testing

/// Who gets in, who does not, and what operators hear of it.
struct AccessTests {
    private static let scenario = """
        customers: [{id: ann, state: active}, {id: ben, state: active}]
        app_store:
          customers:
            - id: apple-ann
              transactions: [{original: "2000000700000001", product: premium_monthly, state: active, expires: +20d}]
        google_play:
          purchases: [{token: tok-ann, state: active}]

        """

    /// What a request was refused for, as the log has to say it.
    private struct Refusal: Hashable {
        var door: String
        var reason: String
    }

    /// Seconds since 1970.
    private static var now: Int { Int(Date().timeIntervalSince1970) }

    /// Checks that each refused request has a line of its own, and that nothing of what was sent is in the log.
    private static func expectLines(
        _ refusals: [String: Refusal],
        of door: Door,
        withoutAnyOf secrets: [String]
    ) async throws {
        let lines = try door.log.filter { $0["message"] == "security: a request was refused" }
        var told: [String: Refusal] = [:]
        for line in lines {
            #expect(line["level"] == "warning" && line["log.left_out"] == "0", "\(line)")
            let name = try #require(line["request.id"])
            told[name] = Refusal(door: line["security.door"] ?? "", reason: line["security.reason"] ?? "")
        }
        #expect(told == refusals)
        #expect(lines.count == refusals.count, "each is told once")
        let said = door.program.err + door.program.out
        for secret in secrets { #expect(!secret.isEmpty && !said.contains(secret), "\(secret.prefix(60))") }
    }

    // MARK: Tokens

    /// Claims by a name for what is wrong with them, and what the log has to call it.
    private static var wrongTokens: [(name: String, claims: String, reason: String)] {
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
        try await DoorSite.with(scenario: Self.scenario, users: ["ann"], settings: settings) { doors in
            let door = try await doors.open("serve")
            let genuine = try await doors.token(#"{"sub": "ann"}"#)
            let push = try await doors.pushToken("{}")
            var headers: [(name: String, value: String?, reason: String)] = [
                ("none", nil, "missing"), ("garbage", "Bearer hunter2", "malformed"),
                ("basic", "Basic YW5uOmh1bnRlcjI=", "malformed"), ("other-door", "Bearer \(push)", "malformed"),
                ("endless", "Bearer " + String(repeating: "hunter2.", count: 1200), "too_large"),
            ]
            for (name, claims, reason) in Self.wrongTokens {
                let token = try await doors.token(claims)
                headers.append((name, "Bearer \(token)", reason))
            }
            let before = try await doors.site.content()
            var refusals: [String: Refusal] = [:]
            var problems: Set<DoorAnswer.Problem> = []
            for (name, value, reason) in headers {
                var fields = ["X-Request-Id": name]
                fields["Authorization"] = value
                let answer = try await door.ask(.get, "/v1/entitlement", fields)
                #expect(answer.status == 401, "\(name): \(answer)")
                #expect(
                    answer["WWW-Authenticate"] == (value == nil ? "Bearer" : "Bearer error=\"invalid_token\""),
                    "\(name)"
                )
                var problem = try answer.problem
                #expect(problem.kind == "unauthenticated" && problem.instance.hasSuffix(":\(name)"), "\(problem)")
                problem.instance = ""
                if value != nil { problems.insert(problem) }
                refusals[name] = Refusal(door: "app", reason: reason)
            }
            #expect(problems.count == 1, "what is wrong with a token cannot be told from the answers: \(problems)")
            // A tap is refused before anything is read of it.
            let tap = try await door.ask(
                .post,
                "/v1/restores",
                ["X-Request-Id": "tap", "Content-Type": "application/json"],
                body: #"{"client_error": "hunter2 typed this"}"#
            )
            #expect(tap.status == 401, "\(tap)")
            refusals["tap"] = Refusal(door: "app", reason: "missing")
            let isSame = try await doors.site.content() == before
            #expect(isSame, "nothing is written")

            let caller = Caller(door: door, token: genuine)
            let shown = try await caller.entitlement()
            #expect(shown.type == "free")
            _ = try await caller.restore(#"{"client_error": "hunter2 typed this"}"#)
            let isWritten = try await doors.site.content().contains("hunter2 typed this")
            #expect(isWritten, "the search above finds what is there")
            var secrets = [genuine, String(genuine.suffix(60)), "hunter2", "revenuecat-demo", "sk_process_tests"]
            for header in headers { if let value = header.value { secrets.append(String(value.dropFirst(7))) } }
            try await Self.expectLines(refusals, of: door, withoutAnyOf: secrets)
            try await door.close()
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
        try await DoorSite.with(scenario: Self.scenario + faults, users: ["ann"]) { doors in
            let door = try await doors.open("serve")
            let ann = try await doors.caller("ann", at: door)
            let push = try await doors.webhook("google-play", #"{"test": {}}"#)
            let waiting = [try await ann.ask(.get, "/v1/entitlement"), try await door.post(push, to: "google-play")]
            for answer in waiting {
                #expect(answer.status == 503, "\(answer)")
                let wait = answer["Retry-After"].flatMap { Int($0) } ?? 0
                #expect((1...60).contains(wait) && answer["WWW-Authenticate"] == nil, "\(answer.response)")
                let problem = try answer.problem
                #expect(problem.kind == "unavailable", "\(problem)")
            }
            // Whose token is nobody's anyway need not wait.
            let foreign = try await doors.token(#"{"sub": "ann", "project": "other-project"}"#)
            let refused = try await Caller(door: door, token: foreign).ask(.get, "/v1/entitlement")
            #expect(refused.status == 401, "\(refused)")

            try await doors.simulator.heal()
            try await eventually("nobody is let in") { try await ann.ask(.get, "/v1/entitlement").status == 200 }
            try await eventually("no push is let in") { try await door.post(push, to: "google-play").status == 200 }
            try await door.close()
        }
    }

    @Test func `New keys are taken up while the process runs, and withdrawn ones serve no longer`() async throws {
        try await DoorSite.with(scenario: Self.scenario, users: ["ann", "ben", "cyd"]) { doors in
            let door = try await doors.open("serve")
            // Signed by the first keys; one of them is shown for the first time when those are withdrawn.
            let ann = try await doors.caller("ann", at: door)
            let ben = try await doors.caller("ben", at: door)
            let oldPush = try await doors.webhook("google-play", #"{"test": {}}"#)
            let first = try await ann.entitlement()
            #expect(first.type == "free")
            let pushed = try await door.post(oldPush, to: "google-play")
            #expect(pushed.status == 200, "\(pushed)")

            try await doors.control("/control/identity/rotate", #"{"published": "new"}"#)
            let cyd = try await doors.caller("cyd", at: door)
            let second = try await cyd.entitlement()
            #expect(second.type == "free")
            let newPush = try await doors.webhook("google-play", #"{"test": {}}"#)
            let taken = try await door.post(newPush, to: "google-play")
            #expect(taken.status == 200, "\(taken)")

            let late = try await ben.ask(.get, "/v1/entitlement")
            #expect(late.status == 401, "\(late)")
            let lateText = try await doors.pushToken(#"{"kid": "oauth-key-1"}"#)
            let latePush = Webhook(headers: ["Authorization": "Bearer \(lateText)"], body: newPush.body)
            let lateAnswer = try await door.post(latePush, to: "google-play")
            #expect(lateAnswer.status == 401, "\(lateAnswer)")
            try await door.close()
        }
    }

    // MARK: Webhooks

    private struct Forgery: Sendable {
        var store: String
        var name: String
        var reason: String
        var webhook: Webhook
    }

    private static let event = #"{"type": "RENEWAL", "app_user_id": "hunter2-user"}"#

    private static func revenueCat(_ doors: DoorSite) async throws -> [Forgery] {
        func webhook(_ more: String = "") async throws -> Webhook {
            try await doors.webhook("revenuecat", "{\"event\": \(Self.event)\(more)}")
        }
        var tampered = try await webhook()
        tampered.body = tampered.body.replacing("RENEWAL", with: "EXPIRATION")
        var garbled = try await webhook()
        garbled.headers["X-RevenueCat-Webhook-Signature"] = "v1=hunter2"
        let cases: [(name: String, reason: String, webhook: Webhook)] = [
            ("rc-authorization", "wrong_authorization", try await webhook(", \"authorization\": \"hunter2\"")),
            ("rc-no-authorization", "missing", try await webhook(", \"authorization\": \"\"")),
            ("rc-secret", "wrong_signature", try await webhook(", \"secret\": \"hunter2\"")),
            ("rc-no-signature", "missing", try await webhook(", \"secret\": \"\"")),
            ("rc-replayed", "not_now", try await webhook(", \"t\": \(now - 600)")),
            ("rc-ahead", "not_now", try await webhook(", \"t\": \(now + 600)")),
            ("rc-tampered", "wrong_signature", tampered), ("rc-garbled", "malformed", garbled),
        ]
        return cases.map { Forgery(store: "revenuecat", name: $0.name, reason: $0.reason, webhook: $0.webhook) }
    }

    private static func appStore(_ doors: DoorSite) async throws -> [Forgery] {
        struct Body: Decodable { var signedPayload: String }
        var parts: [[Substring]] = []
        for type in ["DID_RENEW", "EXPIRED"] {
            let request = #"{"type": "\#(type)", "transaction": "2000000700000001"}"#
            let genuine = try await doors.webhook("app-store", request)
            let body = try JSONDecoder().decode(Body.self, from: Data(genuine.body.utf8))
            parts.append(body.signedPayload.split(separator: "."))
        }
        let (renewed, expired) = (parts[0], parts[1])
        try #require(renewed.count == 3 && expired.count == 3)
        let other = (renewed[2].hasPrefix("AAAA") ? "BBBB" : "AAAA") + String(renewed[2].dropFirst(4))
        // {"alg":"none"}
        let unsigned = "eyJhbGciOiJub25lIn0.\(renewed[1])."
        let cases: [(name: String, reason: String, payload: String)] = [
            ("as-signature", "bad_signature", "\(renewed[0]).\(renewed[1]).\(other)"),
            ("as-payload", "bad_signature", "\(renewed[0]).\(expired[1]).\(renewed[2])"),
            ("as-unsigned", "wrong_algorithm", unsigned), ("as-garbage", "malformed", "hunter2"),
        ]
        return cases.map {
            let webhook = Webhook(headers: [:], body: "{\"signedPayload\":\"\($0.payload)\"}")
            return Forgery(store: "app-store", name: $0.name, reason: $0.reason, webhook: webhook)
        }
    }

    private static func googlePlay(_ doors: DoorSite) async throws -> [Forgery] {
        let request = #"{"subscription": {"notificationType": 4, "purchaseToken": "tok-ann"}}"#
        let genuine = try await doors.webhook("google-play", request)
        let tokens: [(name: String, reason: String, token: String?)] = [
            ("gp-none", "missing", nil),
            ("gp-audience", "wrong_audience", try await doors.pushToken(#"{"audience": "https://example.org/hook"}"#)),
            ("gp-account", "wrong_subject", try await doors.pushToken(#"{"email": "x@other.iam.example.com"}"#)),
            ("gp-unverified", "wrong_subject", try await doors.pushToken(#"{"email_verified": false}"#)),
            ("gp-issuer", "wrong_issuer", try await doors.pushToken(#"{"iss": "https://example.org"}"#)),
            ("gp-tampered", "bad_signature", try await doors.pushToken(#"{"tampered": true}"#)),
            ("gp-unsigned", "malformed", try await doors.pushToken(#"{"alg": "none"}"#)),
            ("gp-public-secret", "wrong_algorithm", try await doors.pushToken(#"{"alg": "HS256"}"#)),
            (
                "gp-expired", "expired",
                try await doors.pushToken(#"{"iat": \#(now - 7200), "exp": \#(now - 3600)}"#)
            ),
            ("gp-users", "wrong_audience", try await doors.token(#"{"sub": "ann"}"#)),
            ("gp-strange-key", "unknown_key", try await doors.pushToken(#"{"kid": "nobodys-key"}"#)),
        ]
        return tokens.map {
            var webhook = Webhook(headers: [:], body: genuine.body)
            webhook.headers["Authorization"] = $0.token.map { "Bearer \($0)" }
            return Forgery(store: "google-play", name: $0.name, reason: $0.reason, webhook: webhook)
        }
    }

    @Test func `72: a webhook that does not show who sent it is refused and writes nothing, a right one is kept once`()
        async throws
    {
        let settings = ["LOG_LEVEL": "trace"]
        try await DoorSite.with(scenario: Self.scenario, users: ["ann"], settings: settings) { doors in
            let door = try await doors.open("serve")
            var forgeries = try await Self.revenueCat(doors)
            forgeries += try await Self.appStore(doors)
            forgeries += try await Self.googlePlay(doors)
            let before = try await doors.site.content()
            var refusals: [String: Refusal] = [:]
            for forgery in forgeries {
                let answer = try await door.post(forgery.webhook, to: forgery.store, name: forgery.name)
                #expect(answer.status == 401 && answer["WWW-Authenticate"] == "Bearer", "\(forgery.name): \(answer)")
                let problem = try answer.problem
                #expect(problem.detail == "the request does not show that it comes from the store", "\(problem)")
                refusals[forgery.name] = Refusal(
                    door: forgery.store.replacing("-", with: "_"),
                    reason: forgery.reason
                )
            }
            let isSame = try await doors.site.content() == before
            #expect(isSame, "nothing is written")

            // What is sent as it should be is kept, once.
            let genuine = [
                "revenuecat": try await doors.webhook("revenuecat", #"{"event": \#(Self.event)}"#),
                "app-store": try await doors.webhook(
                    "app-store",
                    #"{"type": "DID_RENEW", "transaction": "2000000700000001"}"#
                ),
                "google-play": try await doors.webhook(
                    "google-play",
                    #"{"subscription": {"notificationType": 4, "purchaseToken": "tok-ann"}}"#
                ),
            ]
            for (store, webhook) in genuine {
                for _ in 0..<3 {
                    let answer = try await door.post(webhook, to: store)
                    #expect(answer.status == 200 && answer.body.isEmpty, "\(store): \(answer)")
                }
            }
            let kept = try await doors.site.texts(
                "SELECT concat_ws(' ', l.source, l.state) FROM entitlement_sync.inbox_log AS l ORDER BY 1"
            )
            #expect(kept == ["app_store received", "google_play received", "revenuecat received"])
            var secrets = ["hunter2", "revenuecat-demo", "tok-ann"]
            for webhook in forgeries.map(\.webhook) + Array(genuine.values) {
                secrets.append(String(webhook.body.suffix(40)))
                for value in webhook.headers.values { secrets.append(String(value.suffix(40))) }
            }
            try await Self.expectLines(refusals, of: door, withoutAnyOf: secrets)
            try await door.close()
        }
    }

    // MARK: How often

    @Test func `A user's requests are limited over all processes, and nobody else's by them`() async throws {
        let settings = ["HTTP_REQUESTS_PER_MINUTE_PER_USER": "5"]
        try await DoorSite.with(scenario: Self.scenario, users: ["ann", "ben"], settings: settings) { doors in
            let both = [try await doors.open("serve"), try await doors.open("serve")]
            let ann = try await doors.token(#"{"sub": "ann"}"#)
            let callers = both.map { Caller(door: $0, token: ann) }
            for number in 0..<5 {
                let answer = try await callers[number % 2].ask(.get, "/v1/entitlement")
                #expect(answer.status == 200, "\(number): \(answer)")
            }
            // A token of today is no way around it.
            let fresh = try await doors.caller("ann", at: both[1])
            for caller in callers + [fresh] {
                for (method, path) in [(HTTPRequest.Method.get, "/v1/entitlement"), (.post, "/v1/restores")] {
                    let answer = try await caller.ask(method, path)
                    #expect(answer.status == 429, "\(answer)")
                    let wait = answer["Retry-After"].flatMap { Int($0) } ?? 0
                    #expect((1...61).contains(wait), "\(wait)")
                    let problem = try answer.problem
                    #expect(problem.kind == "too-many-requests", "\(problem)")
                }
            }
            let jobs = try await doors.site.number("SELECT count(*) FROM entitlement_sync.job_status")
            #expect(jobs == 0)
            for door in both {
                let ben = try await doors.caller("ben", at: door)
                let shown = try await ben.entitlement()
                #expect(shown.type == "free")
            }
            for door in both { try await door.close() }
        }
    }

    @Test func `An address's requests are limited over all processes, genuine webhooks and health are not counted`()
        async throws
    {
        let settings = ["HTTP_REQUESTS_PER_MINUTE_PER_ADDRESS": "6"]
        try await DoorSite.with(scenario: Self.scenario, users: ["ann", "ben"], settings: settings) { doors in
            let both = [try await doors.open("serve"), try await doors.open("serve")]
            let callers = [try await doors.caller("ann", at: both[0]), try await doors.caller("ben", at: both[1])]
            // Whatever is asked for counts, what there is not as well.
            let paths = ["/v1/entitlement", "/v1/entitlement", "/nowhere", "/v1/entitlement", "/", "/v1/restores/x"]
            for (number, path) in paths.enumerated() {
                let answer = try await callers[number % 2].ask(.get, path)
                #expect(answer.status == (path == "/v1/entitlement" ? 200 : 404), "\(path): \(answer)")
            }
            for caller in callers {
                let answer = try await caller.ask(.get, "/v1/entitlement")
                let wait = answer["Retry-After"].flatMap { Int($0) } ?? 0
                #expect(answer.status == 429 && (1...61).contains(wait), "\(answer)")
            }
            // Stores and those who look after the process come from anywhere, and often.
            for door in both {
                for _ in 0..<10 {
                    let webhook = try await doors.webhook("revenuecat", #"{"event": \#(Self.event)}"#)
                    let kept = try await door.post(webhook, to: "revenuecat")
                    #expect(kept.status == 200, "\(kept)")
                    let health = try await door.ask(.get, "/health/ready")
                    #expect(health.status == 200, "\(health)")
                }
                // Who only pretends to be a store is counted.
                let forged = try await doors.webhook("revenuecat", #"{"event": \#(Self.event), "secret": "x"}"#)
                let refused = try await door.post(forged, to: "revenuecat")
                #expect(refused.status == 429, "\(refused)")
                // Another address is another count.
                let request = RawConnection.request(
                    "GET",
                    "/v1/entitlement",
                    [("Authorization", "Bearer \(callers[0].token)"), ("Connection", "close")]
                )
                let neighbour = try await RawConnection.exchange(request, with: door.port, from: 0x7F00_0002)
                #expect(neighbour.answers.map(\.status) == [200], "\(neighbour)")
            }
            for door in both { try await door.close() }
        }
    }
}
