import Synchronization

/// The share of their slots that background jobs may use, while users wait and while none does.
///
/// Background jobs use at most three quarters of the slots, and an eighth when the first restore comes, in any worker of the
/// process: their work shares a machine, and a user of one app waits for another app's background jobs as well. From then on
/// the time that this worker's restores spend in the process, without the stores' part, moves the share: quickly down while
/// it is long, slowly up while it is short. Other workers' times do not, as their databases may be slow.
package final class BackgroundShare: Sendable {
    /// When a restore was in flight last, in any worker of a process.
    package final class Restores: Sendable {
        private let last = Mutex<ContinuousClock.Instant?>(nil)

        package init() {}

        func note(at now: ContinuousClock.Instant) { last.withLock { $0 = max($0 ?? now, now) } }

        func areRecent(at now: ContinuousClock.Instant) -> Bool {
            last.withLock { $0.map { now - $0 <= BackgroundShare.memory } ?? false }
        }
    }

    /// The shares without restores, when the first restore comes, and at least.
    static let alone = 0.75
    private static let atFirst = 0.125
    private static let least = 1.0 / 32
    /// What a restore may take between its due time and its end, the stores' answers left out.
    private static let patience = Duration.milliseconds(15)
    /// How long after the last restore background jobs have all their slots again.
    fileprivate static let memory = Duration.seconds(1)

    private struct State {
        var share = atFirst
        var lastRestore: ContinuousClock.Instant?

        func isBesideRestores(at now: ContinuousClock.Instant) -> Bool {
            lastRestore.map { now - $0 <= memory } ?? false
        }

        mutating func noteRestore(at now: ContinuousClock.Instant) {
            if !isBesideRestores(at: now) { share = atFirst }
            lastRestore = now
        }
    }

    private let state = Mutex(State())
    private let all: Restores

    /// `all`: those of all workers of the process.
    package init(among all: Restores = Restores()) { self.all = all }

    /// The share of a moment; `nil`: no restore was in flight lately.
    func besideRestores(at now: ContinuousClock.Instant) -> Double? {
        let own = state.withLock { $0.isBesideRestores(at: now) ? $0.share : nil }
        return own ?? (all.areRecent(at: now) ? Self.atFirst : nil)
    }

    /// Notes that a restore is in flight.
    func noteRestore(at now: ContinuousClock.Instant) {
        all.note(at: now)
        state.withLock { $0.noteRestore(at: now) }
    }

    /// Notes what a restore took in this process, the stores' answers left out.
    package func restoreEnded(after time: Duration, at now: ContinuousClock.Instant = .now) {
        all.note(at: now)
        state.withLock { state in
            state.noteRestore(at: now)
            // Quick to yield and slow to come back, because users wait for restores.
            state.share =
                time > Self.patience ? max(Self.least, state.share * 0.95) : min(Self.alone, state.share + 0.001)
        }
    }

    /// How long a service rests after background work that takes no slot: as long as the work took, and up to four times as long
    /// while restores are slow; a second at most.
    package func rest(after work: Duration, at now: ContinuousClock.Instant = .now) -> Duration {
        min(work * (besideRestores(at: now).map { max(1, Self.atFirst / $0) } ?? 1), .seconds(1))
    }
}
