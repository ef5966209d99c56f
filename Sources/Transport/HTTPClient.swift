package import HTTPTypes

/// One HTTP answer.
package struct HTTPClientResponse: Sendable {
    /// The status code, 100 to 599 from a store that keeps to the standard.
    package var status: Int
    package var headers: HTTPFields = [:]
    package var body: [UInt8] = []
}

/// Why no HTTP answer came.
package struct HTTPClientFailure: Error, Hashable, Sendable, CustomStringConvertible {
    package enum Code: String, Sendable, CaseIterable {
        /// The connection or the answer took too long.
        case timeout
        /// No name, no connection, no trust, or the connection was lost before the answer was complete.
        case unavailable
        /// The answer is larger than we take.
        case tooLarge = "too_large"
        /// Our own side gave up.
        case cancelled
    }

    package var code: Code

    package init(_ code: Code) { self.code = code }

    /// The code alone, fit for logs and labels.
    package var description: String { code.rawValue }
}

/// How a client reaches its store: a value, so that tests replace it.
package struct HTTPClient: Sendable {
    /// Sends one request, with a body where there is one, and waits for the whole answer, which may have any status.
    package var send: @Sendable (HTTPRequest, [UInt8]?) async throws(HTTPClientFailure) -> HTTPClientResponse

    package init(
        send: @escaping @Sendable (HTTPRequest, [UInt8]?) async throws(HTTPClientFailure) -> HTTPClientResponse
    ) {
        self.send = send
    }
}

extension HTTPClient {
    /// Sends through the transport, and counts requests under `target`; an answer may take 20 s and have 4 MiB.
    package init(transport: HTTPTransport, target: String = "revenuecat") {
        self.init { request, body throws(HTTPClientFailure) in
            do throws(TransportError) {
                let exchange = try await transport.send(
                    request,
                    body: body,
                    timeout: .seconds(20),
                    maxResponseBytes: 4 << 20,
                    metricsLabel: target
                )
                return HTTPClientResponse(
                    status: exchange.response.status.code,
                    headers: exchange.response.headerFields,
                    body: exchange.body
                )
            } catch {
                throw HTTPClientFailure(Self.code(error.code))
            }
        }
    }

    private static func code(_ code: TransportError.Code) -> HTTPClientFailure.Code {
        switch code {
        case .timeout, .connectTimeout: .timeout
        case .tooLarge: .tooLarge
        case .cancelled: .cancelled
        default: .unavailable
        }
    }
}
