import Entitlements
import Synchronization

/// Keeps a store in trouble from flooding the log: one line a second for each kind of failure, with a count of the rest.
final class LogThrottle: Sendable {
    private struct Kind {
        var lastSaid: ContinuousClock.Instant
        var unsaid = 0
    }

    private let kinds = Mutex<[ReadFailure.Code: Kind]>([:])

    /// Asks whether to say it.
    ///
    /// - Returns: how many of the kind were left out since the last line; `nil`: leave this one out as well.
    func leave(for code: ReadFailure.Code, at now: ContinuousClock.Instant = .now) -> Int? {
        kinds.withLock { kinds in
            guard let kind = kinds[code] else {
                kinds[code] = Kind(lastSaid: now)
                return 0
            }
            guard now - kind.lastSaid >= .seconds(1) else {
                kinds[code]?.unsaid += 1
                return nil
            }
            kinds[code] = Kind(lastSaid: now)
            return kind.unsaid
        }
    }
}
