import Synchronization

/// Whether requests can be served, as of the last second: whoever asks for it needs no token, and must cost nothing.
package final class Readiness: Sendable {
    private static let lasts = Duration.seconds(1)

    private struct State {
        /// What the last look showed; nobody is ready before the first has ended.
        var isReady = false
        var until: ContinuousClock.Instant?
        var isLooking = false
    }

    private let look: @Sendable () async -> Bool
    private let state = Mutex(State())

    /// - Parameter look: finds out.
    package init(look: @escaping @Sendable () async -> Bool) { self.look = look }

    /// What is known, or what a look shows; one at a time looks, and the others are told what was known before.
    @Sendable package func isReady() async -> Bool {
        let known: Bool? = state.withLock { state in
            if state.isLooking || state.until.map({ $0 > .now }) ?? false { return state.isReady }
            state.isLooking = true
            return nil
        }
        if let known { return known }
        let isReady = await look()
        state.withLock { $0 = State(isReady: isReady, until: .now + Self.lasts) }
        return isReady
    }
}
