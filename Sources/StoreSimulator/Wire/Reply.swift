internal import NIOCore

/// A request as the simulated stores see it.
struct StoreRequest: Sendable {
    /// `GET`, `POST` and so on.
    var method: String
    /// Path and query, as sent.
    var target: String
    var authorization: String?
    var contentType: String?
    var body = ByteBuffer()

    /// Whether a simulated store answers, not the control endpoint.
    var isForStore: Bool { !target.hasPrefix("/control") && target != "/" }
}

/// A header line of an answer.
struct Header: Sendable {
    var name: StaticString
    var value: String

    init(_ name: StaticString, _ value: String) {
        self.name = name
        self.value = value
    }
}

/// What is sent back, and in which bad manner.
struct Reply: Sendable {
    /// HTTP status.
    var status: Int
    /// Header lines next to those that every answer has.
    var headers: [Header] = []
    var contentType: StaticString = "application/json"
    var body: [UInt8]
    /// Bytes of filler between `body` and `tail`, for bodies too large to build.
    var fillerBytes = 0
    /// What follows the filler.
    var tail: [UInt8] = []
    /// Milliseconds to wait before anything is sent.
    var delayMs: Int64 = 0
    var delivery = Delivery.whole
    /// Unix milliseconds of the `Date` header.
    var dateMs: Int64 = 0
    /// Number for the `X-Request-Id` header.
    var requestID: UInt64 = 0

    /// How the bytes reach the client.
    enum Delivery: Sendable, Equatable {
        /// As they should.
        case whole
        /// Some bytes at a time.
        case drip(bytes: Int, everyMs: Int64)
        /// The connection closes in the middle of the body.
        case cut
        /// The connection closes without an answer.
        case drop
        /// The connection is reset without an answer.
        case reset
    }

    /// Bytes of the whole body.
    var contentLength: Int { body.count + fillerBytes + tail.count }

    init(status: Int, body: [UInt8] = []) {
        self.status = status
        self.body = body
    }
}
