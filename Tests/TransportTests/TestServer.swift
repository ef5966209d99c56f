import Foundation
import Glibc
import Synchronization

/// An HTTP server of raw blocking sockets, a thread per connection, that can misbehave at any byte.
final class TestServer: Sendable {
    typealias Script = @Sendable (Connection) -> Void

    struct Failure: Error {
        var call: String
        var number = errno
    }

    let port: Int
    private let state: Mutex<State>
    private let ended: AsyncStream<Void>

    private struct State {
        var listener: Int32?
        var open: Set<Int32> = []
        var accepted = 0
        var requests = 0
    }

    /// Listens on 127.0.0.1 and runs `script` for every connection, on a thread of its own.
    init(port: Int = 0, script: @escaping Script) throws {
        let listener = try listen(port: port, backlog: 1024)
        self.port = try boundPort(of: listener)
        self.state = Mutex(State(listener: listener))
        let (ended, end) = AsyncStream<Void>.makeStream()
        self.ended = ended
        Thread.detachNewThread { [self] in
            accept(on: listener, script)
            close(listener)
            end.finish()
        }
    }

    /// Answers requests one after another on each connection, for as long as `answer` returns `true`.
    convenience init(port: Int = 0, answer: @escaping @Sendable (Request, Connection) -> Bool) throws {
        try self.init(port: port) { connection in
            while let request = connection.readRequest(), answer(request, connection) {}
        }
    }

    /// Answers every request with the same bytes.
    convenience init(port: Int = 0, bytes: String) throws {
        try self.init(port: port) { _, connection in connection.write(bytes) }
    }

    var authority: String { "127.0.0.1:\(port)" }
    var accepted: Int { state.withLock { $0.accepted } }
    var requests: Int { state.withLock { $0.requests } }

    /// Closes the listener and every connection, and waits until the port is free again.
    func stop() async {
        state.withLock { state in
            // Once only: by the second call the number may be another test's socket.
            if let listener = state.listener { shutdown(listener, Int32(SHUT_RDWR)) }
            state.listener = nil
            for descriptor in state.open { shutdown(descriptor, Int32(SHUT_RDWR)) }
        }
        for await _ in ended {}
    }

    fileprivate func countRequest() {
        state.withLock { $0.requests += 1 }
    }

    private func accept(on listener: Int32, _ script: @escaping Script) {
        while true {
            let descriptor = Glibc.accept(listener, nil, nil)
            guard descriptor >= 0 else { return }
            state.withLock { state in
                state.accepted += 1
                state.open.insert(descriptor)
            }
            Thread.detachNewThread { [self] in
                let connection = Connection(descriptor, of: self)
                script(connection)
                // A child process of another test may hold a copy, so the close alone might not tell the peer.
                if !connection.endsInReset { shutdown(descriptor, Int32(SHUT_RDWR)) }
                // Out of the set before the close, so that `stop` never touches a reused descriptor.
                state.withLock { _ = $0.open.remove(descriptor) }
                close(descriptor)
            }
        }
    }
}

/// A request as it came over the wire.
struct Request: Sendable {
    var method: String
    var target: String
    var headerLines: [String]
    var body: [UInt8]
}

/// One accepted connection, used by its own thread alone.
final class Connection {
    private let descriptor: Int32
    private let server: TestServer
    private(set) var endsInReset = false
    private var buffer: [UInt8] = []
    private var chunk = [UInt8](repeating: 0, count: 64 << 10)

    init(_ descriptor: Int32, of server: TestServer) {
        self.descriptor = descriptor
        self.server = server
    }

    /// Reads one request with a Content-Length body; `nil` once the peer is gone.
    func readRequest() -> Request? {
        let end = Array("\r\n\r\n".utf8)
        while true {
            if let range = buffer.firstRange(of: end) {
                let lines = String(decoding: buffer[..<range.lowerBound], as: UTF8.self)
                    .components(separatedBy: "\r\n")
                let words = lines[0].split(separator: " ").map(String.init)
                guard words.count == 3 else { return nil }
                let length = lines.compactMap(Self.contentLength).first ?? 0
                buffer.removeSubrange(..<range.upperBound)
                while buffer.count < length { guard fill() else { return nil } }
                let body = Array(buffer.prefix(length))
                buffer.removeFirst(length)
                server.countRequest()
                return Request(method: words[0], target: words[1], headerLines: Array(lines.dropFirst()), body: body)
            }
            guard fill() else { return nil }
        }
    }

