import Crypto
import CryptoExtras
import Foundation
import HTTPTypes
import Testing

@testable import StoreSimulator

@Suite("Google Play's faults and control")
struct GooglePlayControlTests {
    @Test("A fault rule makes the errors of the API, and of the token endpoint where the word is one of its own")
    func faults() async throws {
        try await Probe.run(GooglePlayShop.scenario) { probe in
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
        try await Probe.run(GooglePlayShop.scenario) { probe in
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
            GooglePlayScenario.fields.map(\.name)
            + GooglePlayPurchaseScenario.fields.map(\.name)
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
