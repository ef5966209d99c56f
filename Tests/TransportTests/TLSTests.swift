import Foundation
import HTTPTypes
import TestSupport
import Testing

@testable import Transport

@Suite(.timeLimit(.minutes(10)), .serialized)
struct TLSTests {
    @Test func `a certificate that nobody vouches for is refused`() async throws {
        try await withServer { server in
            let transport = HTTPTransport(logger: quietLogger)
            let error = try await transport.failure(.to(server.authority, scheme: "https"))
            await transport.shutdown()
            #expect(error.code == .tls)
            #expect(!error.requestSent)
        }
    }

    @Test func `a certificate of the given authority is trusted`() async throws {
        try await withServer { server in
            let transport = HTTPTransport(configuration: .init(caFile: server.certificate), logger: quietLogger)
            let exchange = try await transport.send(.to(server.authority, scheme: "https"), timeout: .seconds(20))
            await transport.shutdown()
            #expect(exchange.response.status == .ok)
            #expect(!exchange.body.isEmpty)
        }
    }

    @Test func `a trusted certificate for another name is refused`() async throws {
        try await withServer { server in
            let transport = HTTPTransport(configuration: .init(caFile: server.certificate), logger: quietLogger)
            let error = try await transport.failure(.to("localhost:\(server.port)", scheme: "https"))
            await transport.shutdown()
            #expect(error.code == .tls)
            #expect(!error.requestSent)
        }
    }

    @Test func `a trust store that cannot be read trusts nobody`() async throws {
        try await withServer { server in
            let transport = HTTPTransport(configuration: .init(caFile: "/nonexistent/ca.pem"), logger: quietLogger)
            let error = try await transport.failure(.to(server.authority, scheme: "https"))
            await transport.shutdown()
            #expect(error.code == .tls)
        }
    }

    @Test func `plain HTTP on a TLS port, and TLS on a plain port, are told apart`() async throws {
        let plain = try TestServer(bytes: "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        try await withTransport(to: plain) { transport in
            // The server reads the handshake as a request line, and hangs up on it.
            let error = try await transport.failure(
                .to(plain.authority, scheme: "https"),
                timeout: .milliseconds(500)
            )
            #expect([.tls, .timeout].contains(error.code))
            #expect(!error.requestSent)
        }
    }

    @Test(.enabled(if: ChildServer.exists("nghttpd"), "nghttpd is not installed"))
    func `HTTP/2 is spoken where the server offers it, many requests to a connection`() async throws {
        try await withServer(.nghttpd) { server in
            let configuration = HTTPTransportConfiguration(maxConnectionsPerHost: 2, caFile: server.certificate)
            let transport = HTTPTransport(configuration: configuration, logger: quietLogger)
            let request = HTTPRequest.to(server.authority, "/body", method: .post, scheme: "https")
            let exchanges = try await withThrowingTaskGroup(of: Bool.self) { group in
                for size in 1...300 {
                    group.addTask {
                        let body = [UInt8](repeating: UInt8(size % 251), count: size * 100)
                        let exchange = try await transport.send(request, body: body, timeout: .seconds(30))
                        #expect(exchange.response.status == .ok)
                        #expect(exchange.httpVersion == .http2)
                        #expect(exchange.body == body)
                        return exchange.connectionReused
                    }
                }
                return try await group.reduce(into: []) { $0.append($1) }
            }
            await transport.shutdown()
            #expect(exchanges.filter { !$0 }.count <= 2)
        }
    }

    private func withServer(
        _ kind: ChildServer.Kind = .openssl,
        _ body: (ChildServer) async throws -> Void
    ) async throws {
        let server = try await ChildServer(kind)
        defer { server.stop() }
        try await body(server)
    }
}

/// A TLS server in a process of its own, with a certificate made for 127.0.0.1 alone.
struct ChildServer {
    enum Kind {
        /// Answers one request a connection, by HTTP/1.0.
        case openssl
        /// Answers each upload with its own body, by HTTP/2.
        case nghttpd
    }

    let port: Int
    let certificate: String
    private let pid: pid_t
    private let folder: String

    var authority: String { "127.0.0.1:\(port)" }

    init(_ kind: Kind) async throws {
        folder = try Files.makeTemporaryDirectory()
        let key = folder + "/key.pem"
        certificate = folder + "/cert.pem"
        let maker = try Self.start(
            [
                "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                "-keyout", key, "-out", certificate, "-days", "2", "-subj", "/CN=transport-test",
                "-addext", "subjectAltName=IP:127.0.0.1",
            ],
            output: folder + "/made"
        )
        try await eventually(within: .seconds(30)) { waitpid(maker, nil, WNOHANG) == maker }
        let log = folder + "/log"
        switch kind {
        case .openssl:
            pid = try Self.start(
                ["openssl", "s_server", "-accept", "127.0.0.1:0", "-key", key, "-cert", certificate, "-www"],
                output: log
            )
            try await eventually(within: .seconds(30)) { Self.acceptedPort(in: log) != nil }
            port = try #require(Self.acceptedPort(in: log))
        case .nghttpd:
            // It cannot pick a port itself, so a free one is found for it.
            let listener = try listen(port: 0, backlog: 1)
            let free = try boundPort(of: listener)
            close(listener)
            port = free
            pid = try Self.start(
                [
                    "nghttpd", "-v", "--echo-upload", "--address=127.0.0.1", "-d", folder, "\(free)", key, certificate,
                ],
                output: log
            )
            try await eventually(within: .seconds(30)) { Self.lines(of: log).contains { $0.contains("listen") } }
        }
    }

    func stop() {
        kill(pid, SIGKILL)
        waitpid(pid, nil, 0)
        try? FileManager.default.removeItem(atPath: folder)
    }

    static func exists(_ program: String) -> Bool { ChildProcess.find(program, also: ["/usr/sbin"]) != nil }

    private static func start(_ command: [String], output: String) throws -> pid_t {
        let program = try #require(ChildProcess.find(command[0], also: ["/usr/sbin"]))
        return try ChildProcess.start([program] + command.dropFirst(), output: output)
    }

    /// The port that openssl chose, once it has said so.
    private static func acceptedPort(in log: String) -> Int? {
        lines(of: log).first { $0.hasPrefix("ACCEPT") }?.split(separator: ":").last.flatMap { Int($0) }
    }

    private static func lines(of path: String) -> [Substring] {
        // Foundation loses the buffer into which it reads an empty file.
        var status = stat()
        guard stat(path, &status) == 0, status.st_size > 0 else { return [] }
        return ((try? String(contentsOfFile: path, encoding: .utf8)) ?? "").split(separator: "\n")
    }
}