    /// Reads one request without a body as cheaply as can be; `false` once the peer is gone.
    func skipRequest() -> Bool {
        let end = Array("\r\n\r\n".utf8)
        while !buffer.suffix(4).elementsEqual(end) { guard fill() else { return false } }
        buffer.removeAll(keepingCapacity: true)
        return true
    }

    /// Writes everything; `false` once the peer is gone.
    @discardableResult
    func write(_ text: String) -> Bool { write(Array(text.utf8)) }

    @discardableResult
    func write(_ bytes: [UInt8]) -> Bool {
        var sent = 0
        while sent < bytes.count {
            let count = bytes.withUnsafeBytes { raw in
                send(descriptor, raw.baseAddress?.advanced(by: sent), raw.count - sent, Int32(MSG_NOSIGNAL))
            }
            guard count > 0 else { return false }
            sent += count
        }
        return true
    }

    /// Blocks until the peer closes its side.
    func waitForClose() {
        while fill() {}
    }

    /// Makes the coming close a reset instead of an orderly end.
    func resetOnClose() {
        endsInReset = true
        var value = linger(l_onoff: 1, l_linger: 0)
        setsockopt(descriptor, SOL_SOCKET, SO_LINGER, &value, socklen_t(MemoryLayout<linger>.size))
    }

    private func fill() -> Bool {
        let count = recv(descriptor, &chunk, chunk.count, 0)
        guard count > 0 else { return false }
        buffer += chunk[..<count]
        return true
    }

    private static func contentLength(_ line: String) -> Int? {
        let parts = line.split(separator: ":", maxSplits: 1)
        guard parts.count == 2, parts[0].lowercased() == "content-length" else { return nil }
        return Int(parts[1].trimmingCharacters(in: .whitespaces))
    }
}

/// A listening socket on 127.0.0.1.
func listen(port: Int, backlog: Int32) throws -> Int32 {
    // Other tests start child processes; one that inherited a socket would hold it open.
    let descriptor = socket(AF_INET, Int32(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue), 0)
    guard descriptor >= 0 else { throw TestServer.Failure(call: "socket") }
    var yes: Int32 = 1
    setsockopt(descriptor, SOL_SOCKET, SO_REUSEADDR, &yes, socklen_t(MemoryLayout<Int32>.size))
    var address = loopback(port: port)
    let bound = withSocketAddress(&address) { bind(descriptor, $0, $1) }
    guard bound == 0 else { throw TestServer.Failure(call: "bind") }
    guard Glibc.listen(descriptor, backlog) == 0 else { throw TestServer.Failure(call: "listen") }
    return descriptor
}

/// The port a socket is bound to.
func boundPort(of descriptor: Int32) throws -> Int {
    var address = sockaddr_in()
    var length = socklen_t(MemoryLayout<sockaddr_in>.size)
    let code = withSocketAddress(&address) { pointer, _ in getsockname(descriptor, pointer, &length) }
    guard code == 0 else { throw TestServer.Failure(call: "getsockname") }
    return Int(UInt16(bigEndian: address.sin_port))
}

func loopback(port: Int) -> sockaddr_in {
    var address = sockaddr_in()
    address.sin_family = sa_family_t(AF_INET)
    address.sin_port = in_port_t(port).bigEndian
    address.sin_addr = in_addr(s_addr: UInt32(0x7f00_0001).bigEndian)
    return address
}

func withSocketAddress<Result>(
    _ address: inout sockaddr_in,
    _ body: (UnsafeMutablePointer<sockaddr>, socklen_t) -> Result
) -> Result {
    withUnsafeMutablePointer(to: &address) { pointer in
        pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) {
            body($0, socklen_t(MemoryLayout<sockaddr_in>.size))
        }
    }
}
