import Synchronization

/// Stops asking a store that fails: opens after many failures in a row, lets a few probes through, closes on success.
package final class CircuitBreaker: Sendable {
    private struct State {
        var failures = 0
        var openedTimes = 0
        var opensUntil: ContinuousClock.Instant?
        var probes = 0
    }

    /// Failures in a row that open it.
    private static let threshold = 50
    /// Requests that may go out together once the pause is over.
    private static let probeLimit = 32
    private let state = Mutex(State())

    package init() {}

    /// Leave to send; `nil` means yes, else how long to wait.
    package func waitBeforeSending(at now: ContinuousClock.Instant) -> Duration? {
        state.withLock { state in
            guard let until = state.opensUntil else { return nil }
            guard now >= until else { return until - now }
            guard state.probes < Self.probeLimit else {
                // Probes may end without a result (a wait for the budget, a cancellation): in time others are sent.
                guard now >= until + .seconds(15) else { return .milliseconds(250) }
                state.opensUntil = now
                state.probes = 1
                return nil
            }
            state.probes += 1
            return nil
        }
    }

    /// What a result changed.
    package enum Change: Hashable, Sendable {
        /// No request is sent for a while, after so many failures in a row.
        case opened(Duration, failures: Int)
        /// It answers again.
        case closed
    }

    /// Learns how a request ended, but not errors on ids that clients supplied; returns what this changed.
    @discardableResult
    package func note(succeeded: Bool, at now: ContinuousClock.Instant) -> Change? {
        state.withLock { state in
            if succeeded {
                defer { state = State() }
                return state.opensUntil == nil ? nil : .closed
            }
            state.failures += 1
            guard state.failures >= Self.threshold else { return nil }
            if let until = state.opensUntil, now < until { return nil }
            state.openedTimes += 1
            let pause = min(Duration.milliseconds(500) * (1 << min(state.openedTimes - 1, 5)), .seconds(15))
            state.opensUntil = now + pause
            state.probes = 0
            return .opened(pause, failures: state.failures)
        }
    }

    package var isOpen: Bool { state.withLock { $0.opensUntil != nil } }
}
