package import Logging
import Metrics
import Synchronization

/// Logs refused requests with their reasons, and no token, no secret and no name.
package final class SecurityLog: Sendable {
    private struct Kind {
        var second: ContinuousClock.Instant
        var said = 0
        var unsaid = 0
    }

    /// Lines a second for each kind: enough to follow one attempt, and no flood.
    private static let mostASecond = 5

    private let kinds = Mutex<[String: Kind]>([:])

    package init() {}

    /// Counts and logs that a request was refused because of who sent it.
    ///
    /// - Parameters:
    ///   - door: the endpoint, from a closed set.
    ///   - reason: a code from a closed set.
    ///   - logger: names the request, if there is one.
    package func refused(_ door: String, _ reason: String, _ logger: Logger) {
        Counter(
            label: "entitlement_sync_http_refusals_total",
            dimensions: [("door", door), ("reason", reason)]
        ).increment()
        guard let unsaid = leave(for: door + reason) else { return }
        logger.warning(
            "security: a request was refused",
            metadata: [
                "security.door": "\(door)", "security.reason": "\(reason)", "log.left_out": "\(unsaid)",
            ]
        )
    }

    /// How many were left out since the last line; `nil`: leave this one out as well.
    private func leave(for kind: String, at now: ContinuousClock.Instant = .now) -> Int? {
        kinds.withLock { kinds in
            var known = kinds[kind] ?? Kind(second: now)
            if now - known.second >= .seconds(1) { known = Kind(second: now, unsaid: known.unsaid) }
            defer { kinds[kind] = known }
            guard known.said < Self.mostASecond else {
                known.unsaid += 1
                return nil
            }
            known.said += 1
            defer { known.unsaid = 0 }
            return known.unsaid
        }
    }
}
