import HTTPServing
import HTTPTypes
import Hummingbird
import NIOCore
import Synchronization

/// The memory that bodies may take, from their first byte until they are dealt with.
///
/// Users, strangers and stores have a part each, so that none of them takes the others', and so has each sender. Where a part is
/// used up, those bodies give way that have been arriving for longest: genuine ones arrive within moments.
final class BodyBudget: Sendable {
    enum Sender: Hashable, Sendable {
        /// A store that has shown who it is.
        case store
        case user(String)
        /// A caller who has shown nothing, by address.
        case stranger(String)

        fileprivate enum Part: Hashable { case stores, users, strangers }

        fileprivate var part: Part {
            switch self {
            case .store: .stores
            case .user: .users
            case .stranger: .strangers
            }
        }
    }

    /// In bytes.
    struct Shares: Sendable {
        var stores = 8 << 20
        var users = 40 << 20
        var strangers = 16 << 20
        var user = 8 << 20
        var stranger = 2 << 20

        fileprivate func share(of sender: Sender) -> (own: Int, ofAllLikeIt: Int) {
            switch sender {
            case .store: (stores, stores)
            case .user: (user, users)
            case .stranger: (stranger, strangers)
            }
        }
    }

    final class Body: Sendable {
        private let content: Mutex<ByteBuffer?>
        private let budget: BodyBudget
        private let number: Int

        /// What was read; nothing once it was given back.
        var bytes: ByteBuffer { content.withLock { $0 } ?? ByteBuffer() }

        fileprivate init(_ bytes: ByteBuffer, _ budget: BodyBudget, _ number: Int) {
            content = Mutex(bytes)
            self.budget = budget
            self.number = number
        }

        /// Says that nothing is left of it in memory.
        func giveBack() {
            content.withLock { $0 = nil }
            budget.forget(number)
        }

        deinit { budget.forget(number) }
    }

    private struct Entry {
        var sender: Sender
        var bytes = 0
        var began: ContinuousClock.Instant
        var isArriving = true
        var channel: any Channel
    }

    private struct State {
        var entries: [Int: Entry] = [:]
        var byPart: [Sender.Part: Int] = [:]
        var bySender: [Sender: Int] = [:]
        var nextNumber = 0

        mutating func add(_ bytes: Int, to number: Int) {
            guard let sender = entries[number]?.sender else { return }
            entries[number]?.bytes += bytes
            byPart[sender.part, default: 0] += bytes
            bySender[sender, default: 0] += bytes
        }

        mutating func remove(_ number: Int) -> Entry? {
            guard let entry = entries.removeValue(forKey: number) else { return nil }
            byPart[entry.sender.part, default: 0] -= entry.bytes
            let left = (bySender[entry.sender] ?? 0) - entry.bytes
            bySender[entry.sender] = left > 0 ? left : nil
            return entry
        }
    }

    private let shares: Shares
    /// How long a body may have been arriving before it gives way.
    private let grace: Duration
    private let security: SecurityLog
    private let state = Mutex(State())

    init(shares: Shares = .init(), grace: Duration = .seconds(2), security: SecurityLog) {
        self.shares = shares
        self.grace = grace
        self.security = security
    }

    /// Reads a body into memory, to be given back once it was dealt with.
    ///
    /// - Throws: `Problem` where the body is longer than `limit`, in bytes, or its share is used up; what else keeps it
    ///   from being read.
    func read(_ request: Request, upTo limit: Int, from sender: Sender, _ context: APIContext) async throws -> Body {
        let tooLong = Problem(.bodyTooLarge, "at most \(limit) bytes are taken")
        if let length = request.headers[.contentLength].flatMap({ Int($0) }), length > limit { throw tooLong }
        let number = state.withLock { state in
            state.nextNumber += 1
            state.entries[state.nextNumber] = Entry(sender: sender, began: .now, channel: context.channel)
            return state.nextNumber
        }
        do {
            var bytes = ByteBuffer()
            for try await part in request.body {
                guard bytes.readableBytes + part.readableBytes <= limit else { throw tooLong }
                if let reason = refuse(part.readableBytes, for: number, context) {
                    security.refused("bodies", reason, context)
                    throw Problem(.unavailable, "too many bodies are under way", retryAfterSeconds: 1)
                }
                bytes.writeImmutableBuffer(part)
            }
            state.withLock { $0.entries[number]?.isArriving = false }
            return Body(bytes, self, number)
        } catch {
            forget(number)
            throw error
        }
    }

    /// How many bytes are taken, by all senders together.
    var bytesTaken: Int { state.withLock { $0.byPart.values.reduce(0, +) } }

    /// Takes bytes; else says why: the share of the sender, or of all like it, is used up, or the body has given way.
    private func refuse(_ bytes: Int, for number: Int, _ context: APIContext) -> String? {
        let (refusal, gone) = state.withLock { [grace] state -> (String?, [Entry]) in
            guard let entry = state.entries[number] else { return ("gave_way", []) }
            let (sender, part) = (entry.sender, entry.sender.part)
            let share = shares.share(of: sender)
            guard (state.bySender[sender] ?? 0) + bytes <= share.own else { return ("share_used_up", []) }
            var gone: [Entry] = []
            while (state.byPart[part] ?? 0) + bytes > share.ofAllLikeIt {
                let oldest = state.entries.lazy.filter { other, entry in
                    other != number && entry.isArriving && entry.bytes > 0 && entry.sender.part == part
                        && .now - entry.began > grace
                }.map(\.key).min()
                guard let oldest, let entry = state.remove(oldest) else { return ("part_used_up", gone) }
                gone.append(entry)
            }
            state.add(bytes, to: number)
            return (nil, gone)
        }
        for entry in gone {
            security.refused("bodies", "gave_way", context)
            entry.channel.close(promise: nil)
        }
        return refusal
    }

    private func forget(_ number: Int) { state.withLock { _ = $0.remove(number) } }
}
