import Foundation
import Synchronization

/// Server-sent events as they come; the client goes away when nobody holds this value any more.
final class EventStream: Sendable {
    /// One event.
    struct Event: Sendable, Hashable {
        var id: String?
        var name: String?
        var data: String

        /// The restore that it tells of.
        var restore: SeenRestore {
            get throws { try JSONDecoder().decode(SeenRestore.self, from: Data(data.utf8)) }
        }
    }

    private struct State {
        var bytes: [UInt8] = []
        var hasEnded = false
        var isLeft = false
    }

    /// What the reading thread and this value share.
    private final class Shared: Sendable {
        let state = Mutex(State())
    }

    private let shared = Shared()

    /// Asks for a stream.
    ///
    /// - Parameters:
    ///   - path: where it is.
    ///   - port: the server's.
    ///   - fields: the request's headers.
    init(_ path: String, at port: Int, _ fields: [String: String]) {
        let request = RawConnection.request("GET", path, fields.map { ($0.key, $0.value) })
        Thread.detachNewThread { [shared] in
            if let connection = try? RawConnection(to: port) {
                connection.send(request)
                reading: while !shared.state.withLock({ $0.isLeft }) {
                    switch connection.receive(within: .milliseconds(20)) {
                    case .bytes(let bytes): shared.state.withLock { $0.bytes += bytes }
                    case .nothing: continue
                    case .end: break reading
                    }
                }
            }
            shared.state.withLock { $0.hasEnded = true }
        }
    }

    deinit { shared.state.withLock { $0.isLeft = true } }

    /// The answer's first lines, once they are there.
    var head: RawAnswer? {
        let bytes = shared.state.withLock { $0.bytes }
        return bytes.firstRange(of: Array("\r\n\r\n".utf8)).flatMap { RawAnswer.head(bytes[..<$0.lowerBound]) }
    }

    /// Whether the server closed the connection.
    var hasEnded: Bool { shared.state.withLock { $0.hasEnded } }

    /// Whether the stream came to its own end, and was not cut off.
    var isWhole: Bool { content.isWhole }

    /// The events so far.
    var events: [Event] {
        blocks.compactMap { block in
            var event = Event(data: "")
            for line in block.split(separator: "\n") {
                if line.hasPrefix("id: ") { event.id = String(line.dropFirst(4)) }
                if line.hasPrefix("event: ") { event.name = String(line.dropFirst(7)) }
                if line.hasPrefix("data: ") { event.data += String(line.dropFirst(6)) }
            }
            return event.name == nil && event.data.isEmpty ? nil : event
        }
    }

    /// The events' names so far.
    var names: [String] { events.compactMap(\.name) }

    /// Signs of life so far: comments, which clients skip.
    var comments: Int { blocks.count { $0.hasPrefix(":") } }

    private var blocks: [String] {
        // What follows the last empty line is not whole yet.
        Array(content.text.components(separatedBy: "\n\n").dropLast())
    }

    private var content: (text: String, isWhole: Bool) {
        let bytes = shared.state.withLock { $0.bytes }
        guard let end = bytes.firstRange(of: Array("\r\n\r\n".utf8)) else { return ("", false) }
        var content: [UInt8] = []
        let rest = RawAnswer.unchunked(bytes[end.upperBound...], into: &content)
        return (String(decoding: content, as: UTF8.self), rest != nil)
    }
}
