import CLibPQ

/// Owns a `PGconn` and finishes it, once.
struct ConnectionHandle: ~Copyable {
    /// The connection, valid until `close`; nil afterwards.
    private(set) var raw: OpaquePointer?

    init() {}

    /// Begins to connect; `raw` is nil when memory ran out.
    init(connectingWith parameters: [String: String]) {
        let pairs = parameters.sorted { $0.key < $1.key }
        raw = Self.withCStrings(pairs.map(\.key)) { keywords in
            Self.withCStrings(pairs.map(\.value)) { values in PQconnectStartParams(keywords, values, 0) }
        }
        guard let raw else { return }
        // Without this libpq prints notices on stderr.
        PQsetNoticeReceiver(raw, { _, _ in }, nil)
    }

    mutating func close() {
        guard let raw else { return }
        self.raw = nil
        Self.finish(raw)
    }

    deinit {
        if let raw { Self.finish(raw) }
    }

    private static func finish(_ raw: OpaquePointer) {
        // The number may be another socket's the moment PQfinish closes it.
        let socket = PQsocket(raw)
        if socket >= 0 { Reactor.shared.deregister(socket) }
        PQfinish(raw)
    }

    /// Calls `body` with a null-terminated array of C strings, which is valid during the call.
    private static func withCStrings<Result>(
        _ strings: [String],
        _ body: (UnsafePointer<UnsafePointer<CChar>?>?) -> Result
    ) -> Result {
        var bytes: [CChar] = []
        var offsets: [Int] = []
        for string in strings {
            offsets.append(bytes.count)
            bytes.append(contentsOf: string.utf8.lazy.map(CChar.init(bitPattern:)))
            bytes.append(0)
        }
        return bytes.withUnsafeBufferPointer { buffer in
            let pointers = offsets.map { offset in buffer.baseAddress.map { $0 + offset } } + [nil]
            return pointers.withUnsafeBufferPointer { body($0.baseAddress) }
        }
    }
}

/// What is needed to ask the server to stop a connection's statement, from any thread.
///
/// Unchecked, because the pointer is not `Sendable` by itself. A `PGcancel` is a copy of the address and key that never
/// changes; libpq's manual allows `PQcancel` from another thread than the connection's. It is freed once, when no task
/// holds a reference.
final class CancelHandle: @unchecked Sendable {
    private let raw: OpaquePointer

    /// Nil when the connection is not open.
    init?(_ connection: OpaquePointer) {
        guard let raw = PQgetCancel(connection) else { return nil }
        self.raw = raw
    }

    deinit { PQfreeCancel(raw) }

    /// Sends the request and blocks until the server took it; only the statement's result shows its effect.
    func send() {
        var message = [CChar](repeating: 0, count: 256)
        PQcancel(raw, &message, Int32(message.count))
    }
}
