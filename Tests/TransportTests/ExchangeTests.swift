import HTTPTypes
import Testing

@testable import Transport

@Suite(.timeLimit(.minutes(10)))
struct ExchangeTests {
    @Test func `a response arrives with its status, fields and body`() async throws {
        let server = try TestServer(
            bytes: "HTTP/1.1 418 Short and stout\r\nContent-Type: text/plain\r\nContent-Length: 6\r\n\r\nteapot"
        )
        try await withTransport(to: server) { transport in
            let exchange = try await transport.get(server.authority)
            #expect(exchange.response.status.code == 418)
            #expect(exchange.response.status.reasonPhrase == "Short and stout")
            #expect(exchange.response.headerFields[.contentType] == "text/plain")
            #expect(exchange.body == Array("teapot".utf8))
            #expect(exchange.httpVersion == .http1_1)
            #expect(!exchange.connectionReused)
            #expect(exchange.elapsed > .zero && exchange.elapsed < .seconds(5))
        }
    }

    @Test func `repeated, empty and folded fields keep their order and their text`() async throws {
        let server = try TestServer(
            bytes: "HTTP/1.1 200 OK\r\nX-A: 1\r\nEmpty:\r\nx-a:  2 \r\nFolded: one\r\n two\r\nX-A: 3\r\n"
                + "Content-Length: 0\r\n\r\n"
        )
        try await withTransport(to: server) { transport in
            let fields = try await transport.get(server.authority).response.headerFields
            #expect(fields[values: try name("x-a")] == ["1", "2", "3"])
            #expect(fields.map(\.name.rawName) == ["X-A", "Empty", "x-a", "Folded", "X-A", "Content-Length"])
            #expect(fields[try name("empty")]?.isEmpty == true)
            #expect(fields[try name("folded")] == "one two")
        }
    }

