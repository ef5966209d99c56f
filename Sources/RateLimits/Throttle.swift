import Synchronization

/// Lets one through in a while.
package final class Throttle: Sendable {
    private let interval: Duration
    private let last = Mutex<ContinuousClock.Instant?>(nil)

    package init(every interval: Duration) { self.interval = interval }

    package func isDue(at now: ContinuousClock.Instant = .now) -> Bool {
        last.withLock { last in
            if let last, now - last < interval { return false }
            last = now
            return true
        }
    }

    /// Nothing came of the turn that was just had.
    package func giveBack() { last.withLock { $0 = nil } }
}
