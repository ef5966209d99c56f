internal import Foundation
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

    var path: Substring { target[..<(target.utf8.firstIndex(of: UInt8(ascii: "?")) ?? target.endIndex)] }

    /// What follows the path, still encoded.
    var query: Substring { target[path.endIndex...].dropFirst() }

    /// What follows `Bearer ` in the header.
    var bearer: String? {
        guard let authorization, authorization.hasPrefix("Bearer ") else { return nil }
        return String(authorization.dropFirst("Bearer ".count))
    }

    /// The body of a control request; one of no bytes may count as an object without members.
    ///
    /// - Throws: `ScenarioError` that names the key at fault.
    func decoded<Body: Decodable>(emptyIsObject: Bool = true) throws -> Body {
        let bytes = Data(body.readableBytesView)
        return try ScenarioError.explaining {
            try JSONDecoder().decode(Body.self, from: bytes.isEmpty && emptyIsObject ? Data("{}".utf8) : bytes)
        }
    }

    /// The same, for an object that may leave out the name that its path gives it.
    ///
    /// - Throws: `ScenarioError` that names the key at fault, also where the two names differ.
    func decoded<Body: Decodable>(
        named name: String,
        _ path: WritableKeyPath<Body, String>,
        _ key: String
    ) throws -> Body {
        var body: Body = try decoded(emptyIsObject: false)
        guard ["", name].contains(body[keyPath: path]) else {
            throw ScenarioError(keyPath: key, message: "differs from the path; leave it out")
        }
        body[keyPath: path] = name
        return body
    }
}

/// What is sent back, and in which bad manner.
struct Reply: Sendable {
    /// HTTP status.
    var status: Int
    var body: [UInt8] = []
    var contentType: StaticString = "application/json"
    /// Header lines next to those that every answer has.
    var headers: [(name: StaticString, value: String)] = []
    /// Bytes of filler between `body` and `tail`, for bodies too large to build.
    var fillerBytes = 0
    /// What follows the filler.
    var tail: [UInt8] = []
    /// Milliseconds to wait before anything is sent.
    var delayMs: Int64 = 0
    var delivery = Delivery.whole
    /// What the store sends elsewhere once it has answered.
    var test: AppStoreTestDelivery?
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

    /// An answer with one object.
    static func object(_ status: Int = 200, _ body: (inout JSONBytes) throws -> Void) rethrows -> Reply {
        Reply(status: status, body: try JSONBytes.object(body))
    }

    /// What a control request is answered that has nothing to show.
    static let done = Reply.object { _ in }

    /// An answer that says what is wrong, in no store's own form.
    static func error(_ status: Int, _ message: String) -> Reply {
        object(status) { $0.member("error", message) }
    }

    static func text(_ text: String, _ contentType: StaticString = "text/plain; charset=utf-8") -> Reply {
        Reply(status: 200, body: Array(text.utf8), contentType: contentType)
    }

    /// Adds a wait as `Retry-After`, in whole seconds; none for nil.
    func waiting(_ milliseconds: Int64?) -> Reply {
        guard let milliseconds else { return self }
        var reply = self
        reply.headers.append(("Retry-After", "\((milliseconds + 999) / 1000)"))
        return reply
    }
}
