@testable import HTTPServing
import HTTPTypes
import Hummingbird
import Logging
import NIOPosix
import Synchronization
import Testing
@testable import WebAPI

@Suite struct AdminTests {
    private func content(_ readiness: Readiness = .ready) -> AdminContent {
        AdminContent(metrics: { "jobs_total 7\n" }, metricsType: "text/plain; version=0.0.4", readiness: { readiness })
    }

    private func probe(_ readiness: Readiness = .ready) -> RouterProbe<AdminContext> {
        RouterProbe(
            router: content(readiness).router(
                AdminHosts(names: ["console.example.com", "admin.internal"]),
                SecurityLog(),
                Logger(label: "admin")
            )
        )
    }

    @Test func `Metrics come as they are rendered, and nobody keeps them`() async throws {
        let response = try await probe().ask("/metrics")
        #expect(response.status == .ok)
        #expect(response.headers[.contentType] == "text/plain; version=0.0.4")
        #expect(response.headers[.cacheControl] == "no-store")
        #expect(response.text == "jobs_total 7\n")
    }

    @Test(arguments: [
        (Readiness.ready, HTTPResponse.Status.ok, "ready"), (.waiting, .ok, "ready"),
        (.notReady, .serviceUnavailable, "not ready"),
    ])
    func `A process lives before it is ready, and is ready while requests wait for the database`(
        readiness: Readiness,
        status: HTTPResponse.Status,
        word: String
    ) async throws {
        #expect(try await probe(readiness).ask("/health/live").status == .ok)
        let answer = try await probe(readiness).ask("/health/ready")
        #expect(answer.status == status && answer.text.hasPrefix("\(word)\nversion "))
        #expect(answer.text.hasSuffix("\nwaiting for the database\n") == (readiness == .waiting))
    }

    @Test(arguments: [
        ("127.0.0.1", true), ("127.0.0.1:9090", true), ("[::1]:9090", true), ("10.1.2.3:9090", true),
        ("localhost", true),
        ("LOCALHOST:9090", true), ("admin.internal", true), ("console.example.com", true), ("evil.example", false),
        ("evil.example:9090", false), ("127.0.0.1.evil.example", false), ("1.2.3", false), ("[evil]", false),
        ("", false),
        ("localhost:x", false), ("console.example.com.", false),
    ])
    func `Only a host that is known is answered, for a page may have its own name lead here`(
        host: String,
        isKnown: Bool
    ) async throws {
        for path in ["/metrics", "/health/live", "/nothing"] {
            let status = try await probe().ask(path, authority: host).status
            #expect((status != .misdirectedRequest) == isKnown, "\(host) \(path)")
        }
    }

    @Test func `A taken port is a warning, and the process goes on without metrics`() async throws {
        let taken = try await ServerBootstrap(group: .singletonMultiThreadedEventLoopGroup)
            .bind(host: "127.0.0.1", port: 0).get()
        let port = try #require(taken.localAddress?.port)
        var logger = Logger(label: "admin")
        let warned = Warnings()
        logger.handler = warned
        let server = AdminServer(
            host: "127.0.0.1",
            port: port,
            isVital: false,
            content: content(),
            logger: logger
        )
        try await withThrowingTaskGroup(of: Void.self) { group in
            group.addTask { try await server.run() }
            await warned.first()
            group.cancelAll()
            try await group.waitForAll()
        }
        try await taken.close()
    }
}

/// Hears of warnings.
private struct Warnings: LogHandler {
    var metadata: Logger.Metadata = [:]
    var logLevel = Logger.Level.warning
    private let stream = AsyncStream.makeStream(of: Void.self)

    subscript(metadataKey key: String) -> Logger.Metadata.Value? {
        get { metadata[key] }
        set { metadata[key] = newValue }
    }

    func log(event: LogEvent) { stream.continuation.yield() }

    func first() async { for await _ in stream.stream { return } }
}
