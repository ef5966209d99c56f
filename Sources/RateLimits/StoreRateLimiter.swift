package import Entitlements
package import Logging
package import StoreClients
import Synchronization

/// Decides for every request whether it may go out: the shared budget, the store's own waits, and the breaker.
package final class StoreRateLimiter: Sendable {
    private struct State {
        /// One for each share, so that waiting background requests do not delay restores.
        var caches: [RateBudget.Share: LocalTokenCache] = [:]
        /// How many requests wait for tokens.
        var waiting: [RateBudget.Share: Int] = [:]
        /// When sweeps had a token last.
        var servedBackgroundAt: ContinuousClock.Instant?
        var blockedUntil: ContinuousClock.Instant?
        var limit: Int?
        var usage: Int?
        var wait: Duration?
        var health = StoreHealth.News()
        var isDirty = false
        var usedAt: ContinuousClock.Instant?
    }

    private let store: Store
    private let budget: RateBudget
    private let breaker: CircuitBreaker
    private let logger: Logger
    private let state = Mutex(State())
    /// Waits beyond this are left to the queue.
    private let patience: Duration

    package init(
        _ store: Store = .revenueCat,
        budget: RateBudget,
        breaker: CircuitBreaker = CircuitBreaker(),
        patience: Duration = .seconds(20),
        logger: Logger
    ) {
        self.store = store
        self.budget = budget
        self.breaker = breaker
        self.patience = patience
        self.logger = logger
    }

    /// Whether the store fails and is left alone.
    package var isBreakerOpen: Bool { breaker.isOpen }

    /// The limiter as the store clients take it.
    package var permit: RequestPermit {
        RequestPermit(
            admit: { [self] lane throws(ReadFailure) in try await admit(lane) },
            report: { [self] answer in report(answer) }
        )
    }

    /// Background requests that wait for tokens, and how many may; `nil`: there is no limit.
    package var occupancy: LimiterOccupancy? {
        guard budget.perMinute > 0 else { return nil }
        return state.withLock { state in
            // The store may have said that its limit is lower.
            let perMinute = min(budget.perMinute, state.limit ?? budget.perMinute)
            let waiting = state.waiting[.sweep] ?? 0
            let isStarved = state.servedBackgroundAt.map { ContinuousClock.now - $0 > Self.starvation } ?? false
            return LimiterOccupancy(perMinute: perMinute, waiting: waiting, isStarved: waiting > 0 && isStarved)
        }
    }

    /// How long those who wait for sweeps' tokens have none before no others join them.
    private static let starvation = Duration.milliseconds(500)

    private static func share(of lane: Lane) -> RateBudget.Share {
        switch lane {
        case .restore: .restore
        case .event, .sweep: .sweep
        case .support: .support
        }
    }

    private func admit(_ lane: Lane) async throws(ReadFailure) {
        let clock = ContinuousClock()
        let deadline = clock.now + patience
        state.withLock { $0.usedAt = clock.now }
        if let wait = breaker.waitBeforeSending(at: clock.now) { throw ReadFailure(.breakerOpen, retryAfter: wait) }
        let share = Self.share(of: lane)
        state.withLock { $0.waiting[share, default: 0] += 1 }
        defer { state.withLock { $0.waiting[share, default: 0] -= 1 } }
        while true {
            // Without this, a request that was let through would ask the bucket again and again.
            guard !Task.isCancelled else { throw ReadFailure(.interrupted) }
            if let blocked = state.withLock({ $0.blockedUntil }), blocked > clock.now {
                guard blocked < deadline else { throw ReadFailure(.budgetExhausted, retryAfter: blocked - clock.now) }
                try await pause(blocked - clock.now)
                continue
            }
            guard budget.perMinute > 0 else { return }
            let step = state.withLock { $0.caches[share, default: newCache(share)].spend(at: clock.now) }
            switch step {
            case .go: return
            case .wait(let wait):
                guard clock.now + wait < deadline else { throw ReadFailure(.budgetExhausted, retryAfter: wait) }
                try await pause(min(wait, .seconds(1)))
            case .refill(let count): if await refill(count, share) { return }
            }
            guard clock.now < deadline else { throw ReadFailure(.budgetExhausted, retryAfter: .seconds(1)) }
        }
    }

    /// Small, so that a worker never sits on tokens that another needs.
    ///
    /// Background requests rest until the limit gives about ten more, 100 ms at most: those that a longer rest gathers go out
    /// all at once, and restores wait for them.
    private func newCache(_ share: RateBudget.Share) -> LocalTokenCache {
        let rest = min(Duration.milliseconds(100), .seconds(600.0 / Double(budget.perMinute)))
        return LocalTokenCache(largest: min(20, budget.perMinute / 60), rest: share == .sweep ? rest : .zero)
    }

    private func pause(_ duration: Duration) async throws(ReadFailure) {
        do { try await Task.sleep(for: duration) } catch { throw ReadFailure(.interrupted) }
    }

    /// Asks for tokens, the first of which is the caller's.
    private func refill(_ count: Int, _ share: RateBudget.Share) async -> Bool {
        let asked = ContinuousClock.now
        var (tokens, wait) = (0, Duration.milliseconds(500))
        do {
            let grant = try await budget.take(count, for: share)
            (tokens, wait) = (grant.tokens, grant.wait)
            state.withLock { state in
                if grant.isBlocked {
                    // What the store said to this process may not have been written down yet.
                    let until = ContinuousClock.now + grant.wait
                    state.blockedUntil = max(state.blockedUntil ?? until, until)
                }
                if share == .sweep, tokens > 0 { state.servedBackgroundAt = .now }
            }
        } catch {
            if Task.isCancelled {
                // Our own cancellation says nothing of the bucket: the next request asks.
                wait = .zero
            } else {
                logger.warning("the rate budget could not be read", metadata: ["error.code": "\(type(of: error))"])
            }
        }
        return state.withLock { $0.caches[share, default: newCache(share)].add(tokens, wait: wait, at: asked) }
    }

    private func report(_ answer: StoreAnswer) {
        let now = ContinuousClock.now
        // The answer says which failures are the store's; what ends a row of them is any usable answer.
        let isUsable = answer.failure == nil && (answer.status == 200 || answer.status == 404)
        if answer.countsForBreaker || isUsable {
            log(breaker.note(succeeded: !answer.countsForBreaker, at: now), after: answer)
        }
        state.withLock { state in
            if let limit = answer.limit { state.limit = limit }
            if let usage = answer.usage { state.usage = usage }
            if let elapsed = answer.elapsed {
                let seconds = elapsed / .seconds(1)
                state.health.latencySeconds = state.health.latencySeconds.map { 0.9 * $0 + 0.1 * seconds } ?? seconds
            }
            if let skew = answer.dateSkewSeconds { state.health.skewSeconds = Double(skew) }
            // The last answer counts. A lock or one odd item is one customer's trouble; what a client's id caused
            // is left out.
            if let failure = answer.failure, answer.concernsStore {
                state.health.error = failure.rawValue
            } else if answer.status != nil {
                state.health.hasAnswered = true
                state.health.error = nil
            }
            // With any status and any id: we send too many requests.
            if answer.failure == .throttled {
                let wait = min(answer.retryAfter ?? .seconds(1), .seconds(300))
                state.blockedUntil = max(state.blockedUntil ?? now, now + wait)
                state.wait = wait
            }
            state.isDirty = true
        }
    }

    private func log(_ change: CircuitBreaker.Change?, after answer: StoreAnswer) {
        switch change {
        case .opened(let pause, let failures):
            logger.warning(
                "circuit breaker opened",
                metadata: [
                    "store": "\(store.rawValue)", "error.code": "\(answer.failure?.rawValue ?? "none")",
                    "breaker.failures": "\(failures)", "breaker.pause_ms": "\(pause / .milliseconds(1))",
                ]
            )
        case .closed: logger.notice("circuit breaker closed", metadata: ["store": "\(store.rawValue)"])
        case nil: break
        }
    }

    /// Writes down what was learned of the limit, and learns what other workers wrote; called about once a second.
    ///
    /// - Returns: what was learned of the store; `nil` where there is nothing new.
    func exchange() async -> StoreHealth.News? {
        // A store has a limiter for each of its limits, most of them idle: those are not worth a query a second.
        guard store == .revenueCat || state.withLock({ $0.usedAt.map { $0 + .seconds(30) > .now } ?? false })
        else { return nil }
        let news = state.withLock { state -> State? in
            guard state.isDirty else { return nil }
            let copy = state
            state.isDirty = false
            state.wait = nil
            state.health.error = nil
            state.health.hasAnswered = false
            return copy
        }
        do {
            if let news { try await budget.note(limit: news.limit, usage: news.usage, wait: news.wait) }
            if let blocked = try await budget.blockedFor() {
                state.withLock { $0.blockedUntil = max($0.blockedUntil ?? .now, .now + blocked) }
            }
        } catch {
            if !Task.isCancelled {
                logger.warning("the rate budget could not be read", metadata: ["error.code": "\(type(of: error))"])
            }
        }
        return news?.health
    }
}

/// How many background requests wait for a store's tokens.
///
/// A restore of a user whose background job waits here would wait with it: as many background jobs wait for tokens as
/// keep the limit busy, and the others stay in the queue.
package struct LimiterOccupancy: Sendable, Hashable {
    /// How many may wait: what the limit serves within a quarter of a second, and two.
    package var most: Int
    package var waiting: Int

    /// `isStarved`: restores take all tokens: who waits does so for long, and one is enough to notice the end of it.
    init(perMinute: Int, waiting: Int, isStarved: Bool = false) {
        most = isStarved ? 1 : 2 + Int((RateBudget.sustained(perMinute: perMinute) / 240).rounded(.up))
        self.waiting = waiting
    }

    /// How many more may wait, where some of those who wait are not counted; below 1: none.
    ///
    /// `yielding`: how many readings that others need not wait for are on their way, wherever they are: of them no more
    /// are let to the limiter than fill half of the places.
    package func room(besides yielding: Int) -> Int { most - max(0, waiting - min(yielding, (most + 1) / 2)) }
}
