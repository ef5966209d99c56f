import Foundation
import HTTPTypes
import Testing

/// What a request may ask for, and what may stand in it.
struct RequestContentTests {
    @Test func `A path knows its methods, and what is not there is told as a problem`() async throws {
        try await EndpointSite.serving { _, endpoint, ann in
            let known = [
                "/v1/restores": "POST", "/v1/restores/x": "GET", "/v1/restores/x/events": "GET",
                "/v1/entitlement": "GET", "/v1/webhooks/revenuecat": "POST", "/v1/webhooks/app-store": "POST",
                "/v1/webhooks/google-play": "POST", "/health/live": "GET", "/health/ready": "GET",
            ]
            for (path, allowed) in known {
                for method in [HTTPRequest.Method.get, .post, .put, .patch, .delete, .options]
                where method.rawValue != allowed {
                    let answer = try await ann.ask(method, path)
                    let problem = try answer.problem
                    let asked = "\(method.rawValue) \(path)"
                    #expect(answer.status == 405 && problem.kind == "method-not-allowed", "\(asked): \(answer)")
                    #expect(answer["Allow"] == allowed && problem.status == 405, "\(asked): \(answer)")
                }
            }
            let unknown = [
                "/", "/v1", "/v2/restores", "/v1/restores/x/y", "/metrics", "/v1/webhooks/other", "/v1%2Frestores",
            ]
            for path in unknown {
                let answer = try await ann.ask(.get, path)
                let problem = try answer.problem
                #expect(answer.status == 404 && problem.kind == "not-found", "\(path): \(answer)")
                #expect(answer["Cache-Control"] == "no-store" && answer["X-Content-Type-Options"] == "nosniff")
            }
            for type in ["text/plain", "application/x-www-form-urlencoded", "application/jsonp", "json", ""] {
                let answer = try await ann.ask(.post, "/v1/restores", ["Content-Type": type], body: "{}")
                let problem = try answer.problem
                #expect(answer.status == 415 && problem.field == "Content-Type", "\(type): \(answer)")
            }
            for type in ["application/json; charset=utf-8", "Application/JSON", "application/json;charset=\"utf-8\""] {
                let answer = try await ann.ask(.post, "/v1/restores", ["Content-Type": type], body: "{}")
                #expect(answer.status == 202, "\(type): \(answer)")
            }
        }
    }

