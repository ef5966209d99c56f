import Synchronization

/// Limits log lines: so many of each kind within a time, with a count of the others.
package final class LogThrottle<Kind: Hashable & Sendable>: Sendable {
    private struct Entry {
        var began: ContinuousClock.Instant
        var logged = 0
        var suppressed = 0
    }

    private let kinds = Mutex<[Kind: Entry]>([:])
    private let most: Int
    private let interval: Duration

    package init(_ most: Int = 1, every interval: Duration = .seconds(1)) {
        self.most = most
        self.interval = interval
    }

    /// How many lines of the kind were suppressed since the last that was written; `nil`: suppress this one as well.
    package func leave(for kind: Kind, at now: ContinuousClock.Instant = .now) -> Int? {
        kinds.withLock { kinds in
            var entry = kinds[kind] ?? Entry(began: now)
            if now - entry.began >= interval { entry = Entry(began: now, suppressed: entry.suppressed) }
            defer { kinds[kind] = entry }
            guard entry.logged < most else {
                entry.suppressed += 1
                return nil
            }
            entry.logged += 1
            defer { entry.suppressed = 0 }
            return entry.suppressed
        }
    }
}
