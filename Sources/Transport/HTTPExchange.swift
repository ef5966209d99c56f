package import HTTPTypes

/// A complete response, and how it came about.
package struct HTTPExchange: Sendable {
    package enum Version: String, Sendable, CaseIterable {
        case http1_0 = "1.0"
        case http1_1 = "1.1"
        case http2 = "2"
        case unknown
    }

    /// Status and header fields in the order received, repeated fields kept apart; trailers are dropped.
    package var response: HTTPResponse

    /// The body as received, empty for `HEAD`, 204 and 304.
    ///
    /// No content coding is asked for or undone. A body that ends with the connection, having neither a length nor
    /// chunks, is not distinguishable from one that was cut off.
    package var body: [UInt8]

    /// Time from the call of `send` to the last byte, waiting for a place included.
    package var elapsed: Duration

    package var httpVersion: Version

    /// Whether the request needed no new connection.
    package var connectionReused: Bool
}
