import Crypto
import Foundation
import HTTPTypes
import SwiftASN1
import Testing
import X509

@testable import StoreSimulator

/// The simulated App Store: paths, errors, paging, tokens, control.
struct AppStoreSimulationTests {
    private static let scenario = """
        app_store:
          customers:
            - id: alice
              app_transaction: "704000000000000001"
              transactions:
                - {original: "1001", transaction: "1009", product: monthly, order_id: MABC, purchased: -2d}
                - {original: "1001", product: monthly, purchased: -32d}
                - {original: "1002", product: shared, ownership: FAMILY_SHARED}
                - {original: "1003", product: lifetime, type: non_consumable}
            - {id: bob, environment: Sandbox, transactions: [{original: "2001", product: monthly, state: expired}]}
        """

    /// A token as a client makes it, with claims changed.
    private static func token(
        _ changes: [String: any Sendable] = [:],
        header changed: [String: any Sendable] = [:],
        key: P256.Signing.PrivateKey = AppStoreCredentials.requestKey
    ) throws -> String {
        let now = SimulatedClock.machine() / 1000
        var header: [String: any Sendable] = ["alg": "ES256", "kid": "2X9R4HXF34", "typ": "JWT"]
        var claims: [String: any Sendable] = [
            "iss": "57246542-96fe-1a63-e053-0824d011072a", "iat": now - 5, "exp": now + 3000,
            "aud": "appstoreconnect-v1", "bid": "com.example.app",
        ]
        header.merge(changed) { $1 }
        claims.merge(changes) { $1 }
        func write(_ object: [String: any Sendable]) throws -> String {
            encode(try JSONSerialization.data(withJSONObject: object))
        }
        let signed = try write(header) + "." + write(claims)
        return try signed + "." + encode(key.signature(for: Data(signed.utf8)).rawRepresentation)
    }

    private static func encode(_ data: Data) -> String {
        data.base64EncodedString().replacing("+", with: "-").replacing("/", with: "_").replacing("=", with: "")
    }

    private static func ask(
        _ probe: Probe,
        _ method: HTTPRequest.Method,
        _ path: String,
        body: String? = nil,
        token: String? = nil,
        base: String = "/app-store/inApps"
    ) async throws -> Probe.Answer {
        try await probe.send(
            method,
            base + path,
            authorization: "Bearer " + (token ?? Self.token()),
            contentType: body == nil ? nil : "application/json",
            body: body
        )
    }

    @Test(arguments: [
        (HTTPRequest.Method.get, "/v1/subscriptions/abc", 4_000_006), (.get, "/v1/subscriptions/9", 4_040_010),
        (.get, "/v1/subscriptions/2001", 4_040_010), (.get, "/v1/subscriptions/1001?status=7", 4_000_031),
        (.get, "/v1/transactions/704000000000000001", 4_000_048), (.get, "/v1/transactions/9", 4_040_010),
        (.get, "/v2/history/1001?revision=x", 4_000_005), (.get, "/v2/history/1001?productType=Consumable", 4_000_022),
        (.get, "/v2/history/1001?sort=UP", 4_000_021), (.get, "/v2/history/1001?revoked=maybe", 4_000_030),
        (.get, "/v2/history/1001?startDate=x", 4_000_015), (.get, "/v2/history/1001?startDate=2&endDate=1", 4_000_013),
        (.get, "/v2/refund/lookup/9", 4_040_010), (.put, "/v1/transactions/abc/appAccountToken", 4_000_006),
        (.put, "/v1/transactions/9/appAccountToken", 4_040_005),
        (.put, "/v1/transactions/1009/appAccountToken", 4_000_187),
        (.put, "/v1/transactions/1002/appAccountToken", 4_000_185),
        (.put, "/v1/transactions/704000000000000001/appAccountToken", 4_000_048),
    ])
    func `a request that cannot be answered has the store's error`(
        method: HTTPRequest.Method,
        path: String,
        code: Int64
    ) async throws {
        try await Probe.run(Self.scenario) { probe in
            let body = #"{"appAccountToken":"7e3fb204-2b4b-4d5a-9d4a-7f5f6d3b5c10"}"#
            let answer = try await Self.ask(probe, method, path, body: method == .put ? body : nil)
            #expect(answer.status == Int(code / 10_000))
            #expect(try answer.json["errorCode"]?.integer == code && answer.json["errorMessage"]?.text != nil)
        }
    }

