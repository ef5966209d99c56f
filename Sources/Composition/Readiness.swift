import Foundation
package import HTTPServing
import Synchronization

/// Asks whether requests can be served, and keeps the answer for a second: the endpoint is open to everybody.
package final class ReadinessProbe: Sendable {
    private static let lasts = Duration.seconds(1)

    private struct State {
        /// What the last probe showed.
        var known: Readiness
        /// Whether requests could be served before.
        var wasReady: Bool
        var until: ContinuousClock.Instant?
        var isProbing = false
        /// Since when the database has been unavailable.
        var awaySince: ContinuousClock.Instant?
    }

    private let databaseWait: Duration
    private let probe: @Sendable () async -> Bool
    private let state: Mutex<State>

    /// `databaseWait` is how long requests wait for the database.
    ///
    /// `wasReady`: it is known that requests can be served, as after a start that reached the database.
    package init(databaseWait: Duration, wasReady: Bool, probe: @escaping @Sendable () async -> Bool) {
        self.databaseWait = databaseWait
        self.probe = probe
        state = Mutex(State(known: wasReady ? .ready : .notReady, wasReady: wasReady))
    }

    /// What is known, or what a probe shows; one caller at a time probes, the others get what was known before.
    @Sendable package func readiness() async -> Readiness {
        let known: Readiness? = state.withLock { state in
            if state.isProbing || state.until.map({ $0 > .now }) ?? false { return state.known }
            state.isProbing = true
            return nil
        }
        if let known { return known }
        let isReady = await probe()
        return state.withLock { [databaseWait] state in
            let now = ContinuousClock.now
            if isReady {
                (state.known, state.awaySince) = (.ready, nil)
            } else {
                if state.wasReady { state.awaySince = now }
                let isWaiting = state.awaySince.map { now - $0 < databaseWait } ?? false
                state.known = isWaiting ? .waiting : .notReady
            }
            state.wasReady = isReady
            state.until = now + Self.lasts
            state.isProbing = false
            return state.known
        }
    }
}

/// How many files and connections the system lets this process have.
package enum OpenFiles {
    /// What is kept for everything that is no connection of the API's: the admin address, the database, stores, files.
    private static let others = 256 + AdminServer.mostConnections

    /// Raises the limit as far as so many connections need it and the system allows; says how many there may be.
    package static func raise(for connections: Int) -> Int {
        var limit = rlimit()
        guard getrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit) == 0 else { return connections }
        let wanted = rlim_t(connections + others)
        if limit.rlim_cur < wanted {
            limit.rlim_cur = min(wanted, limit.rlim_max)
            guard setrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit) == 0 else { return connections }
        }
        return min(connections, max(16, Int(clamping: limit.rlim_cur) - others))
    }
}
