import Entitlements
import Synchronization

/// The public keys of a store by their names, fetched where they are not known and kept for a while.
///
/// Whoever writes a header can name any key, so a name that is not known leads to a request every two minutes at most.
/// Of several who ask at once one fetches, and the others wait for it. Where the fetch fails the keys that are known
/// serve on, for a day. A new set replaces the old one, so that withdrawn keys are gone.
final class KeySet: Sendable {
    /// Why there is no key.
    enum Miss: Error, Hashable {
        /// The set was fetched for this and has no such key.
        case unknown
        /// The set could not be had: the key may be in it.
        case unread(ReadFailure)
    }

    /// For so long a set is not fetched again without need.
    private static let freshness = Duration.seconds(3_600)
    /// For so long a set serves where it can't be fetched again.
    private static let endurance = Duration.seconds(86_400)
    /// The pause between two fetches of a set that is known already.
    private static let pause = Duration.seconds(120)
    /// The pause between two fetches while there is no set at all.
    private static let firstPause = Duration.seconds(1)

    private struct State {
        var keys: [String: VerificationKey] = [:]
        var fetchedAt: ContinuousClock.Instant?
        /// The last fetch that counts for the pause: the first one that succeeds does not.
        var triedAt: ContinuousClock.Instant?
        /// How often a set was had.
        var fetches = 0
        var isFetching = false
        var nextID = 0
        var waiting: [Int: CheckedContinuation<Void, Never>] = [:]
    }

    private enum Step {
        case found(VerificationKey)
        case unknown
        case fetch
        case wait
        case tooSoon(Duration)
    }

    private let store: Store
    private let now: @Sendable () -> ContinuousClock.Instant
    private let state = Mutex(State())

    /// Makes an empty set.
    ///
    /// - Parameters:
    ///   - store: whose keys these are.
    ///   - now: a clock that nobody sets.
    init(of store: Store, now: @escaping @Sendable () -> ContinuousClock.Instant = { .now }) {
        self.store = store
        self.now = now
    }

    /// Finds a key.
    ///
    /// - Parameters:
    ///   - name: the `kid` of a header.
    ///   - fetch: gets the whole set from the store.
    /// - Returns: the key of that name.
    /// - Throws: `Miss`.
    func key(
        _ name: String,
        fetch: () async throws(ReadFailure) -> [String: VerificationKey]
    ) async throws(Miss) -> VerificationKey {
        let before = state.withLock { $0.fetches }
        while true {
            switch step(name, fetchesBefore: before) {
            case .found(let key): return key
            case .unknown: throw .unknown
            case .tooSoon(let wait): throw .unread(ReadFailure(.unavailable, retryAfter: wait, store: store))
            case .wait:
                await fetchEnds()
                if Task.isCancelled { throw .unread(ReadFailure(.interrupted, store: store)) }
            case .fetch:
                do throws(ReadFailure) {
                    finish(.success(try await fetch()))
                } catch {
                    finish(.failure(error))
                    if let key = cached(name) { return key }
                    // Who was not asked is asked later; whatever the answer was, it says nothing about the key.
                    let code = error.treatment == .wait ? error.code : .unavailable
                    throw .unread(ReadFailure(code, retryAfter: error.retryAfter, store: store))
                }
            }
        }
    }

    private func step(_ name: String, fetchesBefore: Int) -> Step {
        let now = now()
        return state.withLock { state in
            let age = state.fetchedAt.map { now - $0 }
            let serves = age.map { $0 < Self.endurance } ?? false
            let pause = serves ? Self.pause : Self.firstPause
            let wait = state.triedAt.map { pause - (now - $0) } ?? .zero
            if serves, let age, let key = state.keys[name], age < Self.freshness || state.isFetching || wait > .zero {
                return .found(key)
            }
            if state.fetches > fetchesBefore, serves { return .unknown }
            if state.isFetching { return .wait }
            guard wait <= .zero else { return .tooSoon(wait) }
            state.isFetching = true
            return .fetch
        }
    }

    private func cached(_ name: String) -> VerificationKey? {
        let now = now()
        return state.withLock { state in
            guard let fetchedAt = state.fetchedAt, now - fetchedAt < Self.endurance else { return nil }
            return state.keys[name]
        }
    }

    private func finish(_ result: Result<[String: VerificationKey], ReadFailure>) {
        let now = now()
        let waiting = state.withLock { state in
            switch result {
            case .success(let keys):
                // The first set says nothing of keys that came later: the first strange name may ask for it again.
                let isFirst = state.fetchedAt.map { now - $0 >= Self.endurance } ?? true
                state.triedAt = isFirst ? nil : now
                state.keys = keys
                state.fetchedAt = now
                state.fetches += 1
            case .failure(let failure):
                if failure.treatment != .wait { state.triedAt = now }
            }
            state.isFetching = false
            defer { state.waiting = [:] }
            return state.waiting
        }
        for continuation in waiting.values { continuation.resume() }
    }

    private func fetchEnds() async {
        let id = state.withLock { state in
            state.nextID += 1
            return state.nextID
        }
        await withTaskCancellationHandler {
            await withCheckedContinuation { continuation in
                let goesOn = state.withLock { state in
                    if !state.isFetching || Task.isCancelled { return true }
                    state.waiting[id] = continuation
                    return false
                }
                if goesOn { continuation.resume() }
            }
        } onCancel: {
            state.withLock { $0.waiting.removeValue(forKey: id) }?.resume()
        }
    }
}
