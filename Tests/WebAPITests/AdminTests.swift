import HTTPTypes
import Hummingbird
import HummingbirdTesting
import Logging
import NIOPosix
import Synchronization
import Testing

@testable import WebAPI

@Suite struct AdminTests {
    private func content(isReady: Bool = true) -> AdminContent {
        AdminContent(metrics: { "jobs_total 7\n" }, metricsType: "text/plain; version=0.0.4", isReady: { isReady })
    }

    @Test func `Metrics come as they are rendered, and nobody keeps them`() async throws {
        try await Application(router: content().router()).test(.router) { client in
            try await client.execute(uri: "/metrics", method: .get) { response in
                #expect(response.status == .ok)
                #expect(response.headers[.contentType] == "text/plain; version=0.0.4")
                #expect(response.headers[.cacheControl] == "no-store")
                #expect(String(buffer: response.body) == "jobs_total 7\n")
            }
        }
    }

    @Test(arguments: [(true, HTTPResponse.Status.ok), (false, .serviceUnavailable)])
    func `A process lives before it is ready`(isReady: Bool, status: HTTPResponse.Status) async throws {
        try await Application(router: content(isReady: isReady).router()).test(.router) { client in
            try await client.execute(uri: "/health/live", method: .get) { #expect($0.status == .ok) }
            try await client.execute(uri: "/health/ready", method: .get) { #expect($0.status == status) }
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
            address: .init(host: "127.0.0.1", port: port),
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
