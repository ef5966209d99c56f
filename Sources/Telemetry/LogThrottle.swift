import Synchronization

/// Limits log lines: one line of each kind within a time, with a count of the others.
package final class LogThrottle<Kind: Hashable & Sendable>: Sendable {
    private struct Entry {
        var lastLogged: ContinuousClock.Instant
        var suppressed = 0
    }

    private let kinds = Mutex<[Kind: Entry]>([:])

    private let interval: Duration

    package init(every interval: Duration = .seconds(1)) { self.interval = interval }

    /// Decides whether to write a line now.
    ///
    /// - Returns: how many lines of the kind were suppressed since the last; `nil`: suppress this one as well.
    package func leave(for kind: Kind, at now: ContinuousClock.Instant = .now) -> Int? {
        kinds.withLock { kinds in
            guard let entry = kinds[kind] else {
                kinds[kind] = Entry(lastLogged: now)
                return 0
            }
            guard now - entry.lastLogged >= interval else {
                kinds[kind]?.suppressed += 1
                return nil
            }
            kinds[kind] = Entry(lastLogged: now)
            return entry.suppressed
        }
    }
}
