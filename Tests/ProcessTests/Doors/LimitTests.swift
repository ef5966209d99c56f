import Foundation
import Glibc
import HTTPTypes
import Logging
import Postgres
import TestSupport
import Testing
import Transport

/// What is too long, too much, too slow, or not what the API takes.
struct LimitTests {
    private static let scenario = "customers: [{id: ann, state: active}]\n"

    /// The longest body of a restore.
    private static let longestBody = 4 << 20

    /// Runs a test at a process that serves and does not work, which has to live on and to have failed at nothing.
    private static func with(_ body: @Sendable (DoorSite, Door, Caller) async throws -> Void) async throws {
        try await DoorSite.with(scenario: scenario, users: ["ann"]) { doors in
            let door = try await doors.open("serve")
            let ann = try await doors.caller("ann", at: door)
            try await body(doors, door, ann)
            let health = try await door.ask(.get, "/health/ready")
            #expect(health.status == 200, "\(health)")
            let failures = try door.log.filter { $0["level"] == "error" || $0["level"] == "critical" }
            #expect(failures == [])
            try await door.close()
        }
    }

    /// A tap as bytes.
    ///
    /// - Parameters:
    ///   - caller: whose it is.
    ///   - fields: headers beside the token.
    ///   - body: with its length; `nil`: the fields say what follows.
    /// - Returns: the bytes.
    private static func tap(_ caller: Caller, _ fields: [(String, String)] = [], _ body: [UInt8]? = nil) -> [UInt8] {
        let all = [("Authorization", "Bearer \(caller.token)")] + fields
        return RawConnection.request("POST", "/v1/restores", all, body: body)
    }

    /// Bytes as chunks of 64 KiB.
    private static func chunked(_ bytes: [UInt8]) -> [UInt8] {
        var chunks: [UInt8] = []
        for start in stride(from: 0, to: bytes.count, by: 65_536) {
            let chunk = bytes[start..<min(bytes.count, start + 65_536)]
            let size = String(chunk.count, radix: 16)
            chunks += Array("\(size)\r\n".utf8)
            chunks += chunk
            chunks += Array("\r\n".utf8)
        }
        return chunks + Array("0\r\n\r\n".utf8)
    }

    private static func jobs(_ doors: DoorSite) async throws -> Int64 {
        try await doors.site.number("SELECT count(*) FROM entitlement_sync.job_status")
    }

    // MARK: Too long

