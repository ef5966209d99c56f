import Foundation
import Glibc

/// A TCP connection to a server on loopback whose every byte a test decides on; it blocks, so it is for threads alone.
final class RawConnection {
    struct Failure: Error {
        var call: String
        var number = errno
    }

    /// What came within a time.
    enum Arrival {
        case bytes([UInt8])
        case nothing
        /// The server has closed, or is gone.
        case end
    }

    /// The usual address of clients.
    static let loopback: UInt32 = 0x7F00_0001

    private let descriptor: Int32

    /// Connects.
    ///
    /// - Parameters:
    ///   - port: the server's.
    ///   - own: the address to come from, one of 127.0.0.0/8.
    /// - Throws: `Failure`.
    init(to port: Int, from own: UInt32 = loopback) throws {
        descriptor = try Self.connected(to: port, from: own)
    }

    deinit { _ = Glibc.close(descriptor) }

    /// Sends bytes; `false` once the server is gone.
    @discardableResult
    func send(_ bytes: [UInt8]) -> Bool {
        var sent = 0
        while sent < bytes.count {
            let count = bytes.withUnsafeBytes { raw in
                Glibc.send(descriptor, raw.baseAddress?.advanced(by: sent), raw.count - sent, Int32(MSG_NOSIGNAL))
            }
            guard count > 0 else { return false }
            sent += count
        }
        return true
    }

    /// Says that nothing more will be sent.
    func endSending() { _ = Glibc.shutdown(descriptor, Int32(SHUT_WR)) }

    /// Waits for bytes.
    func receive(within limit: Duration) -> Arrival {
        var entry = pollfd(fd: descriptor, events: Int16(POLLIN), revents: 0)
        guard poll(&entry, 1, Int32(limit / .milliseconds(1))) > 0 else { return .nothing }
        let size = 64 << 10
        var chunk = [UInt8](repeating: 0, count: size)
        let count = recv(descriptor, &chunk, size, 0)
        return count > 0 ? .bytes(Array(chunk[..<count])) : .end
    }

    private static func connected(to port: Int, from own: UInt32) throws -> Int32 {
        // Other tests start processes; one that inherited the socket would hold it open.
        let descriptor = socket(AF_INET, Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue), 0)
        guard descriptor >= 0 else { throw Failure(call: "socket") }
        guard own == loopback || with(own, 0, { Glibc.bind(descriptor, $0, $1) }) == 0 else {
            let failure = Failure(call: "bind")
            _ = Glibc.close(descriptor)
            throw failure
        }
        guard with(loopback, port, { Glibc.connect(descriptor, $0, $1) }) == 0 else {
            let failure = Failure(call: "connect")
            _ = Glibc.close(descriptor)
            throw failure
        }
        return descriptor
    }

    private static func with(
        _ host: UInt32,
        _ port: Int,
        _ call: (UnsafeMutablePointer<sockaddr>, socklen_t) -> Int32
    ) -> Int32 {
        var address = sockaddr_in()
        address.sin_family = sa_family_t(AF_INET)
        address.sin_port = in_port_t(port).bigEndian
        address.sin_addr.s_addr = host.bigEndian
        return withUnsafeMutablePointer(to: &address) { pointer in
            pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                call($0, socklen_t(MemoryLayout<sockaddr_in>.size))
            }
        }
    }
}

extension RawConnection {
    /// What came on a connection of its own.
    struct Outcome: Sendable, CustomStringConvertible {
        /// Answers that came whole.
        var answers: [RawAnswer] = []
        /// All that came.
        var bytes: [UInt8] = []
        /// The server closed the connection.
        var hasEnded = false

        var text: String { String(decoding: bytes, as: UTF8.self) }
        var description: String { "\(hasEnded ? "closed" : "open") after: \(text.prefix(2000))" }
    }

    /// Sends bytes on a connection of its own, and reads until the server closes.
    ///
    /// - Parameters:
    ///   - bytes: what is sent.
    ///   - port: the server's.
    ///   - own: the address to come from.
    ///   - endsSending: whether the server is told that nothing more will come.
    ///   - limit: how long to wait for what comes next.
    /// - Returns: what came.
    /// - Throws: `Failure`, where there is no connection.
    static func exchange(
        _ bytes: [UInt8],
        with port: Int,
        from own: UInt32 = loopback,
        endsSending: Bool = false,
        within limit: Duration = .seconds(10)
    ) async throws -> Outcome {
        try await onThread {
            let connection = try RawConnection(to: port, from: own)
            connection.send(bytes)
            if endsSending { connection.endSending() }
            var outcome = Outcome()
            reading: while true {
                switch connection.receive(within: limit) {
                case .bytes(let more): outcome.bytes += more
                case .nothing: break reading
                case .end:
                    outcome.hasEnded = true
                    break reading
                }
            }
            outcome.answers = RawAnswer.all(in: outcome.bytes, hasEnded: outcome.hasEnded).answers
            return outcome
        }
    }

    /// A request as bytes.
    ///
    /// - Parameters:
    ///   - method: such as `GET`.
    ///   - path: the request's target.
    ///   - fields: headers, in their order, beside `Host`.
    ///   - body: with its length and a type of JSON; `nil`: none.
    /// - Returns: the bytes.
    static func request(
        _ method: String,
        _ path: String,
        _ fields: [(String, String)] = [],
        body: [UInt8]? = nil
    ) -> [UInt8] {
        var all = [("Host", "test")] + fields
        if let body { all += [("Content-Type", "application/json"), ("Content-Length", "\(body.count)")] }
        let head = "\(method) \(path) HTTP/1.1\r\n" + all.map { "\($0.0): \($0.1)\r\n" }.joined() + "\r\n"
        return Array(head.utf8) + (body ?? [])
    }

    /// Bytes as chunks of 64 KiB.
    static func chunked(_ bytes: [UInt8]) -> [UInt8] {
        var chunks: [UInt8] = []
        for start in stride(from: 0, to: bytes.count, by: 65_536) {
            let chunk = bytes[start..<min(bytes.count, start + 65_536)]
            let size = String(chunk.count, radix: 16)
            chunks += Array("\(size)\r\n".utf8)
            chunks += chunk
            chunks += Array("\r\n".utf8)
        }
        return chunks + Array("0\r\n\r\n".utf8)
    }
}

/// Does blocking work in a thread of its own.
func onThread<Value: Sendable>(_ work: @escaping @Sendable () throws -> Value) async throws -> Value {
    try await withCheckedThrowingContinuation { continuation in
        Thread.detachNewThread { continuation.resume(with: Result { try work() }) }
    }
}
