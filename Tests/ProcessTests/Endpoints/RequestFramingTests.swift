import Foundation
import Testing

/// Where requests begin and end, and how long each part of one may be.
struct RequestFramingTests {
    /// The longest body of a restore.
    private static let longestBody = 4 << 20

    @Test func `A body beyond its limit is refused, however it comes, and one at the limit is read`() async throws {
        try await EndpointSite.serving { endpoints, endpoint, ann in
            let port = endpoint.port
            let tooLong = [UInt8](repeating: UInt8(ascii: " "), count: Self.longestBody + 1)
            let chunks = ann.tap([("Transfer-Encoding", "chunked")]) + RawConnection.chunked(tooLong)
            let claimed = ann.tap([("Content-Length", "\(Self.longestBody + 1)")])
            for bytes in [ann.tap([], tooLong), chunks, claimed] {
                let outcome = try await RawConnection.exchange(bytes, with: endpoint.port)
                let answer = try #require(outcome.answers.first, "\(outcome)")
                #expect(answer.status == 413 && outcome.hasEnded, "\(outcome)")
                #expect(answer.headers["content-type"] == "application/problem+json", "\(outcome)")
                let problem = try JSONDecoder().decode(HTTPAnswer.Problem.self, from: Data(answer.body))
                #expect(problem.kind == "body-too-large" && problem.status == 413, "\(problem)")
            }
            let longest = Array(tooLong.dropLast(3)) + Array("{}".utf8)
            #expect(longest.count == Self.longestBody)
            let read = ann.tap([("Connection", "close")], longest)
            let outcome = try await RawConnection.exchange(read, with: endpoint.port)
            #expect(outcome.answers.map(\.status) == [202], "\(outcome)")

            // What stores send is shorter, and whoever does not show who they are before it is not even read.
            let close = [("Connection", "close")]
            let genuine = try await endpoints.webhook("revenuecat", #"{"event": {"type": "TEST"}}"#)
            let signed = close + genuine.headers.map { ($0.key, $0.value) }
            for (store, size, fields, status) in [
                ("revenuecat", 1 << 20, signed, 413), ("revenuecat", 1 << 20, close, 401),
                ("app-store", 128 << 10, close, 413),
            ] {
                let event = [UInt8](repeating: UInt8(ascii: " "), count: size + 1)
                let webhook = RawConnection.request("POST", "/v1/webhooks/" + store, fields, body: event)
                let refused = try await RawConnection.exchange(webhook, with: port)
                #expect(refused.answers.first?.status == status, "\(store): \(refused)")
            }
            let jobs = try await endpoints.jobs()
            #expect(jobs == 1)
        }
    }

    @Test func `A length that is a lie starts nothing, and what follows it is nobody's request`() async throws {
        try await EndpointSite.serving { endpoints, endpoint, ann in
            let wish = Array(#"{"proofs":[]}"#.utf8)
            let lies: [(name: String, fields: [(String, String)], rest: [UInt8])] = [
                ("shorter", [("Content-Length", "2")], wish), ("longer", [("Content-Length", "99")], wish),
                ("two", [("Content-Length", "13"), ("Content-Length", "14")], wish),
                ("both", [("Content-Length", "13"), ("Transfer-Encoding", "chunked")], RawConnection.chunked(wish)),
                ("negative", [("Content-Length", "-13")], wish), ("no number", [("Content-Length", "13x")], wish),
                ("beyond all numbers", [("Content-Length", "99999999999999999999")], wish),
                ("no chunks", [("Transfer-Encoding", "chunked")], wish),
                ("cut off", [("Transfer-Encoding", "chunked")], Array("d\r\n{\"proofs\"".utf8)),
            ]
            for lie in lies {
                let outcome = try await RawConnection.exchange(
                    ann.tap(lie.fields) + lie.rest,
                    with: endpoint.port,
                    endsSending: true
                )
                #expect(outcome.hasEnded, "\(lie.name): \(outcome)")
                #expect(outcome.answers.allSatisfy { (400...499).contains($0.status) }, "\(lie.name): \(outcome)")
            }
            // A request in the place where a body should end is not taken for one.
            let smuggled = RawConnection.request("GET", "/health/live")
            let behind = ann.tap([("Content-Length", "\(smuggled.count)")]) + smuggled
            let outcome = try await RawConnection.exchange(behind, with: endpoint.port, endsSending: true)
            #expect(outcome.answers.map(\.status) == [400], "\(outcome)")
            let jobs = try await endpoints.jobs()
            #expect(jobs == 0)
        }
    }

    @Test func `Headers beyond their limits end the connection, and those at the limits are taken`() async throws {
        try await EndpointSite.serving { _, endpoint, _ in
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
                let outcome = try await RawConnection.exchange(bytes, with: endpoint.port)
                #expect(outcome.answers.map(\.status) == [200], "\(outcome)")
            }
            let path = "/" + String(repeating: "p", count: 40_000)
            let garbage = Array("\u{16}\u{3}\u{1}\u{0}\u{0} and so on\r\n\r\n".utf8)
            let beyond = [
                headers(101), headers(5000), long((16 << 10) + 1), long(1000, 34), long(1 << 20),
                RawConnection.request("GET", path), garbage, Array("GET /health/live\r\n\r\n".utf8),
            ]
            for bytes in beyond {
                let outcome = try await RawConnection.exchange(bytes, with: endpoint.port)
                #expect(outcome.hasEnded, "\(outcome)")
                #expect(outcome.answers.allSatisfy { [400, 414, 431].contains($0.status) }, "\(outcome)")
            }
        }
    }

    @Test func `Requests that come at once on one connection are answered in their order`() async throws {
        try await EndpointSite.serving { endpoints, endpoint, ann in
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
            let outcome = try await RawConnection.exchange(bytes, with: endpoint.port)
            let answers = outcome.answers.map { "\($0.headers["x-request-id"] ?? "-") \($0.status)" }
            #expect(answers == expected && outcome.hasEnded)
            let jobs = try await endpoints.jobs()
            #expect(jobs == 1)
        }
    }

    @Test func `A request names one host, and no coding but chunks`() async throws {
        try await EndpointSite.serving { _, endpoint, _ in
            for (hosts, status) in [
                ("Host: a\r\n", 200), ("", 400), ("Host: a\r\nHost: b\r\n", 400),
                ("Host: a\r\nTransfer-Encoding: gzip, chunked\r\n", 400),
            ] {
                let text = "GET /health/live HTTP/1.1\r\n\(hosts)Connection: close\r\n\r\n"
                let outcome = try await RawConnection.exchange(Array(text.utf8), with: endpoint.port)
                #expect(outcome.text.hasPrefix("HTTP/1.1 \(status) "), "\(hosts): \(outcome)")
            }
        }
    }

    @Test func `A chunk's extension without end ends the connection`() async throws {
        try await EndpointSite.serving { _, endpoint, _ in
            let head = "POST /v1/webhooks/revenuecat HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2;"
            let text = head + String(repeating: "a", count: 1 << 20) + "\r\n{}\r\n0\r\n\r\n"
            let outcome = try await RawConnection.exchange(Array(text.utf8), with: endpoint.port)
            #expect(outcome.hasEnded, "\(outcome)")
            let reasons = try endpoint.log.compactMap { $0["security.reason"] }
            #expect(reasons.contains("nothing_but_framing"), "\(reasons)")
        }
    }

    @Test func `An answer to HEAD has no body, and the next answer follows it`() async throws {
        try await EndpointSite.serving { _, endpoint, ann in
            let token = ("Authorization", "Bearer \(ann.token)")
            for path in ["/health/live", "/v1/entitlement", "/v1/restores", "/nowhere"] {
                let bytes =
                    RawConnection.request("HEAD", path, [token])
                    + RawConnection.request("GET", "/health/live", [("X-Request-Id", "next"), ("Connection", "close")])
                let outcome = try await RawConnection.exchange(bytes, with: endpoint.port)
                let parts = outcome.text.components(separatedBy: "\r\n\r\n")
                #expect(parts.count == 3 && parts[0].hasPrefix("HTTP/1.1 "), "\(path): \(outcome)")
                #expect(parts.count > 1 && parts[1].hasPrefix("HTTP/1.1 200 "), "\(path): \(outcome)")
                #expect(outcome.text.contains("\r\n\r\nlive\nversion "), "\(path): \(outcome)")
            }
        }
    }
}
