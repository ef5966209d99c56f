import Foundation
import HTTPServing
import Synchronization

/// Whether requests can be served, as of the last second: callers need no token for it, so it must cost nothing.
package final class Readiness: Sendable {
    private static let lasts = Duration.seconds(1)

    private struct State {
        /// What the last probe showed; `false` until the first has ended.
        var isReady = false
        var until: ContinuousClock.Instant?
        var isProbing = false
    }

    private let probe: @Sendable () async -> Bool
    private let state = Mutex(State())

    package init(probe: @escaping @Sendable () async -> Bool) { self.probe = probe }

    /// What is known, or what a probe shows; one caller at a time probes, the others get what was known before.
    @Sendable package func isReady() async -> Bool {
        let known: Bool? = state.withLock { state in
            if state.isProbing || state.until.map({ $0 > .now }) ?? false { return state.isReady }
            state.isProbing = true
            return nil
        }
        if let known { return known }
        let isReady = await probe()
        state.withLock { $0 = State(isReady: isReady, until: .now + Self.lasts) }
        return isReady
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