    @Test(arguments: ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "PURGE"], [nil, "", "some body"])
    func `the request goes out as given`(method: String, body: String?) async throws {
        let server = try TestServer { request, connection in
            let length = request.headerLines.first { $0.lowercased().hasPrefix("content-length") } ?? "none"
            let text =
                "\(request.method) \(request.target) [\(length)] \(String(decoding: request.body, as: UTF8.self))"
            return connection.write("HTTP/1.1 200 OK\r\nContent-Length: \(text.utf8.count)\r\n\r\n\(text)")
        }
        try await withTransport(to: server) { transport in
            let path = "/a/../b/./%2e%2E//c?q={x}|y&z=\"'^`\\"
            let request = HTTPRequest.to(server.authority, path, method: try #require(.init(method)))
            let exchange = try await transport.send(
                request,
                body: body.map { Array($0.utf8) },
                timeout: .seconds(20)
            )
            let announced = body ?? (["POST", "PUT", "PATCH"].contains(method) ? "" : nil)
            let length = announced.map { "Content-Length: \($0.utf8.count)" } ?? "none"
            #expect(String(decoding: exchange.body, as: UTF8.self) == "\(method) \(path) [\(length)] \(body ?? "")")
        }
    }

    @Test func `fields are the caller's, and libcurl adds none that mislead`() async throws {
        let server = try TestServer { request, connection in
            let text = request.headerLines.joined(separator: "\n")
            return connection.write("HTTP/1.1 200 OK\r\nContent-Length: \(text.utf8.count)\r\n\r\n\(text)")
        }
        try await withTransport(to: server, .init(userAgent: "agent/1")) { transport in
            let request = HTTPRequest.to(
                server.authority,
                method: .post,
                [.authorization: "Bearer x", .accept: "application/json", .ifMatch: ""]
            )
            // Large enough that libcurl would send Expect: 100-continue.
            let body = [UInt8](repeating: 0x61, count: 2 << 20)
            let exchange = try await transport.send(request, body: body, timeout: .seconds(20))
            let lines = String(decoding: exchange.body, as: UTF8.self).split(separator: "\n").map(String.init)
            #expect(
                Set(lines) == [
                    "Host: \(server.authority)", "User-Agent: agent/1", "Authorization: Bearer x",
                    "Accept: application/json", "If-Match:", "Content-Length: \(body.count)",
                ]
            )
        }
    }

    @Test func `a connection is kept and used again`() async throws {
        let server = try TestServer(bytes: "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        try await withTransport(to: server) { transport in
            for turn in 0..<20 {
                let exchange = try await transport.get(server.authority, "/\(turn)")
                #expect(exchange.connectionReused == (turn > 0))
            }
            #expect(server.accepted == 1)
            #expect(server.requests == 20)
        }
    }

    @Test(arguments: [
        ("chunked", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n4\r\ndefg\r\n0\r\n\r\n"),
        (
            "with a trailer",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n7\r\nabcdefg\r\n0\r\nHTTP: forged\r\nX: y\r\n\r\n"
        ),
        ("until the end", "HTTP/1.0 200 OK\r\n\r\nabcdefg"),
        (
            "after interim responses",
            "HTTP/1.1 100 Continue\r\nX: no\r\n\r\nHTTP/1.1 103 Early\r\nLink: no\r\n\r\n"
                + "HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\nabcdefg"
        ),
    ])
    func `a body is complete however it is framed`(framing: String, bytes: String) async throws {
        let server = try TestServer { _, connection in
            connection.write(bytes)
            return !bytes.hasPrefix("HTTP/1.0")
        }
        try await withTransport(to: server) { transport in
            let exchange = try await transport.get(server.authority)
            #expect(exchange.body == Array("abcdefg".utf8))
            #expect(exchange.response.status == .ok)
            #expect(exchange.response.headerFields.count <= 1)
            #expect(exchange.response.headerFields[try name("link")] == nil)
        }
    }

    @Test(arguments: [301, 302, 303, 307, 308])
    func `a redirect is returned and not followed`(status: Int) async throws {
        let elsewhere = try TestServer(bytes: "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        let server = try TestServer(
            bytes:
                "HTTP/1.1 \(status) Elsewhere\r\nLocation: http://\(elsewhere.authority)/\r\nContent-Length: 0\r\n\r\n"
        )
        try await withTransport(to: server) { transport in
            let exchange = try await transport.send(
                .to(server.authority, "/", [.authorization: "Bearer x"]),
                timeout: .seconds(20)
            )
            #expect(exchange.response.status.code == status)
            #expect(exchange.response.headerFields[.location] == "http://\(elsewhere.authority)/")
        }
        #expect(elsewhere.accepted == 0)
        await elsewhere.stop()
    }

    @Test(arguments: [("HEAD", 200), ("GET", 204), ("GET", 304)])
    func `a response without a body ends at its header`(method: String, status: Int) async throws {
        let length = status == 204 ? "" : "Content-Length: 5000000\r\n"
        let server = try TestServer(bytes: "HTTP/1.1 \(status) Fine\r\n\(length)ETag: \"e\"\r\n\r\n")
        try await withTransport(to: server) { transport in
            for turn in 0..<3 {
                let request = HTTPRequest.to(server.authority, method: try #require(.init(method)))
                let exchange = try await transport.send(request, timeout: .seconds(20))
                #expect(exchange.body.isEmpty)
                #expect(exchange.response.status.code == status)
                #expect(exchange.response.headerFields[.eTag] == "\"e\"")
                #expect(exchange.connectionReused == (turn > 0))
            }
        }
    }

    @Test func `a large body arrives whole, up to its cap`() async throws {
        let size = 4 << 20
        let server = try TestServer { _, connection in
            connection.write("HTTP/1.1 200 OK\r\nContent-Length: \(size)\r\n\r\n")
            return connection.write([UInt8](repeating: 0x78, count: size))
        }
        try await withTransport(to: server) { transport in
            let exchange = try await transport.get(server.authority)
            #expect(exchange.body.count == size)
            #expect(exchange.body.allSatisfy { $0 == 0x78 })
        }
    }

    @Test func `localhost is served without asking a resolver`() async throws {
        let server = try TestServer(bytes: "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        try await withTransport(to: server) { transport in
            let exchange = try await transport.get("LocalHost:\(server.port)")
            #expect(exchange.response.status == .ok)
        }
    }
}
