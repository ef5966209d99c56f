import Entitlements
import Synchronization

/// An access token, and until when we use it.
struct AccessToken: Hashable, Sendable {
    var text: String
    var goodUntil: ContinuousClock.Instant
}

extension AccessToken {
    /// The life of a token may have begun when it was asked for.
    init(_ granted: GrantedToken, sentAt: ContinuousClock.Instant) {
        text = granted.text
        // A token that lives for a few minutes only, as in tests, still serves for half of them.
        goodUntil = sentAt + .seconds(granted.expiresIn - min(Self.margin, granted.expiresIn / 2))
    }

    /// How long before its end a token is given up, in seconds.
    private static let margin: Int64 = 300
}

/// Keeps the access token and fetches a new one, once for all who wait.
///
/// A caller that finds no token fetches it in its own task; the others wait for that. Where the one who fetches is
/// called off or is not let through for reasons of its own, the next one takes over.
final class AccessTokens: Sendable {
    private enum Result: Sendable {
        case token(AccessToken)
        case failure(ReadFailure)
        /// Try again: no task fetches any more, or the waiting one is cancelled.
        case again
    }

    private struct State {
        var token: AccessToken?
        var isFetching = false
        var waiting: [UInt64: CheckedContinuation<Result, Never>] = [:]
        var nextID: UInt64 = 0
    }

    private let state = Mutex(State())
    private let now: @Sendable () -> ContinuousClock.Instant

    init(now: @escaping @Sendable () -> ContinuousClock.Instant = { .now }) { self.now = now }

    /// The token in use, or a new one that `fetch` asks for.
    ///
    /// All who waited for it get what `fetch` throws; `interrupted` where the caller's task is cancelled.
    func token(_ fetch: () async throws(ReadFailure) -> AccessToken) async throws(ReadFailure) -> AccessToken {
        while true {
            let (token, isOurs) = state.withLock { state -> (AccessToken?, Bool) in
                if let token = state.token, token.goodUntil > now() { return (token, false) }
                state.token = nil
                guard !state.isFetching else { return (nil, false) }
                state.isFetching = true
                return (nil, true)
            }
            if let token { return token }
            if isOurs {
                do throws(ReadFailure) {
                    let token = try await fetch()
                    finish(.token(token))
                    return token
                } catch {
                    finish(Self.isOwn(error.code) ? .again : .failure(error))
                    throw error
                }
            }
            switch await wait() {
            case .token(let token): return token
            case .failure(let failure): throw failure
            case .again: if Task.isCancelled { throw ReadFailure(.interrupted) }
            }
        }
    }

    /// Forgets a token that was refused; a newer one stays.
    func drop(_ token: AccessToken) {
        state.withLock { if $0.token == token { $0.token = nil } }
    }

    /// How many tasks wait for a token that another one fetches.
    var waitingCount: Int { state.withLock { $0.waiting.count } }

    /// Failures of the one who fetches, which say nothing to the others: theirs may be another lane.
    private static func isOwn(_ code: ReadFailure.Code) -> Bool {
        code == .interrupted || code == .breakerOpen || code == .budgetExhausted
    }

    private func finish(_ result: Result) {
        let waiting = state.withLock { state in
            state.isFetching = false
            if case .token(let token) = result { state.token = token }
            defer { state.waiting = [:] }
            return state.waiting.values
        }
        for continuation in waiting { continuation.resume(returning: result) }
    }

    private func wait() async -> Result {
        let id = state.withLock { state in
            state.nextID += 1
            return state.nextID
        }
        return await withTaskCancellationHandler {
            await withCheckedContinuation { continuation in
                let isWaiting = state.withLock { state in
                    // The fetch may have ended meanwhile, and a cancellation that came before finds no task to wake.
                    guard state.isFetching, !Task.isCancelled else { return false }
                    state.waiting[id] = continuation
                    return true
                }
                if !isWaiting { continuation.resume(returning: .again) }
            }
        } onCancel: {
            state.withLock { $0.waiting.removeValue(forKey: id) }?.resume(returning: .again)
        }
    }
}