    @Test func `A body beyond its limit is refused, however it comes, and one at the limit is read`() async throws {
        try await Self.with { doors, door, ann in
            let port = door.port
            let tooLong = [UInt8](repeating: UInt8(ascii: " "), count: Self.longestBody + 1)
            let chunks = Self.tap(ann, [("Transfer-Encoding", "chunked")]) + Self.chunked(tooLong)
            let claimed = Self.tap(ann, [("Content-Length", "\(Self.longestBody + 1)")])
            for bytes in [Self.tap(ann, [], tooLong), chunks, claimed] {
                let outcome = try await RawConnection.exchange(bytes, with: door.port)
                let answer = try #require(outcome.answers.first, "\(outcome)")
                #expect(answer.status == 413 && outcome.hasEnded, "\(outcome)")
                #expect(answer.headers["content-type"] == "application/problem+json", "\(outcome)")
                let problem = try JSONDecoder().decode(DoorAnswer.Problem.self, from: Data(answer.body))
                #expect(problem.kind == "body-too-large" && problem.status == 413, "\(problem)")
            }
            let longest = Array(tooLong.dropLast(3)) + Array("{}".utf8)
            #expect(longest.count == Self.longestBody)
            let read = Self.tap(ann, [("Connection", "close")], longest)
            let outcome = try await RawConnection.exchange(read, with: door.port)
            #expect(outcome.answers.map(\.status) == [202], "\(outcome)")

            // What stores send is shorter, and whoever does not show who they are before it is not even read.
            let close = [("Connection", "close")]
            let genuine = try await doors.webhook("revenuecat", #"{"event": {"type": "TEST"}}"#)
            let signed = close + genuine.headers.map { ($0.key, $0.value) }
            for (door, size, fields, status) in [
                ("revenuecat", 1 << 20, signed, 413), ("revenuecat", 1 << 20, close, 401),
                ("app-store", 128 << 10, close, 413),
            ] {
                let event = [UInt8](repeating: UInt8(ascii: " "), count: size + 1)
                let webhook = RawConnection.request("POST", "/v1/webhooks/" + door, fields, body: event)
                let refused = try await RawConnection.exchange(webhook, with: port)
                #expect(refused.answers.first?.status == status, "\(door): \(refused)")
            }
            let jobs = try await Self.jobs(doors)
            #expect(jobs == 1)
        }
    }

    @Test func `A length that is a lie starts nothing, and what follows it is nobody's request`() async throws {
        try await Self.with { doors, door, ann in
            let wish = Array(#"{"proofs":[]}"#.utf8)
            let lies: [(name: String, fields: [(String, String)], rest: [UInt8])] = [
                ("shorter", [("Content-Length", "2")], wish), ("longer", [("Content-Length", "99")], wish),
                ("two", [("Content-Length", "13"), ("Content-Length", "14")], wish),
                ("both", [("Content-Length", "13"), ("Transfer-Encoding", "chunked")], Self.chunked(wish)),
                ("negative", [("Content-Length", "-13")], wish), ("no number", [("Content-Length", "13x")], wish),
                ("beyond all numbers", [("Content-Length", "99999999999999999999")], wish),
                ("no chunks", [("Transfer-Encoding", "chunked")], wish),
                ("cut off", [("Transfer-Encoding", "chunked")], Array("d\r\n{\"proofs\"".utf8)),
            ]
            for lie in lies {
                let outcome = try await RawConnection.exchange(
                    Self.tap(ann, lie.fields) + lie.rest,
                    with: door.port,
                    endsSending: true
                )
                #expect(outcome.hasEnded, "\(lie.name): \(outcome)")
                #expect(outcome.answers.allSatisfy { (400...499).contains($0.status) }, "\(lie.name): \(outcome)")
            }
            // A request in the place where a body should end is not taken for one.
            let smuggled = RawConnection.request("GET", "/health/live")
            let behind = Self.tap(ann, [("Content-Length", "\(smuggled.count)")]) + smuggled
            let outcome = try await RawConnection.exchange(behind, with: door.port, endsSending: true)
            #expect(outcome.answers.map(\.status) == [400], "\(outcome)")
            let jobs = try await Self.jobs(doors)
            #expect(jobs == 0)
        }
    }

    @Test func `Headers beyond their limits end the connection, and those at the limits are taken`() async throws {
        try await Self.with { _, door, _ in
            func headers(_ count: Int) -> [UInt8] {
                // `Host` and `Connection` are two of them.
                RawConnection.request(
                    "GET",
                    "/health/live",
                    [("Connection", "close")] + (0..<(count - 2)).map { ("X-Field-\($0)", "v") }
                )
            }
            func long(_ size: Int, _ count: Int = 1) -> [UInt8] {
                let value = String(repeating: "v", count: size)
                let fields = (0..<count).map { ("X-Field-\($0)", value) }
                return RawConnection.request("GET", "/health/live", [("Connection", "close")] + fields)
            }
            for bytes in [headers(100), long(16 << 10), long(1000, 30)] {
                let outcome = try await RawConnection.exchange(bytes, with: door.port)
                #expect(outcome.answers.map(\.status) == [200], "\(outcome)")
            }
            let path = "/" + String(repeating: "p", count: 40_000)
            let garbage = Array("\u{16}\u{3}\u{1}\u{0}\u{0} and so on\r\n\r\n".utf8)
            let beyond = [
                headers(101), headers(5000), long((16 << 10) + 1), long(1000, 34), long(1 << 20),
                RawConnection.request("GET", path), garbage, Array("GET /health/live\r\n\r\n".utf8),
            ]
            for bytes in beyond {
                let outcome = try await RawConnection.exchange(bytes, with: door.port)
                #expect(outcome.hasEnded, "\(outcome)")
                #expect(outcome.answers.allSatisfy { [400, 414, 431].contains($0.status) }, "\(outcome)")
            }
        }
    }

    // MARK: Too much

    @Test func `Requests that come at once on one connection are answered in their order`() async throws {
        try await Self.with { doors, door, ann in
            let token = ("Authorization", "Bearer \(ann.token)")
            let kinds: [(method: String, path: String, body: [UInt8]?, status: Int)] = [
                ("GET", "/health/live", nil, 200), ("POST", "/v1/restores", Array("{}".utf8), 202),
                ("GET", "/nowhere", nil, 404), ("GET", "/v1/entitlement", nil, 200),
                ("POST", "/v1/restores", Array("[]".utf8), 400), ("GET", "/v1/restores", nil, 405),
            ]
            var bytes: [UInt8] = []
            var expected: [String] = []
            for number in 0..<60 {
                let kind = kinds[number % kinds.count]
                var fields = [token, ("X-Request-Id", "request-\(number)")]
                if number == 59 { fields.append(("Connection", "close")) }
                bytes += RawConnection.request(kind.method, kind.path, fields, body: kind.body)
                expected.append("request-\(number) \(kind.status)")
            }
            let outcome = try await RawConnection.exchange(bytes, with: door.port)
            let answers = outcome.answers.map { "\($0.headers["x-request-id"] ?? "-") \($0.status)" }
            #expect(answers == expected && outcome.hasEnded)
            let jobs = try await Self.jobs(doors)
            #expect(jobs == 1)
        }
    }

    @Test(.enabled(if: FaultRuns.isFull, "it takes half a minute"))
    func `Who does not come to the end of a request is not waited for longer than half a minute`() async throws {
        try await Self.with { _, door, ann in
            let line = Array("GET /hea".utf8)
            let head = Array(RawConnection.request("GET", "/health/live").dropLast(2)) + Array("X-Slow: ".utf8)
            let body = Self.tap(ann, [("Content-Length", "1000")])
            let starts = [[], line, head, body]
            let took = try await withThrowingTaskGroup(of: Double.self) { group in
                for start in starts {
                    for drips in [false, true] {
                        group.addTask {
                            try await onThread {
                                let began = ContinuousClock.now
                                let connection = try RawConnection(to: door.port)
                                connection.send(start)
                                while ContinuousClock.now - began < .seconds(60) {
                                    if case .end = connection.receive(within: .seconds(1)) { break }
                                    // A byte a second never makes a connection idle.
                                    if drips { connection.send([UInt8(ascii: "a")]) }
                                }
                                return (ContinuousClock.now - began) / .seconds(1)
                            }
                        }
                    }
                }
                return try await group.reduce(into: []) { $0.append($1) }
            }
            #expect(took.count == 8 && took.allSatisfy { (20...40).contains($0) }, "\(took)")
        }
    }

    // MARK: What it takes

    @Test func `A path knows its methods, and what is not there is told as a problem`() async throws {
        try await Self.with { _, door, ann in
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

    @Test func `A request names one host, and no coding but chunks`() async throws {
        try await Self.with { _, door, _ in
            for (hosts, status) in [
                ("Host: a\r\n", 200), ("", 400), ("Host: a\r\nHost: b\r\n", 400),
                ("Host: a\r\nTransfer-Encoding: gzip, chunked\r\n", 400),
            ] {
                let text = "GET /health/live HTTP/1.1\r\n\(hosts)Connection: close\r\n\r\n"
                let outcome = try await RawConnection.exchange(Array(text.utf8), with: door.port)
                #expect(outcome.text.hasPrefix("HTTP/1.1 \(status) "), "\(hosts): \(outcome)")
            }
        }
    }

    @Test func `A chunk's extension without end ends the connection`() async throws {
        try await Self.with { _, door, _ in
            let head = "POST /v1/webhooks/revenuecat HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2;"
            let text = head + String(repeating: "a", count: 1 << 20) + "\r\n{}\r\n0\r\n\r\n"
            let outcome = try await RawConnection.exchange(Array(text.utf8), with: door.port)
            #expect(outcome.hasEnded, "\(outcome)")
            let reasons = try door.log.compactMap { $0["security.reason"] }
            #expect(reasons.contains("nothing_but_framing"), "\(reasons)")
        }
    }

    @Test func `An answer to HEAD has no body, and the next answer follows it`() async throws {
        try await Self.with { _, door, ann in
            let token = ("Authorization", "Bearer \(ann.token)")
            for path in ["/health/live", "/v1/entitlement", "/v1/restores", "/nowhere"] {
                let bytes =
                    RawConnection.request("HEAD", path, [token])
                    + RawConnection.request("GET", "/health/live", [("X-Request-Id", "next"), ("Connection", "close")])
                let outcome = try await RawConnection.exchange(bytes, with: door.port)
                let parts = outcome.text.components(separatedBy: "\r\n\r\n")
                #expect(parts.count == 3 && parts[0].hasPrefix("HTTP/1.1 "), "\(path): \(outcome)")
                #expect(parts.count > 1 && parts[1].hasPrefix("HTTP/1.1 200 "), "\(path): \(outcome)")
                #expect(outcome.text.hasSuffix("\r\n\r\nlive\n"), "\(path): \(outcome)")
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
        try await Self.with { doors, door, ann in
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
                    Self.tap(ann, [("Connection", "close")], bytes),
                    with: door.port
                )
                #expect(outcome.answers.map(\.status) == [400], "\(bytes): \(outcome)")
            }
            let jobs = try await Self.jobs(doors)
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
        try await Self.with { doors, door, ann in
            for key in ["", " ", "caf\u{E9}", "\u{1F600}", String(repeating: "k", count: 256)] {
                let fields = [("Connection", "close"), ("Idempotency-Key", key)]
                let outcome = try await RawConnection.exchange(Self.tap(ann, fields, []), with: door.port)
                let answer = try #require(outcome.answers.first, "\(key): \(outcome)")
                #expect(answer.status == 400, "\(key): \(outcome)")
                let problem = try JSONDecoder().decode(DoorAnswer.Problem.self, from: Data(answer.body))
                #expect(problem.kind == "invalid-field" && problem.field == "Idempotency-Key", "\(key): \(problem)")
            }
            for key in ["k\u{0}k", "k\u{1}", "k\u{7F}"] {
                let fields = [("Connection", "close"), ("Idempotency-Key", key)]
                let outcome = try await RawConnection.exchange(Self.tap(ann, fields, []), with: door.port)
                #expect(outcome.answers.map(\.status) == [400], "\(outcome)")
            }
            let jobs = try await Self.jobs(doors)
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
