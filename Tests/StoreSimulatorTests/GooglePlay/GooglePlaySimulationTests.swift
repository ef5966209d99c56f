import Crypto
import CryptoExtras
import Foundation
import HTTPTypes
import Testing

@testable import StoreSimulator

/// Signs assertions as a client does, well or badly.
struct Assertion {
    var header: [String: any Sendable] = ["alg": "RS256", "typ": "JWT"]
    var claims: [String: any Sendable]
    var key: _RSA.Signing.PrivateKey?

    init() {
        let now = SimulatedClock.machine() / 1000
        claims = [
            "iss": "simulator@simulated-project.iam.gserviceaccount.com",
            "scope": "https://www.googleapis.com/auth/androidpublisher",
            "aud": "https://oauth2.googleapis.com/token",
            "iat": now,
            "exp": now + 3_600,
        ]
    }

    func signed() throws -> String {
        let file = try JSON(StoreSimulator.googleServiceAccount)
        let key = try self.key ?? _RSA.Signing.PrivateKey(pemRepresentation: file["private_key"]?.text ?? "")
        let text = try Self.part(header) + "." + Self.part(claims)
        let signature = try key.signature(for: Data(text.utf8), padding: .insecurePKCS1v1_5)
        return text + "." + Self.base64(signature.rawRepresentation)
    }

    private static func part(_ members: [String: any Sendable]) throws -> String {
        base64(try JSONSerialization.data(withJSONObject: members))
    }

    private static func base64(_ data: Data) -> String {
        data.base64EncodedString().replacing("+", with: "-").replacing("/", with: "_").replacing("=", with: "")
    }
}

extension Probe {
    static let play = "/google-play/androidpublisher/v3/applications/com.example.app"

    func exchange(_ assertion: String, grant: String = "urn%3Aietf%3Aparams%3Aoauth%3Agrant-type%3Ajwt-bearer")
        async throws -> Answer
    {
        try await send(
            .post,
            "/google-oauth/token",
            authorization: nil,
            contentType: "application/x-www-form-urlencoded",
            body: "grant_type=\(grant)&assertion=\(assertion)"
        )
    }

    /// Asks in the name of the service account.
    func ask(_ method: HTTPRequest.Method = .get, _ path: String, body: String? = nil) async throws -> Answer {
        let token = try await exchange(Assertion().signed()).json["access_token"]?.text ?? ""
        return try await send(method, Self.play + path, authorization: "Bearer \(token)", body: body)
    }

    func subscription(_ token: String) async throws -> JSON {
        try await ask(.get, "/purchases/subscriptionsv2/tokens/\(token)").json
    }
}

extension Probe.Answer {
    var reason: String? { (try? json)?["error"]?["errors"]?[0]?["reason"]?.text }
}

@Suite("Google Play")
struct GooglePlaySimulationTests {
    private static let scenario = """
        google_play:
          purchases:
            - {token: tok, account: acc, profile: prof, order_id: GPA.1-2-3-4}
            - {token: fresh, acknowledged: false}
            - {token: one, kind: one_time, product: lifetime, acknowledged: false}
            - {token: gone, state: gone}
            - {token: unpaid, state: pending, acknowledged: false}
        """

    // MARK: Access tokens

    @Test("A good assertion gets a token, which lets in until it is revoked")
    func token() async throws {
        try await Probe.run(Self.scenario) { probe in
            let granted = try await probe.exchange(Assertion().signed())
            #expect(granted.status == 200)
            #expect(try granted.json["expires_in"]?.integer == 3_599)
            #expect(try granted.json["token_type"]?.text == "Bearer")
            let token = try #require(try granted.json["access_token"]?.text)
            let path = Probe.play + "/purchases/subscriptionsv2/tokens/tok"
            #expect(try await probe.send(.get, path, authorization: "Bearer \(token)").status == 200)
            _ = try await probe.control(.delete, "/google-play/access-tokens")
            #expect(try await probe.send(.get, path, authorization: "Bearer \(token)").reason == "authError")
        }
    }

