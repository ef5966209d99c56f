package import Entitlements
package import Logging
import Queue
import ServiceLifecycle

/// The gates of one worker: one for each limit of each store, with one breaker a store.
package struct StoreRateLimiters: Sendable {
    package struct Entry: Sendable {
        package var store: Store
        /// The name of the limit, as `rate_budget` has it.
        package var credential: String
        package var budget: RateBudget
        package var gate: StoreRateLimiter
    }

    package private(set) var entries: [Entry] = []

    private let logger: Logger

    /// - Parameter logger: hears of the breakers, and of what could not be written down.
    package init(logger: Logger) { self.logger = logger }

    /// Adds a limit.
    ///
    /// - Parameters:
    ///   - store: whose.
    ///   - credential: its name.
    ///   - budget: the shared bucket.
    ///   - breaker: the store's.
    /// - Returns: the gate, as the store clients take it.
    package mutating func add(
        _ store: Store,
        _ credential: String,
        budget: RateBudget,
        breaker: CircuitBreaker
    ) -> StoreRateLimiter {
        let gate = StoreRateLimiter(store, budget: budget, breaker: breaker, logger: logger)
        entries.append(Entry(store: store, credential: credential, budget: budget, gate: gate))
        return gate
    }

    /// Who waits for the tokens of the store that every user is read from; `nil`: there is no limit.
    package var occupancy: LimiterOccupancy? { entries.first { $0.store == .revenueCat }?.gate.occupancy }

    /// Writes down what was learned, and learns what other workers wrote.
    ///
    /// A store is one, however many limits it has: of what was learned since the last time, a failure is not hidden by
    /// what another of its endpoints answered.
    package func exchange(with health: StoreHealth) async {
        var news: [Store: StoreHealth.News] = [:]
        for entry in entries {
            guard let learned = await entry.gate.exchange() else { continue }
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

    package func exchange() async { await limiters.exchange(with: health) }

    package func run() async {
        await PeriodicService("limit exchange", .untilEnd, every: .seconds(1), logger: logger) {
            await exchange()
            return .idle
        }.run()
    }
}
