import Crypto
import CryptoExtras
import Foundation
import HTTPTypes
import Testing

@testable import StoreSimulator

@Suite("Google Play")
struct GooglePlaySimulationTests {
    @Test("A subscription is told as the API tells it: defaults are left out")
    func subscription() async throws {
        try await Probe.run(GooglePlayShop.scenario) { probe in
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
            probe.simulator.simulation.withState {
                $0.googlePlay.put(GooglePlayPurchaseScenario(token: "tok", state: .canceled), nowMs: $0.clock.nowMs)
            }
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
        try await Probe.run(GooglePlayShop.scenario) { probe in
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
        try await Probe.run(GooglePlayShop.scenario) { probe in
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
}
