import Foundation
import HTTPTypes
import Testing

@testable import Transport

@Suite(.timeLimit(.minutes(1)), .serialized)
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
    private let process: Process
    private let folder: URL

    var authority: String { "127.0.0.1:\(port)" }

    init(_ kind: Kind) async throws {
        folder = FileManager.default.temporaryDirectory.appending(path: "transport-\(UUID().uuidString)")
        try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
        let key = folder.appending(path: "key.pem").path
        certificate = folder.appending(path: "cert.pem").path
        let request = Process()
        let made = try await Self.run(
            request,
            [
                "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                "-keyout", key, "-out", certificate, "-days", "2", "-subj", "/CN=transport-test",
                "-addext", "subjectAltName=IP:127.0.0.1",
            ],
            until: { _ in false }
        )
        try #require(made == nil && FileManager.default.fileExists(atPath: certificate))
        process = Process()
        switch kind {
        case .openssl:
            let line = try await Self.run(
                process,
                ["openssl", "s_server", "-accept", "127.0.0.1:0", "-key", key, "-cert", certificate, "-www"],
                until: { $0.hasPrefix("ACCEPT") }
            )
            port = try #require(line?.split(separator: ":").last.flatMap { Int($0) })
        case .nghttpd:
            // It cannot pick a port itself, so a free one is found for it.
            let listener = try listen(port: 0, backlog: 1)
            port = try boundPort(of: listener)
            close(listener)
            let line = try await Self.run(
                process,
                [
                    "nghttpd", "-v", "--echo-upload", "--address=127.0.0.1", "-d", folder.path, "\(port)", key,
                    certificate,
                ],
                until: { $0.contains("listen") }
            )
            try #require(line != nil)
        }
    }

    func stop() {
        // Not SIGTERM: the child inherited the signal mask of the pool's thread that started it, which blocks that.
        if process.isRunning { kill(process.processIdentifier, SIGKILL) }
        try? FileManager.default.removeItem(at: folder)
    }

    static func exists(_ program: String) -> Bool {
        let path = (ProcessInfo.processInfo.environment["PATH"] ?? "") + ":/usr/sbin"
        return path.split(separator: ":").contains { FileManager.default.isExecutableFile(atPath: "\($0)/\(program)") }
    }

    /// Starts a program and returns its first line that satisfies `found`; `nil` once its output ends without one.
    private static func run(
        _ process: Process,
        _ command: [String],
        until found: @escaping @Sendable (String) -> Bool
    ) async throws -> String? {
        let pipe = Pipe()
        process.executableURL = URL(fileURLWithPath: "/usr/bin/env")
        process.arguments = command
        var environment = ProcessInfo.processInfo.environment
        environment["PATH", default: "/usr/bin"] += ":/usr/sbin"
        process.environment = environment
        process.standardInput = FileHandle.nullDevice
        process.standardOutput = pipe
        process.standardError = FileHandle.nullDevice
        let (lines, continuation) = AsyncStream<String>.makeStream()
        // Not the end of the output: another child may have inherited the pipe's other end and hold it open.
        process.terminationHandler = { _ in continuation.finish() }
        try process.run()
        Thread.detachNewThread {
            var rest = ""
            // Reads on to the end even when nobody listens any more, so that the child never blocks on a full pipe.
            while case let data = pipe.fileHandleForReading.availableData, !data.isEmpty {
                rest += String(decoding: data, as: UTF8.self)
                while let end = rest.firstIndex(of: "\n") {
                    continuation.yield(String(rest[..<end]))
                    rest = String(rest[rest.index(after: end)...])
                }
            }
        }
        return await lines.first { found($0) }
    }
}
