import Crypto
import Foundation
import HTTPTypes
import Testing

@testable import StoreSimulator

/// The simulated Onside: what it asks of a request, and what it can be made to do.
@Suite struct OnsideSimulationTests {
    private static let order = "91c1f0a2-7d3e-4a55-b6c8-3f2e1d0c9b8a"
    private static let renewal = "5b0d6f1e-2c77-4c1b-8f9a-0e6a7c1d2b33"
    private static let path = "/onside/merchant-api/v1/purchases/in-app/history/"
    private static let scenario = """
        onside:
          orders:
            - {order: \(order), account: user-1, purchased: -40d, expires: -10d, subscription: grp}
            - {order: \(renewal), original: \(order), account: user-1, purchased: -10d, expires: +20d, bought: -40d}
        """

    private func token(
        _ nowMs: Int64,
        header: [String: String] = [:],
        claims: [String: Any] = [:],
        secret: String = "onside-demo-secret"
    ) throws -> String {
        let now = nowMs / 1000
        let usual: [String: Any] = [
            "aud": "onside", "iss": "onside", "sub": "merchant-demo", "nbf": now - 5, "exp": now + 25,
            "jti": UUID().uuidString,
        ]
        let parts = [
            try JSONSerialization.data(
                withJSONObject: ["alg": "HS256", "kid": "key-demo"].merging(header) { $1 }
            ),
            try JSONSerialization.data(withJSONObject: usual.merging(claims) { $1 }),
        ]
        let signed = parts.map(SignedText.base64URL).joined(separator: ".")
        let key = SymmetricKey(data: Data(secret.utf8))
        let code = HMAC<SHA256>.authenticationCode(for: Data(signed.utf8), using: key)
        return "Bearer \(signed).\(SignedText.base64URL(Data(code)))"
    }