    private static func proof(_ member: String, _ value: String) -> String {
        var proof = ["store": #""app_store""#, "kind": #""storekit_jws""#, "value": #""x""#]
        proof[member] = value
        let members = proof.sorted { $0.key < $1.key }.map { "\"\($0.key)\": \($0.value)" }
        return "{\"proofs\": [{\(members.joined(separator: ", "))}]}"
    }

    private static func text(_ length: Int) -> String { String(repeating: "a", count: length) }

    private static func nested(_ levels: Int) -> String {
        String(repeating: "[", count: levels) + String(repeating: "]", count: levels)
    }

    /// Bodies that are wrong as a whole.
    private static var wrongBodies: [String] {
        [
            "null", "[]", "7", "\"{}\"", "{", "{} {}", "{}}", "{'a': 1}", #"{"a": NaN}"#, #"{"a" 1}"#,
            nested(1_000_000), "{\"x\": \(nested(100_000))}", "{\"x\": \(nested(600))}",
            #"{"client_error": "\ud800"}"#, #"{"client_error": "\udc00\ud800"}"#, proof("value", #""\udfff""#),
        ]
    }

    /// Bodies whose proofs are wrong, and the field that has to be named.
    private static var wrongProofs: [(body: String, field: String)] {
        let proofs = (0...20).map { "{\"store\": \"app_store\", \"kind\": \"storekit_jws\", \"value\": \"v\($0)\"}" }
        let second = #"{"store": "app_store", "kind": "order_id", "value": 7}"#
        return [
            (#"{"proofs": {}}"#, "proofs"), (#"{"proofs": "x"}"#, "proofs"), (#"{"proofs": [7]}"#, "proofs[0]"),
            (#"{"proofs": [null]}"#, "proofs[0]"), (#"{"proofs": [[[[]]]]}"#, "proofs[0]"),
            (#"{"proofs": [{"store": "app_store", "kind": "storekit_jws"}]}"#, "proofs[0].value"),
            (proof("store", "7"), "proofs[0].store"), (proof("store", "null"), "proofs[0].store"),
            (proof("store", #""steam""#), "proofs[0].store"), (proof("store", #""onside""#), "proofs[0].store"),
            (proof("kind", #""coupon""#), "proofs[0].kind"), (proof("kind", "[]"), "proofs[0].kind"),
            (proof("value", "\"\""), "proofs[0].value"), (proof("value", #""a\u0000b""#), "proofs[0].value"),
            (proof("value", "\"\(text(1_048_577))\""), "proofs[0].value"),
            ("{\"proofs\": [\(proofs[0]), \(second)]}", "proofs[1].value"),
            ("{\"proofs\": [\(proofs.joined(separator: ", "))]}", "proofs"),
        ]
    }

    /// Bodies of which something else is wrong, and the field that has to be named.
    private static var wrongFields: [(body: String, field: String)] {
        let products = (0...100).map { "\"p\($0)\"" }
        return [
            (#"{"client_error": 7}"#, "client_error"), (#"{"client_error": "\u0000"}"#, "client_error"),
            ("{\"client_error\": \"\(text(501))\"}", "client_error"),
            (#"{"product_ids": "p"}"#, "product_ids"), (#"{"product_ids": [7]}"#, "product_ids[0]"),
            (#"{"product_ids": ["p", null]}"#, "product_ids[1]"),
            (#"{"product_ids": ["p", "\u0000"]}"#, "product_ids[1]"),
            ("{\"product_ids\": [\"\(text(256))\"]}", "product_ids"),
            ("{\"product_ids\": [\(products.joined(separator: ", "))]}", "product_ids"),
            (#"{"origin": 7}"#, "origin"), (#"{"origin": "web"}"#, "origin"), (#"{"origin": "\u0000"}"#, "origin"),
        ]
    }

    @Test func `What is wrong with a body is told by its field, and nothing of it is done`() async throws {
        try await EndpointSite.serving { endpoints, endpoint, ann in
            for body in Self.wrongBodies {
                let answer = try await ann.ask(.post, "/v1/restores", body: body)
                #expect(answer.status == 400, "\(body.prefix(100)): \(answer)")
                let problem = try answer.problem
                #expect(problem.kind == "malformed-body" && problem.field == nil, "\(body.prefix(100)): \(answer)")
                #expect(problem.detail?.hasPrefix("the body ") == true, "\(body.prefix(100)): \(answer)")
            }
            for (body, field) in Self.wrongProofs + Self.wrongFields {
                let answer = try await ann.ask(.post, "/v1/restores", body: body)
                #expect(answer.status == 400, "\(body.prefix(100)): \(answer)")
                let problem = try answer.problem
                #expect(problem.kind == "invalid-field" && problem.field == field, "\(body.prefix(100)): \(answer)")
                #expect(problem.detail?.hasPrefix(field + ":") == true, "\(body.prefix(100)): \(answer)")
            }
            // Bytes that are no UTF-8, or no text at all.
            let noText: [[UInt8]] = [
                [0xFF, 0xFE, 0x7B], [0x7B, 0x22, 0xC3, 0x28, 0x22], [0, 0, 0, 0], [0x7B, 0, 0x7D],
            ]
            for bytes in noText {
                let outcome = try await RawConnection.exchange(
                    ann.tap([("Connection", "close")], bytes),
                    with: endpoint.port
                )
                #expect(outcome.answers.map(\.status) == [400], "\(bytes): \(outcome)")
            }
            let jobs = try await endpoints.jobs()
            #expect(jobs == 0)
            // What people write, and members that nobody knows, are no fault.
            let right = [
                #"{"client_error": "\ud83d\ude00 é", "proofs": null, "later": {"a": [1e999, true]}}"#, "", "{}",
                #"{"product_ids": [], "origin": "profile"}"#,
            ]
            for body in right {
                let answer = try await ann.ask(.post, "/v1/restores", body: body)
                #expect(answer.status == 202, "\(body): \(answer)")
            }
        }
    }

    @Test func `An idempotency key has 1 to 255 printable characters`() async throws {
        try await EndpointSite.serving { endpoints, endpoint, ann in
            for key in ["", " ", "caf\u{E9}", "\u{1F600}", String(repeating: "k", count: 256)] {
                let fields = [("Connection", "close"), ("Idempotency-Key", key)]
                let outcome = try await RawConnection.exchange(ann.tap(fields, []), with: endpoint.port)
                let answer = try #require(outcome.answers.first, "\(key): \(outcome)")
                #expect(answer.status == 400, "\(key): \(outcome)")
                let problem = try JSONDecoder().decode(HTTPAnswer.Problem.self, from: Data(answer.body))
                #expect(problem.kind == "invalid-field" && problem.field == "Idempotency-Key", "\(key): \(problem)")
            }
            for key in ["k\u{0}k", "k\u{1}", "k\u{7F}"] {
                let fields = [("Connection", "close"), ("Idempotency-Key", key)]
                let outcome = try await RawConnection.exchange(ann.tap(fields, []), with: endpoint.port)
                #expect(outcome.answers.map(\.status) == [400], "\(outcome)")
            }
            let jobs = try await endpoints.jobs()
            #expect(jobs == 0)
            var ids: Set<String> = []
            for key in ["k", "a key of {words}!~", String(repeating: "k", count: 255)] {
                let asked = try await ann.restore(key: key)
                ids.insert(asked.id)
            }
            #expect(ids.count == 1, "all of them wait as one")
        }
    }
}