    @Test func `statuses list the newest transaction of each line, for any id of the customer`() async throws {
        try await Probe.run(Self.scenario) { probe in
            for id in ["1001", "1009", "1003", "704000000000000001"] {
                let json = try await Self.ask(probe, .get, "/v1/subscriptions/\(id)").json
                #expect(json["environment"]?.text == "Production" && json["bundleId"]?.text == "com.example.app")
                #expect(json["appAppleId"]?.integer == 1_234_567_890)
                let lines = json["data"]?[0]?["lastTransactions"]
                #expect(lines?[0]?["originalTransactionId"]?.text == "1001" && lines?[0]?["status"]?.integer == 1)
                #expect(lines?[1]?["originalTransactionId"]?.text == "1002" && lines?[2] == nil)
                let signed = try Self.payload(lines?[0]?["signedTransactionInfo"]?.text)
                #expect(signed["transactionId"]?.text == "1009" && signed["environment"]?.text == "Production")
                let renewal = try Self.payload(lines?[0]?["signedRenewalInfo"]?.text)
                #expect(renewal["originalTransactionId"]?.text == "1001" && renewal["bundleId"] == nil)
            }
            let none = try await Self.ask(probe, .get, "/v1/subscriptions/1001?status=2&status=5").json
            #expect(none["data"] == .array([]))
            let sandbox = try await Self.ask(
                probe,
                .get,
                "/v1/subscriptions/2001",
                base: "/app-store-sandbox/inApps"
            ).json
            #expect(sandbox["environment"]?.text == "Sandbox" && sandbox["appAppleId"] == nil)
        }
    }