    private func payload(_ text: String) throws -> JSON {
        let part = String(text.split(separator: ".")[1]).replacing("-", with: "+").replacing("_", with: "/")
        let data = Data(base64Encoded: part + String(repeating: "=", count: (4 - part.count % 4) % 4))
        return try JSON(String(decoding: try #require(data), as: UTF8.self))
    }

    private func get(_ probe: Probe, _ id: String = order) async throws -> Probe.Answer {
        try await probe.send(.get, Self.path + id, authorization: token(probe.nowMs))
    }

    @Test func `an order is answered with its whole line, as a signed text`() async throws {
        try await Probe.run(Self.scenario) { probe in
            for id in [Self.order, Self.renewal.uppercased()] {
                let answer = try await get(probe, id)
                #expect(answer.status == 200 && answer.header(.contentType) == "application/jose")
                let transactions = try #require(try payload(answer.text)["transactions"])
                #expect(transactions[0]?["order_id"]?.text == Self.order)
                #expect(transactions[0]?["transaction_reason"]?.text == "PURCHASE")
                #expect(transactions[1]?["order_id"]?.text == Self.renewal)
                #expect(transactions[1]?["original_order_id"]?.text == Self.order)
                #expect(transactions[1]?["app_account_token"]?.text == "user-1")
                #expect(transactions[0]?["revocation_date"] == .null && transactions[0]?["price"]?.integer == 999)
                #expect(transactions[2] == nil)
            }
            #expect(try await get(probe, "7a1b2c3d-0000-4000-8000-000000000001").status == 404)
            let counts = try await probe.control(.get, "/requests").json["by_path"]
            #expect(counts?["GET \(Self.path){order}"]?.integer == 3)
        }
    }

    @Test func `a token has to be right in every part, and new`() async throws {
        try await Probe.run(Self.scenario) { probe in
            let now = probe.nowMs
            let seconds = now / 1000
            let once = try token(now)
            #expect(try await probe.send(.get, Self.path + Self.order, authorization: once).status == 200)
            let wrong: [String?] = [
                once, nil, "Bearer x", "Bearer a.b.c", String(once.dropLast(4)),
                try token(now, header: ["alg": "none"]), try token(now, header: ["kid": "other"]),
                try token(now, claims: ["aud": "x"]), try token(now, claims: ["iss": "x"]),
                try token(now, claims: ["sub": "x"]), try token(now, claims: ["exp": seconds + 26]),
                try token(now, claims: ["exp": seconds - 5]), try token(now, claims: ["jti": ""]),
                try token(now, claims: ["nbf": "\(seconds)"]), try token(now + 11_000), try token(now - 31_000),
                try token(now, secret: "other"),
            ]
            for (index, token) in wrong.enumerated() {
                let answer = try await probe.send(.get, Self.path + Self.order, authorization: token)
                #expect(answer.status == 401, "token \(index)")
            }
            for shift in [10_000, -30_000] as [Int64] {
                let token = try token(now + shift)
                #expect(try await probe.send(.get, Self.path + Self.order, authorization: token).status == 200)
            }
        }
    }

    private func names(_ probe: Probe) async throws -> [String] {
        let set = try await probe.send(.get, "/onside/.well-known/jwks.json", authorization: nil).json
        return (0..<3).compactMap { set["keys"]?[$0]?["kid"]?.text }
    }

    @Test func `keys rotate, with and without the old one`() async throws {
        try await Probe.run(Self.scenario) { probe in
            let first = try await names(probe)
            #expect(first == ["onside-key-1"])
            #expect(try await probe.control(.post, "/onside/rotate", #"{"keep_old":true}"#).status == 200)
            #expect(try await names(probe) == ["onside-key-1", "onside-key-2"])
            #expect(try await probe.control(.post, "/onside/rotate", #"{"keep_old":false}"#).status == 200)
            #expect(try await names(probe) == ["onside-key-3"])
        }
    }

    @Test func `orders come and go, late, foreign and revoked`() async throws {
        try await Probe.run("onside: {}") { probe in
            let path = "/onside/orders/\(Self.order)"
            #expect(try await get(probe).status == 404)
            #expect(try await probe.control(.put, path, #"{"visible_after_requests":1,"revoked":"-1d"}"#).status == 200)
            #expect(try await get(probe).status == 404)
            let answer = try await get(probe)
            #expect(try payload(answer.text)["transactions"]?[0]?["revocation_date"]?.text != nil)
            #expect(try await probe.control(.put, path, #"{"foreign":true}"#).status == 200)
            #expect(try await get(probe).status == 403)
            #expect(try await probe.control(.delete, path).status == 200)
            #expect(try await get(probe).status == 404)
            for (path, body) in [
                (path, #"{"order":"\#(Self.renewal)"}"#), ("/onside/orders/no-uuid", "{}"), (path, #"{"orders":1}"#),
                ("/onside/signing", #"{"sign_with":"rs512"}"#), ("/onside/signing", "x"),
            ] { #expect(try await probe.control(.put, path, body).status == 400, "\(path) \(body)") }
            #expect(try await probe.control(.get, "/onside/nothing").status == 404)
        }
    }

    @Test func `answers can be signed wrongly and claim another time`() async throws {
        try await Probe.run(Self.scenario) { probe in
            for way in OnsideSigning.Way.allCases {
                let body = #"{"sign_with":"\#(way.rawValue)","fetched":"-1d"}"#
                #expect(try await probe.control(.put, "/onside/signing", body).status == 200)
                let answer = try await get(probe)
                let fetched = try payload(answer.text)["transactions"]?[0]?["fetched_at"]?.text
                let day = Date(timeIntervalSince1970: Double(probe.nowMs - 86_400_000) / 1000).formatted(.iso8601)
                #expect(fetched?.prefix(16) == day.prefix(16), "\(way)")
            }
        }
    }

    @Test func `a device's history holds its account's orders alone`() async throws {
        try await Probe.run(Self.scenario) { probe in
            let text = try await probe.control(.get, "/onside/history?account=user-1").text
            #expect(try payload(text)["transactions"]?[1]?["order_id"]?.text == Self.renewal)
            #expect(try probe.simulator.onsideHistory(account: "user-1") == text)
            let none = try await probe.control(.get, "/onside/history?account=user-2").text
            #expect(try payload(none)["transactions"]?[0] == nil)
            #expect(try await probe.control(.get, "/onside/history").status == 400)
        }
    }

    @Test func `faults strike its endpoints, by order as well`() async throws {
        let faults = """

            faults:
              - {endpoint: onside.history, customer: \(Self.order), status: 429, backoff: 3s, times: 1}
              - {endpoint: onside.keys, status: 503}
            """
        try await Probe.run(Self.scenario + faults) { probe in
            let answer = try await get(probe)
            #expect(answer.status == 429 && answer.header(.retryAfter) == "3")
            #expect(try await get(probe).status == 200)
            #expect(try await probe.send(.get, "/onside/.well-known/jwks.json").status == 503)
        }
    }

    @Test func `a scenario that makes no sense is refused`() {
        for orders in ["{order: x}", "{order: \(Self.order)}, {order: \(Self.order)}", "{}"] {
            #expect(throws: ScenarioError.self) {
                try Simulation(Scenario(yaml: "onside: {orders: [\(orders)]}"))
            }
        }
    }

    @Test func `the guide tells every word of a scenario`() {
        let words =
            OnsideScenario.fields.map(\.name) + OnsideOrderScenario.fields.map(\.name)
            + OnsideSigning.Way.allCases.map(\.rawValue) + OnsideSimulation.endpoints
        for word in words { #expect(OnsideSimulation.guide.contains(word), "\(word) is missing") }
    }
}
