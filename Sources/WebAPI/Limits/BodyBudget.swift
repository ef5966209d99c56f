import HTTPTypes
import Hummingbird
import NIOCore
import Synchronization

/// The memory that bodies may take while they arrive and are read.
///
/// All bodies together, those of strangers, and those of one sender each have a share, which is taken before the first byte: by
/// the announced length, or by the most that is taken. So whoever sends much without end is refused, and nobody else.
final class BodyBudget: Sendable {
    /// Whose body it is.
    enum Sender: Hashable, Sendable {
        /// A store that has shown who it is.
        case store
        case user(String)
        /// Whoever calls from an address.
        case stranger(String)
    }

    /// Bytes of all, of strangers together, of one user, of one stranger.
    struct Shares: Sendable {
        var all = 64 << 20
        var strangers = 16 << 20
        var user = 8 << 20
        var stranger = 2 << 20

        func share(of sender: Sender) -> Int {
            switch sender {
            case .store: all
            case .user: user
            case .stranger: stranger
            }
        }
    }

    private struct State {
        var all = 0
        var strangers = 0
        var bySender: [Sender: Int] = [:]
    }

    private let shares: Shares
    private let security: SecurityLog
    private let state = Mutex(State())

    init(shares: Shares = .init(), security: SecurityLog) {
        self.shares = shares
        self.security = security
    }

    /// Reads a body into memory and works on it.
    ///
    /// - Parameters:
    ///   - request: of which.
    ///   - limit: the longest body that is taken, in bytes.
    ///   - sender: whose share it is.
    ///   - context: names the request.
    ///   - work: reads the body; its memory is not given back before this ends.
    /// - Returns: what `work` returns.
    /// - Throws: `Problem` where the body is too long, or its share is used up; whatever keeps it from being read.
    func withBody<Value>(
        of request: Request,
        upTo limit: Int,
        from sender: Sender,
        _ context: APIContext,
        _ work: (ByteBuffer) async throws -> Value
    ) async throws -> Value {
        let announced = request.headers[.contentLength].flatMap { Int($0) }
        if let announced, announced > limit { throw Problem(.bodyTooLarge, "at most \(limit) bytes are taken") }
        let bytes = announced ?? limit
        guard take(bytes, for: sender) else {
            security.refused("bodies", sender.isStranger ? "strangers_share_used_up" : "share_used_up", context)
            throw Problem(.unavailable, "too many bodies are under way", retryAfterSeconds: 1)
        }
        defer { giveBack(bytes, for: sender) }
        return try await work(try await request.body.collect(upTo: limit))
    }

    private func take(_ bytes: Int, for sender: Sender) -> Bool {
        state.withLock { state in
            let own = (state.bySender[sender] ?? 0) + bytes
            let strangers = state.strangers + (sender.isStranger ? bytes : 0)
            guard state.all + bytes <= shares.all, strangers <= shares.strangers,
                own <= shares.share(of: sender)
            else { return false }
            state.all += bytes
            state.strangers = strangers
            state.bySender[sender] = own
            return true
        }
    }

    private func giveBack(_ bytes: Int, for sender: Sender) {
        state.withLock { state in
            state.all -= bytes
            if sender.isStranger { state.strangers -= bytes }
            let own = (state.bySender[sender] ?? bytes) - bytes
            state.bySender[sender] = own > 0 ? own : nil
        }
    }
}

extension BodyBudget.Sender {
    fileprivate var isStranger: Bool { if case .stranger = self { true } else { false } }
}
