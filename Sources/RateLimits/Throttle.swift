import Synchronization

/// Says at most once in an interval that something is due.
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
}
