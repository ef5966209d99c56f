import Synchronization

/// How many places those jobs have that nobody waits for, while somebody waits for others.
///
/// What restores take inside this process tells how busy the machine is: as long as that is little, sweeps may have all they
/// could have alone; where it is not, they yield until it is. What the stores take is nobody's fault here.
final class Courtesy: Sendable {
    /// What a restore may take between its due time and its end, the store's answer apart.
    private static let patience = Duration.milliseconds(15)
    /// How long after the last restore sweeps have the machine for themselves.
    private static let memory = Duration.seconds(1)
    /// Sweeps' shares of all places: alone, at the start of others, and at least.
    private static let alone = 0.75
    private static let first = 0.125
    private static let least = 1.0 / 32

    private struct State {
        var share = Courtesy.first
        var last: ContinuousClock.Instant?
    }

    private let state = Mutex(State())

    /// Notes what a restore took.
    func note(_ time: Duration, at now: ContinuousClock.Instant) {
        state.withLock { state in
            if Self.isOver(state.last, at: now) { state.share = Self.first }
            state.last = now
            // Quick to yield and slow to come back: it is people who would wait for the attempt.
            state.share =
                time > Self.patience ? max(Self.least, state.share * 0.95) : min(Self.alone, state.share + 0.001)
        }
    }

    /// Says how many places sweeps may have at the moment.
    ///
    /// - Parameters:
    ///   - concurrency: all places.
    ///   - someoneWaits: restores are held right now.
    ///   - now: the moment.
    /// - Returns: one at least.
    func places(of concurrency: Int, someoneWaits: Bool, at now: ContinuousClock.Instant) -> Int {
        let share = state.withLock { state in
            guard Self.isOver(state.last, at: now) else { return state.share }
            return someoneWaits ? Self.first : Self.alone
        }
        return max(1, Int(Double(concurrency) * share))
    }

    /// Says how long to leave the machine to others after work that nobody waits for.
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