    @Test("Whoever has no token, or one that ran out, is not let in")
    func noToken() async throws {
        try await Probe.run(Self.scenario + "\n  token_lifetime: 0ms\n  expires_in: text") { probe in
            let granted = try await probe.exchange(Assertion().signed())
            #expect(try granted.json["expires_in"]?.text == "0")
            let token = try #require(try granted.json["access_token"]?.text)
            let path = Probe.play + "/purchases/subscriptionsv2/tokens/tok"
            for authorization in [nil, "Bearer \(token)", "Bearer x", token, "Bearer sk_test"] {
                let answer = try await probe.send(.get, path, authorization: authorization)
                #expect(answer.status == 401)
                #expect(answer.reason == "authError")
                #expect(try answer.json["error"]?["status"]?.text == "UNAUTHENTICATED")
            }
        }
    }

    enum Flaw: String, CaseIterable {
        case otherKey, algorithm, issuer, audience, noIssued, noExpiry, expired, early, tooLong, scope, noScope
    }

    @Test("A flawed assertion is refused in the endpoint's words", arguments: Flaw.allCases)
    func flaws(_ flaw: Flaw) async throws {
        var assertion = Assertion()
        let now = SimulatedClock.machine() / 1000
        var error = "invalid_grant"
        let description: String
        switch flaw {
        case .otherKey:
            assertion.key = try _RSA.Signing.PrivateKey(keySize: .bits2048)
            description = "Invalid JWT Signature."
        case .algorithm:
            assertion.header["alg"] = "HS256"
            description = "Invalid JWT Signature."
        case .issuer:
            assertion.claims["iss"] = "nobody@example.com"
            description = "Invalid grant: account not found"
        case .audience:
            assertion.claims["aud"] = "https://example.com/token"
            description = "Invalid JWT: Failed audience check."
        case .noIssued:
            assertion.claims["iat"] = nil
            description = "Invalid JWT: iat is not set"
        case .noExpiry:
            assertion.claims["exp"] = nil
            description = "Invalid JWT: exp is not set"
        case .expired:
            assertion.claims["iat"] = now - 7_200
            assertion.claims["exp"] = now - 3_600
            description = "Invalid JWT: Token must be a short-lived token (60 minutes)"
        case .early:
            assertion.claims["iat"] = now + 600
            assertion.claims["exp"] = now + 4_000
            description = "Invalid JWT: Token must be a short-lived token (60 minutes)"
        case .tooLong:
            assertion.claims["exp"] = now + 3_700
            description = "Invalid JWT: Token must be a short-lived token (60 minutes)"
        case .scope, .noScope:
            assertion.claims["scope"] = flaw == .scope ? "https://www.googleapis.com/auth/pubsub" : nil
            error = "invalid_scope"
            description = "Invalid OAuth scope or ID token audience provided."
        }
        let text = try assertion.signed()
        try await Probe.run { [error] probe in
            let answer = try await probe.exchange(text)
            #expect(answer.status == 400)
            #expect(try answer.json["error"]?.text == error)
            #expect(try answer.json["error_description"]?.text?.hasPrefix(description) == true)
        }
    }

