import Foundation
import HTTPTypes
import Logging
import TestSupport
import Testing

@testable import Transport

let quietLogger = Logger(label: "test") { _ in SwiftLogNoOpLogHandler() }

/// Runs `body` with a transport and a server, and takes both down whatever happens.
func withTransport<Value>(
    to server: TestServer,
    _ configuration: HTTPTransportConfiguration = .init(),
    _ body: (HTTPTransport) async throws -> Value
) async throws -> Value {
    let transport = HTTPTransport(configuration: configuration, logger: quietLogger)
    return try await run {
        try await body(transport)
    } finally: {
        await transport.shutdown()
        await server.stop()
    }
}

extension HTTPTransport {
    func get(_ authority: String, _ path: String = "/", timeout: Duration = .seconds(20)) async throws(TransportError)
        -> HTTPExchange
    {
        try await send(.to(authority, path), timeout: timeout)
    }

    /// The error of a request that must fail.
    func failure(
        _ request: HTTPRequest,
        body: [UInt8]? = nil,
        timeout: Duration = .seconds(20),
        maxResponseBytes: Int = 4 << 20,
        sourceLocation: SourceLocation = #_sourceLocation
    ) async throws -> TransportError {
        try await #require(throws: TransportError.self, sourceLocation: sourceLocation) {
            try await send(request, body: body, timeout: timeout, maxResponseBytes: maxResponseBytes)
        }
    }
}

extension HTTPRequest {
    /// A plain request to a loopback server.
    static func to(
        _ authority: String,
        _ path: String = "/",
        method: HTTPRequest.Method = .get,
        scheme: String = "http",
        _ fields: HTTPFields = [:]
    ) -> HTTPRequest {
        HTTPRequest(method: method, scheme: scheme, authority: authority, path: path, headerFields: fields)
    }
}

func name(_ name: String) throws -> HTTPField.Name {
    try #require(HTTPField.Name(name))
}

/// A signal that one side sends any number of times and the other awaits.
struct Signal: Sendable {
    private let stream: AsyncStream<Void>
    private let continuation: AsyncStream<Void>.Continuation

    init() {
        (stream, continuation) = AsyncStream.makeStream()
    }

    func send() { continuation.yield() }

    /// Waits for `count` signals in all since the call.
    func wait(_ count: Int = 1) async {
        var left = count
        for await _ in stream {
            left -= 1
            if left == 0 { return }
        }
    }
}

/// A door that blocks a server's thread until the test opens it.
final class Gate: Sendable {
    private let semaphore = DispatchSemaphore(value: 0)

    func wait() {
        semaphore.wait()
        semaphore.signal()
    }

    func open() { semaphore.signal() }
}
