import Synchronization

/// The share of their slots that background jobs may use, while users wait and while none does.
///
/// It is a process's: all its workers have the same one, as their work shares a machine, and a user of one app waits as long
/// for another app's background jobs as for those of the own.
///
/// Background jobs use at most three quarters of the slots, and an eighth when the first restore comes. From then on the
/// time that restores spend in this process, without the stores' part, moves the share: quickly down while it is long,
/// slowly up while it is short.
package final class BackgroundShare: Sendable {
    /// The shares without restores, when the first restore comes, and at least.
    static let alone = 0.75
    private static let atFirst = 0.125
    private static let least = 1.0 / 32
    /// What a restore may take between its due time and its end, the stores' answers left out.
    private static let patience = Duration.milliseconds(15)
    /// How long after the last restore background jobs have all their slots again.
    private static let memory = Duration.seconds(1)

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

    package init() {}

    /// The share of a moment; `nil`: no restore was in flight lately.
    func besideRestores(at now: ContinuousClock.Instant) -> Double? {
        state.withLock { $0.isBesideRestores(at: now) ? $0.share : nil }
    }

    /// Notes that a restore is in flight.
    func noteRestore(at now: ContinuousClock.Instant) { state.withLock { $0.noteRestore(at: now) } }

    /// Notes what a restore took in this process, the stores' answers left out.
    package func restoreEnded(after time: Duration, at now: ContinuousClock.Instant = .now) {
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