    @Test("Other grants, and texts that are no assertion, are refused")
    func otherGrants() async throws {
        try await Probe.run { probe in
            let good = try Assertion().signed()
            #expect(try await probe.exchange(good, grant: "password").json["error"]?.text == "unsupported_grant_type")
            for text in ["", "x", "a.b.c", good + "x"] { #expect(try await probe.exchange(text).status == 400) }
            // A clock that is four minutes fast is let in, also where the simulated time is months away.
            probe.simulator.shiftClock(byMilliseconds: 90 * 86_400_000)
            var fast = Assertion()
            let now = SimulatedClock.machine() / 1000
            fast.claims["iat"] = now + 240
            fast.claims["exp"] = now + 3_840
            #expect(try await probe.exchange(fast.signed()).status == 200)
        }
    }

    @Test("The key file is a service account's, and each simulator of the process has the same")
    func keyFile() async throws {
        try await Probe.run { probe in
            let file = try await probe.control(.get, "/google-play/service-account.json")
            #expect(file.status == 200)
            #expect(file.text == StoreSimulator.googleServiceAccount)
            #expect(try file.json["type"]?.text == "service_account")
            #expect(try file.json["token_uri"]?.text == "https://oauth2.googleapis.com/token")
            #expect(try file.json["private_key"]?.text?.hasPrefix("-----BEGIN PRIVATE KEY-----\n") == true)
        }
    }

    // MARK: Purchases

    @Test("A subscription is told as the API tells it: defaults are left out")
    func subscription() async throws {
        try await Probe.run(Self.scenario) { probe in
            let body = try await probe.subscription("tok")
            #expect(body["kind"]?.text == "androidpublisher#subscriptionPurchaseV2")
            #expect(body["subscriptionState"]?.text == "SUBSCRIPTION_STATE_ACTIVE")
            #expect(body["acknowledgementState"]?.text == "ACKNOWLEDGEMENT_STATE_ACKNOWLEDGED")
            #expect(body["externalAccountIdentifiers"]?["obfuscatedExternalAccountId"]?.text == "acc")
            #expect(body["externalAccountIdentifiers"]?["obfuscatedExternalProfileId"]?.text == "prof")
            let item = try #require(body["lineItems"]?[0])
            #expect(item["productId"]?.text == "pro")
            #expect(item["offerDetails"]?["basePlanId"]?.text == "monthly")
            #expect(item["latestSuccessfulOrderId"]?.text == "GPA.1-2-3-4")
            #expect(item["autoRenewingPlan"]?["autoRenewEnabled"]?.flag == true)
            let expected = RFC3339Text.write(probe.nowMs + 27 * 86_400_000, digits: 3)
            #expect(item["expiryTime"]?.text == expected)
            for absent in ["linkedPurchaseToken", "canceledStateContext", "testPurchase", "outOfAppPurchaseContext"] {
                #expect(body[absent] == nil)
            }
            probe.simulator.put(GooglePlayPurchaseScenario(token: "tok", state: .canceled))
            let canceled = try await probe.subscription("tok")
            #expect(canceled["lineItems"]?[0]?["autoRenewingPlan"]?["autoRenewEnabled"] == nil)
            #expect(canceled["canceledStateContext"]?["userInitiatedCancellation"] != nil)
            #expect(canceled["externalAccountIdentifiers"] == nil)
        }
    }

    @Test(
        "Every state has its word and its context",
        arguments: [
            ("active", "ACTIVE", nil), ("grace", "IN_GRACE_PERIOD", "inGracePeriodStateContext"),
            ("on_hold", "ON_HOLD", "onHoldStateContext"), ("paused", "PAUSED", "pausedStateContext"),
            ("canceled", "CANCELED", "canceledStateContext"), ("canceled_past", "CANCELED", "canceledStateContext"),
            ("expired", "EXPIRED", "canceledStateContext"), ("pending", "PENDING", nil),
            ("pending_canceled", "PENDING_PURCHASE_CANCELED", nil), ("silent_grace", "ACTIVE", nil),
            ("unknown", "NEVER_HEARD_OF", "fieldThatIsNew"), ("deferred", "ACTIVE", nil),
        ] as [(String, String, String?)]
    )
    func states(_ state: String, _ word: String, _ context: String?) async throws {
        try await Probe.run("google_play: {purchases: [{token: tok, state: \(state)}]}") { probe in
            let body = try await probe.subscription("tok")
            #expect(body["subscriptionState"]?.text == "SUBSCRIPTION_STATE_\(word)")
            let contexts = body.keys.filter { $0.hasSuffix("Context") || $0 == "fieldThatIsNew" }
            #expect(contexts == Set([context].compactMap(\.self)))
            #expect((body["startTime"] == nil) == state.hasPrefix("pending"))
            let report = try await probe.control(.get, "/google-play/purchases/tok").json
            #expect(report["state"]?.text == "SUBSCRIPTION_STATE_\(word)")
        }
    }

    @Test(
        "Times have as many digits as asked for",
        arguments: [(0, "Z"), (3, ".789Z"), (6, ".789000Z"), (9, ".789000000Z")]
    )
    func digits(_ digits: Int, _ end: String) {
        #expect(RFC3339Text.write(1_772_352_000_789, digits: digits) == "2026-03-01T08:00:00" + end)
        #expect(RFC3339Text.write(-1, digits: 3) == "1969-12-31T23:59:59.999Z")
    }

    @Test("What a token stands for decides which endpoint knows it")
    func endpoints() async throws {
        try await Probe.run(Self.scenario) { probe in
            let base = "/purchases/subscriptionsv2/tokens/"
            let other = "/purchases/productsv2/tokens/"
            let rows: [(String, Int, String?)] = [
                (base + "gone", 410, "subscriptionPurchaseNoLongerAvailable"),
                (base + "nobody", 404, "purchaseTokenNotFound"),
                (base + "a%20b", 400, "invalid"), (base + "one", 410, "purchaseTokenNoLongerValid"),
                (other + "one", 200, nil),
                (other + "tok", 404, "purchaseTokenNotFound"), (other + "nobody", 404, "purchaseTokenNotFound"),
                ("/orders/GPA.1-2-3-4", 200, nil), ("/orders/GPA.0", 404, "notFound"),
                ("/purchases/voidedpurchases?type=1", 200, nil), ("/purchases/elsewhere", 404, nil),
                ("/purchases/voidedpurchases?startTime=1", 400, "invalid"),
            ]
            for (path, status, reason) in rows {
                let answer = try await probe.ask(.get, path)
                #expect(answer.status == status, "\(path)")
                #expect(answer.reason == reason, "\(path)")
            }
            let token = try await probe.exchange(Assertion().signed()).json["access_token"]?.text ?? ""
            let elsewhere = Probe.play.replacing("com.example.app", with: "com.example.other") + base + "tok"
            let answer = try await probe.send(.get, elsewhere, authorization: "Bearer \(token)")
            #expect(answer.reason == "applicationNotFound")
        }
    }

    @Test("A running subscription renews itself; one that will not expires")
    func renewals() async throws {
        let yaml = """
            google_play:
              purchases:
                - {token: a, order_id: GPA.1}
                - {token: b, state: canceled}
                - {token: c, prepaid: true}
            """
        try await Probe.run(yaml) { probe in
            let end = probe.nowMs + 27 * 86_400_000
            probe.simulator.shiftClock(byMilliseconds: 58 * 86_400_000)
            let item = try #require(try await probe.subscription("a")["lineItems"]?[0])
            #expect(item["expiryTime"]?.text == RFC3339Text.write(end + 60 * 86_400_000, digits: 3))
            #expect(item["latestSuccessfulOrderId"]?.text == "GPA.1..1")
            for token in ["b", "c"] {
                #expect(try await probe.subscription(token)["subscriptionState"]?.text == "SUBSCRIPTION_STATE_EXPIRED")
            }
            #expect(try await probe.subscription("c")["canceledStateContext"] == nil)
        }
    }

    @Test("A replaced purchase is over, unless the scenario says otherwise")
    func replaced() async throws {
        let yaml = """
            google_play:
              purchases:
                - {token: a}
                - {token: b, linked: a}
                - {token: c, state: active}
                - {token: d, linked: c}
            """
        try await Probe.run(yaml) { probe in
            let old = try await probe.subscription("a")
            #expect(old["subscriptionState"]?.text == "SUBSCRIPTION_STATE_EXPIRED")
            #expect(old["canceledStateContext"]?["replacementCancellation"] != nil)
            #expect(try await probe.subscription("b")["linkedPurchaseToken"]?.text == "a")
            #expect(try await probe.subscription("c")["subscriptionState"]?.text == "SUBSCRIPTION_STATE_ACTIVE")
            // The newer purchase turns out not to be paid.
            _ = try await probe.control(.put, "/google-play/purchases/b", #"{"linked":"a","state":"pending"}"#)
            #expect(try await probe.subscription("a")["subscriptionState"]?.text == "SUBSCRIPTION_STATE_ACTIVE")
        }
    }

    // MARK: Acknowledgement

    @Test("A purchase is acknowledged once, under its own product, and only when it is paid")
    func acknowledge() async throws {
        try await Probe.run(Self.scenario) { probe in
            let rows: [(String, Int, String?)] = [
                ("subscriptions/other/tokens/fresh", 400, "purchaseTokenDoesNotMatchProductId"),
                ("subscriptions/pro/tokens/fresh", 200, nil),
                ("subscriptions/pro/tokens/fresh", 400, "invalidPurchaseState"),
                ("subscriptions/pro/tokens/unpaid", 400, "invalidPurchaseState"),
                ("subscriptions/pro/tokens/gone", 410, "subscriptionPurchaseNoLongerAvailable"),
                ("subscriptions/pro/tokens/nobody", 404, "purchaseTokenNotFound"),
                ("products/pro/tokens/tok", 404, "purchaseTokenNotFound"),
                ("products/lifetime/tokens/one", 200, nil),
            ]
            for (path, status, reason) in rows {
                let answer = try await probe.ask(.post, "/purchases/\(path):acknowledge", body: "{}")
                #expect(answer.status == status, "\(path)")
                #expect(answer.reason == reason, "\(path)")
                if status == 200 { #expect(answer.text.isEmpty) }
            }
            let report = try await probe.control(.get, "/google-play/purchases/fresh").json
            #expect(report["acknowledged"]?.flag == true)
            #expect(report["acknowledge_calls"]?.integer == 3)
            #expect(
                probe.simulator.googlePlayPurchase("one")
                    == GooglePlayPurchaseReport(isAcknowledged: true, acknowledgeCalls: 1, state: "PURCHASED")
            )
            #expect(probe.simulator.googlePlayPurchase("nobody") == nil)
        }
    }

    @Test(
        "What is not acknowledged in time is taken back",
        arguments: [
            ("", 3 * 86_400_000), ("test: true", 180_000),
            ("prepaid: true, started: now, expires: +4d", 2 * 86_400_000),
        ] as [(String, Int64)]
    )
    func takenBack(_ fields: String, _ withinMs: Int64) async throws {
        let more = fields.isEmpty ? "started: now" : fields.contains("started") ? fields : fields + ", started: now"
        try await Probe.run("google_play: {purchases: [{token: tok, acknowledged: false, \(more)}]}") { probe in
            probe.simulator.shiftClock(byMilliseconds: withinMs - 1)
            #expect(try await probe.subscription("tok")["subscriptionState"]?.text == "SUBSCRIPTION_STATE_ACTIVE")
            probe.simulator.shiftClock(byMilliseconds: 1)
            let body = try await probe.subscription("tok")
            #expect(body["subscriptionState"]?.text == "SUBSCRIPTION_STATE_EXPIRED")
            #expect(body["acknowledgementState"]?.text == "ACKNOWLEDGEMENT_STATE_PENDING")
            #expect(body["canceledStateContext"]?["systemInitiatedCancellation"] != nil)
            let voided = try await probe.ask(.get, "/purchases/voidedpurchases?type=1").json["voidedPurchases"]
            #expect(voided?[0]?["voidedReason"]?.integer == 8)
        }
    }

    @Test("Ids that an acknowledgement brings are kept for what was bought in Play alone")
    func accountIDs() async throws {
        let yaml = """
            google_play:
              purchases:
                - {token: in, acknowledged: false}
                - {token: out, acknowledged: false, out_of_app: {expired_token: old, account: acc}}
            """
        try await Probe.run(yaml) { probe in
            let context = try #require(try await probe.subscription("out")["outOfAppPurchaseContext"])
            #expect(context["expiredPurchaseToken"]?.text == "old")
            #expect(context["expiredExternalAccountIdentifiers"]?["obfuscatedExternalAccountId"]?.text == "acc")
            let body = #"{"externalAccountIds":{"obfuscatedAccountId":"given"}}"#
            for token in ["in", "out"] {
                let path = "/purchases/subscriptions/pro/tokens/\(token):acknowledge"
                #expect(try await probe.ask(.post, path, body: body).status == 200)
            }
            #expect(try await probe.subscription("in")["externalAccountIdentifiers"] == nil)
            let out = try await probe.subscription("out")
            #expect(out["externalAccountIdentifiers"]?["obfuscatedExternalAccountId"]?.text == "given")
            #expect(out["outOfAppPurchaseContext"] == nil)
        }
    }

    // MARK: Faults, control, scenario

    @Test("A fault rule makes the errors of the API, and of the token endpoint where the word is one of its own")
    func faults() async throws {
        try await Probe.run(Self.scenario) { probe in
            func fault(_ json: String) async throws {
                _ = try await probe.control(.delete, "/faults")
                _ = try await probe.control(.post, "/faults", json)
            }
            try await fault(
                #"{"endpoint":"google_play.subscription","status":403,"error_type":"rateLimitExceeded","backoff":"2s"}"#
            )
            let quota = try await probe.ask(.get, "/purchases/subscriptionsv2/tokens/tok")
            #expect(quota.status == 403)
            #expect(quota.reason == "rateLimitExceeded")
            #expect(try quota.json["error"]?["status"]?.text == "PERMISSION_DENIED")
            #expect(quota.header(.retryAfter) == "2")
            try await fault(
                #"{"endpoint":"google_play.subscription","customer":"tok","status":401,"error_type":"permissionDenied"}"#
            )
            #expect(try await probe.ask(.get, "/purchases/subscriptionsv2/tokens/tok").reason == "permissionDenied")
            #expect(try await probe.ask(.get, "/purchases/subscriptionsv2/tokens/fresh").status == 200)
            try await fault(#"{"endpoint":"google_play.oauth","status":400,"error_type":"invalid_grant"}"#)
            #expect(try await probe.exchange("x").json["error"]?.text == "invalid_grant")
            for (status, reason) in [
                (400, "invalid"), (404, "purchaseTokenNotFound"), (409, "concurrentUpdate"),
                (410, "purchaseTokenNoLongerValid"), (500, "internalError"), (503, "backendError"),
            ] {
                try await fault(#"{"endpoint":"google_play.order","status":\#(status)}"#)
                #expect(try await probe.ask(.get, "/orders/GPA.0").reason == reason)
            }
        }
    }

    @Test(
        "A mistake in a scenario is named",
        arguments: [
            ("google_play: {purchases: [{state: active}]}", "google_play.purchases has a purchase without a token"),
            (
                "google_play: {purchases: [{token: a, state: on}]}",
                "google_play.purchases[0].state is \"on\"; use one of active"
            ),
            ("google_play: {purchases: [{token: a, tokn: b}]}", "google_play.purchases[0].tokn is no known key"),
            ("google_play: {purchases: [{token: a, fraction_digits: 4}]}", "fraction_digits is 4; use 0, 3, 6 or 9"),
            (
                "google_play: {purchases: [{token: a, addons: [{plan: x}]}]}",
                "google_play.purchases[0].addons[0].product is missing"
            ),
            ("google_play: {packages: a}", "google_play.packages is no known key"),
        ]
    )
    func mistakes(_ yaml: String, _ message: String) {
        let error = #expect(throws: ScenarioError.self) { try Scenario(yaml: yaml) }
        #expect(error?.description.contains(message) == true, "\(error?.description ?? "")")
    }

    @Test("A token that is used twice, and a control request that cannot be carried out, say why")
    func refusals() async throws {
        let twice = try Scenario(yaml: "google_play: {purchases: [{token: a}, {token: a}]}")
        #expect(throws: ScenarioError.self) { try StoreSimulator(scenario: twice, logger: Probe.quiet) }
        try await Probe.run(Self.scenario) { probe in
            let bad = try await probe.control(.put, "/google-play/purchases/x", #"{"state":"on"}"#)
            #expect(bad.status == 400)
            #expect(try bad.json["error"]?.text?.contains("use one of active") == true)
            #expect(try await probe.control(.put, "/google-play/purchases/x", #"{"token":"y"}"#).status == 400)
            #expect(try await probe.control(.get, "/google-play/purchases/x").status == 404)
            #expect(try await probe.control(.get, "/google-play/elsewhere").status == 404)
            let stored = try await probe.control(.put, "/google-play/purchases/x", #"{"state":"grace","token":"x"}"#)
            #expect(try stored.json["state"]?.text == "SUBSCRIPTION_STATE_IN_GRACE_PERIOD")
        }
    }

    @Test("What is encoded is decoded again")
    func roundTrip() throws {
        let yaml = """
            google_play:
              package: com.example.other
              token_lifetime: 5s
              expires_in: text
              acknowledge_within: 1m
              purchases:
                - {token: a, state: on_hold, linked: b, account: "", started: -3d, expires: +27d, test: true, voided: -1h,
                   addons: [{product: x, expires: +1d}], out_of_app: {expired_token: e}, order_ids: [GPA.1], fraction_digits: 9}
                - {token: b, kind: one_time, consumed: true, auto_renew: false, prepaid: true, replacement: z, voided_reason: 7}
            """
        let scenario = try Scenario(yaml: yaml)
        let again = try Scenario.decode(json: JSONEncoder().encode(scenario))
        #expect(scenario.googlePlay.purchases.count == 2)
        #expect(again.googlePlay == scenario.googlePlay)
    }

    @Test("The guide tells every field, state and endpoint")
    func guide() {
        let words =
            GooglePlayScenario.CodingKeys.allCases.map(\.rawValue)
            + GooglePlayPurchaseScenario.CodingKeys.allCases.map(\.rawValue)
            + GooglePlayPurchaseScenario.State.allCases.map(\.rawValue)
            + GooglePlayPurchaseScenario.Kind.allCases.map(\.rawValue) + GooglePlaySimulation.endpoints
        for word in words { #expect(GooglePlaySimulation.guide.contains(word), "\(word) is missing") }
    }

    @Test("The voided list is paged, filtered, and carries its times along")
    func voidedPages() async throws {
        let lines = (1...5).map {
            "    - {token: t\($0), kind: \($0 < 3 ? "one_time" : "subscription"), voided: -\(6 - $0)h}"
        }
        try await Probe.run("google_play:\n  purchases:\n" + lines.joined(separator: "\n")) { probe in
            func tokens(_ body: JSON) -> [String] {
                (0..<9).compactMap { body["voidedPurchases"]?[$0]?["purchaseToken"]?.text }
            }
            let path = "/purchases/voidedpurchases?maxResults=2&type=1"
            let first = try await probe.ask(.get, path).json
            #expect(tokens(first) == ["t1", "t2"])
            #expect(first["voidedPurchases"]?[0]?["voidedTimeMillis"]?.text == "\(probe.nowMs - 5 * 3_600_000)")
            let next = try #require(first["tokenPagination"]?["nextPageToken"]?.text)
            let second = try await probe.ask(.get, path + "&token=\(next)").json
            #expect(tokens(second) == ["t3", "t4"])
            let last = try #require(second["tokenPagination"]?["nextPageToken"]?.text)
            let third = try await probe.ask(.get, path + "&token=\(last)").json
            #expect(tokens(third) == ["t5"])
            #expect(third["tokenPagination"] == nil)
            #expect(tokens(try await probe.ask(.get, "/purchases/voidedpurchases").json) == ["t1", "t2"])
            let since = probe.nowMs - 3 * 3_600_000
            #expect(
                tokens(try await probe.ask(.get, "/purchases/voidedpurchases?type=1&startTime=\(since)").json) == [
                    "t3", "t4", "t5",
                ]
            )
            #expect(try await probe.ask(.get, path + "&token=x").status == 400)
        }
    }
}
