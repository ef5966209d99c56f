import Glibc
import HTTPTypes
import TestSupport
import Testing

@testable import Transport

@Suite(.timeLimit(.minutes(10)))
struct FailureTests {
    @Test(
        arguments: [
            ("nothing at all", "", .reset),
            ("half a status line", "HTTP/1.", .reset),
            ("half a header", "HTTP/1.1 200 OK\r\nContent-Le", .reset),
            ("less than the length", "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n12345", .reset),
            ("a chunk cut off", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nA\r\n12345", .reset),
            ("chunks without an end", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n", .reset),
            ("no HTTP", "SSH-2.0-OpenSSH_9.2\r\n\r\n", .protocol_),
            ("HTTP of another age", "HTTP/7.1 200 OK\r\nContent-Length: 0\r\n\r\n", .protocol_),
            ("a bad chunk size", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nx\r\n", .reset),
            ("two lengths", "HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\nabc", .protocol_),
        ] as [(String, String, TransportError.Code)]
    )
    func `a peer that answers wrongly and hangs up is classified`(
        what: String,
        bytes: String,
        code: TransportError.Code
    ) async throws {
        let server = try TestServer { _, connection in
            connection.write(bytes)
            return false
        }
        try await withTransport(to: server) { transport in
            let error = try await transport.failure(.to(server.authority))
            #expect(error.code == code)
            #expect(error.requestSent)
        }
    }

    @Test func `a reset connection is classified`() async throws {
        let server = try TestServer { _, connection in
            connection.write("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n12345")
            connection.resetOnClose()
            return false
        }
        try await withTransport(to: server) { transport in
            let error = try await transport.failure(.to(server.authority))
            #expect(error.code == .reset)
        }
    }

    @Test func `a port where nobody listens is no connection`() async throws {
        let server = try TestServer(bytes: "")
        let closed = ClosedPort()
        try await withTransport(to: server) { transport in
            let error = try await transport.failure(.to("127.0.0.1:\(closed.number)"))
            #expect(error.code == .connect)
            #expect(!error.requestSent)
        }
    }

    @Test func `a name that does not exist is not resolved`() async throws {
        let server = try TestServer(bytes: "")
        try await withTransport(to: server) { transport in
            let error = try await transport.failure(.to("host.invalid", scheme: "https"))
            #expect(error.code == .resolve)
            #expect(!error.requestSent)
        }
    }

    // MARK: Size

    @Test(
        arguments: [
            ("announced", "Content-Length: 1001\r\n\r\n", 1001, .tooLarge),
            ("announced as vast", "Content-Length: 99999999999999\r\n\r\n", 10, .tooLarge),
            ("streamed", "Connection: close\r\n\r\n", 1001, .tooLarge),
            ("announced at the cap", "Content-Length: 1000\r\n\r\n", 1000, nil),
            ("streamed at the cap", "Connection: close\r\n\r\n", 1000, nil),
        ] as [(String, String, Int, TransportError.Code?)]
    )
    func `a body beyond its cap is refused`(
        how: String,
        header: String,
        size: Int,
        code: TransportError.Code?
    ) async throws {
        let server = try TestServer { _, connection in
            connection.write("HTTP/1.1 200 OK\r\n\(header)")
            connection.write([UInt8](repeating: 0x78, count: size))
            if code == .tooLarge { connection.waitForClose() }
            return false
        }
        try await withTransport(to: server) { transport in
            let request = HTTPRequest.to(server.authority)
            guard let code else {
                let exchange = try await transport.send(request, timeout: .seconds(20), maxResponseBytes: 1000)
                #expect(exchange.body.count == 1000)
                return
            }
            let error = try await transport.failure(request, maxResponseBytes: 1000)
            #expect(error.code == code)
            #expect(error.requestSent)
        }
    }

    @Test(
        arguments: [
            ("one line of 64 KiB", 1, 64 << 10, 64 << 10, .tooLarge),
            ("one line of 64 KiB where more is allowed", 1, 64 << 10, 128 << 10, nil),
            ("one line beyond libcurl's cap", 1, 200 << 10, 1 << 20, .tooLarge),
            ("many lines", 500, 200, 64 << 10, .tooLarge),
            ("more fields than anyone needs", 1500, 8, 1 << 20, .tooLarge),
        ] as [(String, Int, Int, Int, TransportError.Code?)]
    )
    func `a header beyond its cap is refused`(
        what: String,
        lines: Int,
        lineLength: Int,
        cap: Int,
        code: TransportError.Code?
    ) async throws {
        let line = "X: " + String(repeating: "x", count: lineLength - 5) + "\r\n"
        let header = String(repeating: line, count: lines)
        let server = try TestServer(bytes: "HTTP/1.1 200 OK\r\n\(header)Content-Length: 0\r\n\r\n")
        try await withTransport(to: server, .init(maxResponseHeaderBytes: cap)) { transport in
            guard let code else {
                let exchange = try await transport.get(server.authority)
                #expect(exchange.response.headerFields[try name("x")]?.utf8.count == lineLength - 5)
                return
            }
            let error = try await transport.failure(.to(server.authority))
            #expect(error.code == code)
        }
    }

    // MARK: Time

    /// How late a test may hear of a timeout: room for a machine that runs hundreds of tests at once.
    private let lateness = Duration.seconds(3)

    @Test(arguments: [
        ("before the header", ""),
        ("inside the header", "HTTP/1.1 200 OK\r\nContent-Le"),
        ("inside the body", "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n12345"),
    ])
    func `a silent peer is given up at the timeout`(place: String, bytes: String) async throws {
        let server = try TestServer { _, connection in
            connection.write(bytes)
            connection.waitForClose()
            return false
        }
        try await withTransport(to: server) { transport in
            let limit = Duration.milliseconds(500)
            let started = ContinuousClock.now
            let error = try await transport.failure(.to(server.authority), timeout: limit)
            let elapsed = started.duration(to: .now)
            #expect(error.code == .timeout)
            #expect(error.requestSent)
            #expect(elapsed >= limit && elapsed < limit + lateness)
        }
    }

    @Test func `a peer that drips bytes forever is given up at the timeout`() async throws {
        let server = try TestServer { _, connection in
            connection.write("HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
            while connection.write("x") { usleep(10_000) }
            return false
        }
        try await withTransport(to: server) { transport in
            let limit = Duration.milliseconds(400)
            let started = ContinuousClock.now
            let error = try await transport.failure(.to(server.authority), timeout: limit)
            let elapsed = started.duration(to: .now)
            #expect(error.code == .timeout)
            #expect(elapsed >= limit && elapsed < limit + lateness)
        }
    }

    @Test func `each request keeps its own timeout`() async throws {
        let server = try TestServer { _, connection in
            connection.waitForClose()
            return false
        }
        try await withTransport(to: server) { transport in
            try await withThrowingTaskGroup(of: Void.self) { group in
                for milliseconds in [700, 100, 500, 300, 100, 900] {
                    group.addTask {
                        let limit = Duration.milliseconds(milliseconds)
                        let started = ContinuousClock.now
                        let error = try await transport.failure(.to(server.authority), timeout: limit)
                        let elapsed = started.duration(to: .now)
                        #expect(error.code == .timeout)
                        #expect(elapsed >= limit && elapsed < limit + lateness)
                    }
                }
                try await group.waitForAll()
            }
        }
    }

    @Test(arguments: [Duration.zero, .seconds(-1)])
    func `no time at all is a timeout`(limit: Duration) async throws {
        let server = try TestServer(bytes: "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        try await withTransport(to: server) { transport in
            let error = try await transport.failure(.to(server.authority), timeout: limit)
            #expect(error.code == .timeout)
            #expect(!error.requestSent)
        }
        #expect(server.requests == 0)
    }

    @Test func `a peer that never takes the connection hits the connect timeout`() async throws {
        // With a backlog of nothing and nobody accepting, the system drops further SYNs.
        let listener = try listen(port: 0, backlog: 0)
        defer { close(listener) }
        let port = try boundPort(of: listener)
        var fillers: [Int32] = []
        defer { for filler in fillers { close(filler) } }
        for _ in 0..<4 {
            let filler = socket(AF_INET, Int32(SOCK_STREAM.rawValue | SOCK_NONBLOCK.rawValue), 0)
            var address = loopback(port: port)
            _ = withSocketAddress(&address) { connect(filler, $0, $1) }
            fillers.append(filler)
        }
        let transport = HTTPTransport(configuration: .init(connectTimeout: .milliseconds(300)), logger: quietLogger)
        let started = ContinuousClock.now
        let error = try await transport.failure(.to("127.0.0.1:\(port)"))
        let elapsed = started.duration(to: .now)
        await transport.shutdown()
        #expect(error.code == .connectTimeout)
        #expect(!error.requestSent)
        #expect(elapsed >= .milliseconds(290) && elapsed < .milliseconds(300) + lateness)
    }

    @Test func `a TLS handshake that never ends hits the connect timeout`() async throws {
        let server = try TestServer { connection in connection.waitForClose() }
        try await withTransport(to: server, .init(connectTimeout: .milliseconds(300))) { transport in
            let error = try await transport.failure(.to(server.authority, scheme: "https"))
            #expect(error.code == .connectTimeout)
            #expect(!error.requestSent)
        }
    }

    // MARK: Repetition

    @Test(arguments: [("GET", true), ("PUT", true), ("DELETE", true), ("POST", false), ("PATCH", false)])
    func `only an idempotent request is repeated when a kept connection dies`(
        method: String,
        isRepeated: Bool
    ) async throws {
        // The first connection takes one more request after its first answer, then hangs up without a word.
        let server = try TestServer { connection in
            var answered = 0
            while let request = connection.readRequest() {
                if request.target == "/second", answered == 1 { return }
                connection.write("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
                answered += 1
            }
        }
        try await withTransport(to: server) { transport in
            _ = try await transport.get(server.authority, "/first")
            let request = HTTPRequest.to(server.authority, "/second", method: try #require(.init(method)))
            if isRepeated {
                let exchange = try await transport.send(request, timeout: .seconds(20))
                #expect(exchange.response.status == .ok)
                #expect(server.requests == 3)
            } else {
                let error = try await transport.failure(request, body: [1])
                #expect(error.code == .reset)
                #expect(error.requestSent)
                #expect(server.requests == 2)
            }
        }
    }

    @Test func `connections are made anew after the server restarts`() async throws {
        let first = try TestServer(bytes: "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nold")
        let transport = HTTPTransport(logger: quietLogger)
        let before = try await transport.get(first.authority)
        await first.stop()
        let down = try await transport.failure(.to(first.authority))
        let second = try TestServer(port: first.port, bytes: "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nnew")
        let after = try await transport.get(second.authority)
        await transport.shutdown()
        await second.stop()
        #expect(String(decoding: before.body, as: UTF8.self) == "old")
        #expect(down.code == .connect)
        #expect(String(decoding: after.body, as: UTF8.self) == "new")
        #expect(!after.connectionReused)
    }
}
