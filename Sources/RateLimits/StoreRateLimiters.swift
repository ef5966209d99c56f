package import Entitlements
package import Logging
import Queue
import ServiceLifecycle

/// The rate limiters of one worker: one for each limit of each store, with one circuit breaker a store.
package struct StoreRateLimiters: Sendable {
    package struct Entry: Sendable {
        package var store: Store
        /// The name of the limit, as `rate_budget` has it.
        package var credential: String
        package var budget: RateBudget
        package var limiter: StoreRateLimiter
    }

    package private(set) var entries: [Entry] = []

    private let logger: Logger

    /// The logger gets the breakers' changes, and what could not be written down.
    package init(logger: Logger) { self.logger = logger }

    /// Adds a limit of a store's: its name, the shared bucket, and the store's breaker.
    package mutating func add(
        _ store: Store,
        _ credential: String,
        budget: RateBudget,
        breaker: CircuitBreaker
    ) -> StoreRateLimiter {
        let limiter = StoreRateLimiter(store, budget: budget, breaker: breaker, logger: logger)
        entries.append(Entry(store: store, credential: credential, budget: budget, limiter: limiter))
        return limiter
    }

    /// Who waits for the tokens of the store that every user is read from; `nil`: there is no limit.
    ///
    /// Of several of its projects, which are all read for every user, the one with the lowest limit makes them wait.
    package var occupancy: LimiterOccupancy? {
        func limit(_ entry: Entry) -> Int { entry.budget.perMinute > 0 ? entry.budget.perMinute : .max }
        return entries.filter { $0.store == .revenueCat }.min { limit($0) < limit($1) }?.limiter.occupancy
    }
}

/// Shares with other workers what stores said of their limits and how they answer.
package struct LimitExchange: Service {
    private let limiters: StoreRateLimiters
    private let health: StoreHealth
    private let logger: Logger

    package init(_ limiters: StoreRateLimiters, health: StoreHealth, logger: Logger) {
        self.limiters = limiters
        self.health = health
        self.logger = logger
    }

    package func run() async {
        await PeriodicService("limit exchange", .untilEnd, every: .seconds(1), logger: logger) {
            await exchange()
            return .idle
        }.run()
    }

    /// Writes down what was learned, and learns what other workers wrote.
    ///
    /// A store is one, however many limits it has: of what was learned since the last time, a failure is not hidden by
    /// what another of its endpoints answered.
    package func exchange() async {
        var news: [Store: StoreHealth.News] = [:]
        for entry in limiters.entries {
            guard let learned = await entry.limiter.exchange() else { continue }
            news[entry.store] = news[entry.store]?.with(learned) ?? learned
        }
        for (store, learned) in news {
            do {
                try await health.note(store.rawValue, learned)
            } catch {
                guard !Task.isCancelled else { return }
                logger.warning(
                    "the store's health could not be written",
                    metadata: ["error.code": "\(type(of: error))"]
                )
            }
        }
    }
}