    private static func payload(_ text: String?) throws -> JSON {
        let parts = try #require(text).split(separator: ".")
        let part = parts[1].replacing("-", with: "+").replacing("_", with: "/")
        let data = Data(base64Encoded: part + String(repeating: "=", count: (4 - part.utf8.count % 4) % 4))
        return try JSON(String(decoding: try #require(data), as: UTF8.self))
    }

    @Test func `pages belong to their filters, and a changed transaction comes again`() async throws {
        try await Probe.run { probe in
            func customer(refunding index: Int? = nil) -> String {
                let items = (0..<40).map { number in
                    #"{"original":"\#(3000 + number)","product":"p","type":"non_consumable","#
                        + #""state":"\#(number == index ? "refunded" : "active")"}"#
                }
                return #"{"transactions":[\#(items.joined(separator: ","))]}"#
            }
            #expect(try await probe.control(.put, "/app-store/customers/c", customer()).status == 200)
            let path = "/v2/history/3000?productType=NON_CONSUMABLE"
            let first = try await Self.ask(probe, .get, path).json
            #expect(first["hasMore"]?.flag == true)
            let revision = try #require(first["revision"]?.text)
            let other = try await Self.ask(probe, .get, "/v2/history/3000?revision=\(revision)")
            #expect(try other.json["errorCode"]?.integer == 4_000_005)
            let second = try await Self.ask(probe, .get, path + "&revision=\(revision)").json
            #expect(second["hasMore"]?.flag == false)
            #expect(try await probe.control(.put, "/app-store/customers/c", customer(refunding: 3)).status == 200)
            let last = try #require(second["revision"]?.text)
            let third = try await Self.ask(probe, .get, path + "&revision=\(last)").json
            let again = try Self.payload(third["signedTransactions"]?[0]?.text)
            #expect(again["transactionId"]?.text == "3003" && again["revocationDate"] != nil)
            #expect(third["signedTransactions"]?[1] == nil)
        }
    }

    @Test(arguments: [
        "none", "wrong", "kid", "alg", "iss", "aud", "bid", "old", "future", "long", "stranger", "genuine",
    ])
    func `a token has to be right in everything`(fault: String) async throws {
        let now = SimulatedClock.machine() / 1000
        let token =
            switch fault {
            case "none": ""
            case "wrong": "a.b.c"
            case "kid": try Self.token(header: ["kid": "OTHER"])
            case "alg": try Self.token(header: ["alg": "HS256"])
            case "iss": try Self.token(["iss": "other"])
            case "aud": try Self.token(["aud": "other"])
            case "bid": try Self.token(["bid": "com.example.other"])
            case "old": try Self.token(["iat": now - 600, "exp": now - 1])
            case "future": try Self.token(["iat": now + 2000])
            case "long": try Self.token(["exp": now + 3600])
            case "stranger": try Self.token(key: P256.Signing.PrivateKey())
            default: try Self.token()
            }
        try await Probe.run(Self.scenario) { probe in
            let answer = try await Self.ask(probe, .get, "/v1/transactions/1001", token: token)
            #expect(answer.status == (fault == "genuine" ? 200 : 401))
            if fault != "genuine" {
                #expect(answer.headers[.contentType]?.hasPrefix("text/plain") == true)
                #expect(answer.text.hasPrefix("Unauthenticated"))
            }
        }
    }

    @Test func `limits are for an hour, each environment and endpoint apart`() async throws {
        // 50 a second are 180,000 an hour: scaled, three in production and one in the sandbox.
        let limits = "app_store:\n  rate_limits: true\n  rate_scale: 0.00001667\n  customers:"
        try await Probe.run(Self.scenario.replacing("app_store:\n  customers:", with: limits)) { probe in
            for number in 1...4 {
                let answer = try await Self.ask(probe, .get, "/v1/subscriptions/1001")
                #expect(answer.status == (number < 4 ? 200 : 429))
                guard number == 4 else { continue }
                #expect(try answer.json["errorCode"]?.integer == 4_290_000)
                let until = Int64(answer.headers[.retryAfter] ?? "")
                #expect(until == (probe.nowMs / 3_600_000 + 1) * 3_600_000)
            }
            #expect(try await Self.ask(probe, .get, "/v2/history/1001").status == 200)
            let base = "/app-store-sandbox/inApps"
            #expect(try await Self.ask(probe, .get, "/v1/subscriptions/2001", base: base).status == 200)
            #expect(try await Self.ask(probe, .get, "/v1/subscriptions/2001", base: base).status == 429)
            _ = try await probe.control(.post, "/clock", #"{"shift":"+1h"}"#)
            #expect(try await Self.ask(probe, .get, "/v1/subscriptions/1001").status == 200)
        }
    }

    @Test func `a fault answers with the code it names, or the status's usual one`() async throws {
        try await Probe.run(Self.scenario) { probe in
            for (rule, status, code) in [
                (#"{"status":404,"error_type":"4040002"}"#, 404, 4_040_002 as Int64?),
                (#"{"status":404}"#, 404, 4_040_010),
                (#"{"status":500}"#, 500, 5_000_000), (#"{"status":500,"error_type":"5000001"}"#, 500, 5_000_001),
                (#"{"status":503}"#, 503, nil), (#"{"status":401}"#, 401, nil), (#"{"status":403}"#, 403, nil),
                (#"{"customer":"alice","status":429,"backoff":"7s"}"#, 429, 4_290_000),
                (#"{"customer":"1003","status":400}"#, 200, nil),
            ] {
                _ = try await probe.control(.delete, "/faults")
                _ = try await probe.control(.post, "/faults", rule)
                let answer = try await Self.ask(probe, .get, "/v1/transactions/1001")
                #expect(answer.status == status, "\(rule)")
                #expect((try? answer.json)?["errorCode"]?.integer == code, "\(rule)")
                if status == 429 { #expect(answer.headers[.retryAfter] == "\(probe.nowMs + 7000)") }
            }
        }
    }

    @Test func `an account token is set on the current transaction and not on earlier ones`() async throws {
        try await Probe.run(Self.scenario) { probe in
            let path = "/v1/transactions/1001/appAccountToken"
            let wrong = try await Self.ask(probe, .put, path, body: #"{"appAccountToken":"me"}"#)
            #expect(try wrong.json["errorCode"]?.integer == 4_000_183)
            let token = "7e3fb204-2b4b-4d5a-9d4a-7f5f6d3b5c10"
            let set = try await Self.ask(probe, .put, path, body: #"{"appAccountToken":"\#(token)"}"#)
            #expect(set.status == 200 && set.text.isEmpty)
            let now = try await probe.control(.get, "/app-store/transactions/1009").json
            #expect(now["account_token"]?.text == token && now["customer"]?.text == "alice")
            let before = try await probe.control(.get, "/app-store/transactions/1001").json
            #expect(before["account_token"] == .null)
        }
    }

    @Test func `orders are production's, and an unknown number has status 1`() async throws {
        try await Probe.run(Self.scenario) { probe in
            let known = try await Self.ask(probe, .get, "/v1/lookup/MABC").json
            #expect(known["status"]?.integer == 0 && known["signedTransactions"]?[0] != nil)
            let unknown = try await Self.ask(probe, .get, "/v1/lookup/MNONE")
            #expect(unknown.status == 200)
            #expect(try unknown.json["status"]?.integer == 1)
            #expect(try await Self.ask(probe, .get, "/v1/lookup/MABC", base: "/app-store-sandbox/inApps").status == 400)
        }
    }

    @Test func `late visibility hides an account from the API alone`() async throws {
        let scenario = Self.scenario.replacing("- id: alice", with: "- id: alice\n      visible_after: 5s")
        try await Probe.run(scenario) { probe in
            #expect(try await Self.ask(probe, .get, "/v1/transactions/1001").status == 404)
            #expect(try await probe.control(.get, "/app-store/jws/1001").status == 200)
            _ = try await probe.control(.post, "/clock", #"{"shift":"+5s"}"#)
            #expect(try await Self.ask(probe, .get, "/v1/transactions/1001").status == 200)
        }
    }

    @Test func `keys and proofs are handed out`() async throws {
        try await Probe.run(Self.scenario) { probe in
            let root = try await probe.control(.get, "/app-store/root.pem").text
            #expect(try Certificate(pemEncoded: root) == StoreSimulator.appStoreRoot)
            let key = try await probe.control(.get, "/app-store/key.p8").text
            #expect(key == StoreSimulator.appStoreKey && key.contains("BEGIN PRIVATE KEY"))
            let proof = try await probe.control(.get, "/app-store/jws/1009").text
            #expect(try Self.payload(proof)["productId"]?.text == "monthly")
            #expect(try probe.simulator.appStoreProof(ofTransaction: "1009")?.split(separator: ".").count == 3)
            #expect(try probe.simulator.appStoreProof(ofTransaction: "9") == nil)
            #expect(try await probe.control(.get, "/app-store/jws/9").status == 404)
            #expect(try await probe.control(.get, "/app-store/elsewhere").status == 404)
        }
    }

    @Test(arguments: [
        (#"{"transactions":[{"original":"x","product":"p"}]}"#, "use 1 to 32 digits"),
        (#"{"transactions":[{"original":"1","product":"p","state":"lost"}]}"#, "use one of active"),
        (#"{"transactions":[{"original":"1"}]}"#, "product is missing"), (#"{"id":"other"}"#, "differs from the path"),
        (#"{"environment":"Sandbox","transactions":[{"original":"2001","product":"p"}]}"#, "twice (bob, new)"),
    ])
    func `an account that cannot be stored is refused with the reason`(body: String, reason: String) async throws {
        try await Probe.run(Self.scenario) { probe in
            let answer = try await probe.control(.put, "/app-store/customers/new", body)
            #expect(answer.status == 400)
            #expect(try answer.json["error"]?.text?.contains(reason) == true, "\(answer.text)")
        }
    }

    @Test func `the guide tells every endpoint and every key`() {
        let words =
            AppStoreSimulation.endpoints + AppStoreScenario.fields.map(\.name)
            + AppStoreCustomerScenario.fields.map(\.name)
            + AppStoreTransactionScenario.fields.map(\.name)
            + AppStoreNotificationScenario.fields.map(\.name)
            + AppStoreTransactionScenario.Kind.allCases.map(\.rawValue)
            + AppStoreTransactionScenario.State.allCases.map(\.rawValue)
            + AppStoreTransactionScenario.Flaw.allCases.map(\.rawValue)
        for word in words { #expect(AppStoreSimulation.guide.contains(word), "\(word) is missing") }
    }

    @Test func `a scenario is the same after it was written and read`() throws {
        let scenario = try Scenario(yaml: Self.scenario)
        let written = try JSONEncoder().encode(scenario.appStore)
        let read = try JSONDecoder().decode(AppStoreScenario.self, from: written)
        #expect(try JSONEncoder().encode(read).count == written.count)
        #expect(read.customers.map(\.id) == ["alice", "bob"])
    }
}
