import Synchronization

/// Limits the worker's slots for background jobs while restores run.
///
/// The time that restores spend inside this process shows how busy the machine is. While it is short, background jobs may use all the
/// slots that they have without restores; when it is long, they yield until it is short again. The stores' time does not count.
final class BackgroundConcurrencyLimit: Sendable {
    /// What a restore may take between its due time and its end, the store's answer apart.
    private static let patience = Duration.milliseconds(15)
    /// How long after the last restore background jobs have all their slots again.
    private static let memory = Duration.seconds(1)
    /// The background's shares of all slots: without restores, when the first restore comes, and at least.
    private static let alone = 0.75
    private static let first = 0.125
    private static let least = 1.0 / 32

    private struct State {
        var share = BackgroundConcurrencyLimit.first
        var last: ContinuousClock.Instant?
    }

    private let state = Mutex(State())

    /// Notes what a restore took.
    func note(_ time: Duration, at now: ContinuousClock.Instant) {
        state.withLock { state in
            if Self.isOver(state.last, at: now) { state.share = Self.first }
            state.last = now
            // Quick to yield and slow to come back, because users wait for restores.
            state.share =
                time > Self.patience ? max(Self.least, state.share * 0.95) : min(Self.alone, state.share + 0.001)
        }
    }

    /// How many slots background jobs may use at a moment.
    ///
    /// - Parameters:
    ///   - concurrency: all slots.
    ///   - someoneWaits: restores are in flight.
    ///   - now: the moment.
    /// - Returns: one at least.
    func places(of concurrency: Int, someoneWaits: Bool, at now: ContinuousClock.Instant) -> Int {
        let share = state.withLock { state in
            guard Self.isOver(state.last, at: now) else { return state.share }
            return someoneWaits ? Self.first : Self.alone
        }
        return max(1, Int(Double(concurrency) * share))
    }

    /// How long to pause after background work.
    ///
    /// - Parameters:
    ///   - work: what it took.
    ///   - now: the moment.
    /// - Returns: as long as it took, and up to four times as long while restores are slow; a second at most.
    func pause(after work: Duration, at now: ContinuousClock.Instant) -> Duration {
        let share = state.withLock { Self.isOver($0.last, at: now) ? Self.first : $0.share }
        return min(work * max(1, Self.first / share), .seconds(1))
    }

    private static func isOver(_ last: ContinuousClock.Instant?, at now: ContinuousClock.Instant) -> Bool {
        last.map { now - $0 > memory } ?? true
    }
}
