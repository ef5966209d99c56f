package import Entitlements
package import Logging
package import Storage

/// The gates of one worker: one for each limit of each store, with one breaker a store.
package struct StoreGates: Sendable {
    package struct Entry: Sendable {
        package var store: Store
        /// The name of the limit, as `rate_budget` has it.
        package var credential: String
        var budget: RateBudget
        var gate: StoreGate
    }

    package private(set) var entries: [Entry] = []

    package init() {}

    /// Adds a limit.
    ///
    /// - Parameters:
    ///   - store: whose.
    ///   - credential: its name.
    ///   - budget: the shared bucket.
    ///   - breaker: the store's.
    ///   - logger: hears of the breaker.
    /// - Returns: the gate, as the store clients take it.
    package mutating func add(
        _ store: Store,
        _ credential: String,
        budget: RateBudget,
        breaker: Breaker,
        logger: Logger
    ) -> StoreGate {
        let gate = StoreGate(store, budget: budget, breaker: breaker, logger: logger)
        entries.append(Entry(store: store, credential: credential, budget: budget, gate: gate))
        return gate
    }

    /// Writes down what was learned, and learns what other workers wrote.
    package func exchange(with health: StoreHealth) async {
        for entry in entries { await entry.gate.exchange(with: health) }
    }
}
