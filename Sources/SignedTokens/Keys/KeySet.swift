package import Entitlements
import Synchronization
import TextFormats

/// The public keys of a signer by their names, fetched where they are not known and kept for a while.
///
/// The writer of a header can name any key, so a name that is not known leads to a request once a pause at most.
/// Of several who ask at once one fetches, and the others wait for it. Where the fetch fails the keys that are known
/// serve on, for a day. A new set replaces the old one, so that withdrawn keys are gone.
package final class KeySet: Sendable {
    /// Why there is no key.
    package enum Miss: Error, Hashable {
        /// The set was fetched for this and has no such key.
        case unknown
        /// The set that is known has no such key, and it is too soon to fetch it again.
        case unasked(ReadFailure)
        /// The set could not be had: the key may be in it.
        case unread(ReadFailure)
    }

    /// A set as it was fetched.
    package struct Fetched: Sendable {
        var keys: [String: VerificationKey]
        /// For so long it is not fetched again without need.
        var freshFor = Duration.seconds(3_600)
    }

    /// For so long a set serves beyond its freshness where it can't be fetched again.
    private static let endurance = Duration.seconds(82_800)
    /// The pause between two fetches while there is no set at all.
    private static let firstPause = Duration.seconds(1)

    private struct State {
        var keys: [String: VerificationKey] = [:]
        var freshUntil: ContinuousClock.Instant?
        /// The last fetch that counts for the pause: the first one that succeeds does not.
        var triedAt: ContinuousClock.Instant?
        /// How often a set was had.
        var fetches = 0
        var isFetching = false
        var nextID = 0
        var waiting: [Int: CheckedContinuation<Void, Never>] = [:]

        func serves(at now: ContinuousClock.Instant) -> Bool { freshUntil.map { now < $0 + endurance } ?? false }
    }

    private enum Step {
        case found(VerificationKey)
        case unknown
        case fetch
        case wait
        case tooSoon(Duration, serves: Bool)
    }

    private let store: Store?
    /// The pause between two fetches of a set that is known already.
    private let pause: Duration
    private let now: @Sendable () -> ContinuousClock.Instant
    private let state = Mutex(State())

    /// Makes an empty set of a store's keys, or another signer's; `pause` is between two fetches of a known set.
    package init(
        of store: Store?,
        pause: Duration = .seconds(120),
        now: @escaping @Sendable () -> ContinuousClock.Instant = { .now }
    ) {
        self.store = store
        self.pause = pause
        self.now = now
    }

    /// Finds the key that a header names as its `kid`; `fetch` gets the whole set from the store.
    package func key(
        _ name: String,
        fetch: () async throws(ReadFailure) -> Fetched
    ) async throws(Miss) -> VerificationKey {
        let before = state.withLock { $0.fetches }
        while true {
            switch step(name, fetchesBefore: before) {
            case .found(let key): return key
            case .unknown: throw .unknown
            case .tooSoon(let wait, let serves):
                let failure = ReadFailure(.unavailable, retryAfter: wait, store: store)
                throw serves ? .unasked(failure) : .unread(failure)
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
            let serves = state.serves(at: now)
            let isFresh = state.freshUntil.map { now < $0 } ?? false
            let pause = serves ? pause : Self.firstPause
            let wait = state.triedAt.map { pause - (now - $0) } ?? .zero
            if serves, let key = state.keys[name], isFresh || state.isFetching || wait > .zero { return .found(key) }
            if state.fetches > fetchesBefore, serves { return .unknown }
            if state.isFetching { return .wait }
            guard wait <= .zero else { return .tooSoon(wait, serves: serves) }
            state.isFetching = true
            return .fetch
        }
    }

    private func cached(_ name: String) -> VerificationKey? {
        let now = now()
        return state.withLock { $0.serves(at: now) ? $0.keys[name] : nil }
    }

    private func finish(_ result: Result<Fetched, ReadFailure>) {
        let now = now()
        let waiting = state.withLock { state in
            switch result {
            case .success(let fetched):
                // The first set says nothing of keys that came later: the first strange name may ask for it again.
                state.triedAt = state.serves(at: now) ? now : nil
                state.keys = fetched.keys
                state.freshUntil = now + fetched.freshFor
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

extension KeySet.Fetched {
    /// Reads a JWK set, as ``JSONWebKeys`` does.
    ///
    /// - Throws: `malformed` for anything else.
    package init(_ body: [UInt8], takesUnnamed: Bool = false) throws(ReadFailure) {
        do throws(JSONFault) {
            self.init(keys: try JSONWebKeys.read(body, takesUnnamed: takesUnnamed))
        } catch { throw ReadFailure(.malformed) }
    }
}
