package import Logging
import Metrics
import Telemetry

/// Logs refused requests with their reasons, and no token, no secret and no name.
package final class SecurityLog: Sendable {
    /// Five lines a second for each kind: enough to follow one attempt, and no flood.
    private let throttle = LogThrottle<String>(5)

    package init() {}

    /// Counts and logs that a request was refused because of its sender; endpoint and reason come from closed sets.
    package func refused(_ door: String, _ reason: String, _ logger: Logger) {
        Counter(
            label: "entitlement_sync_http_refusals_total",
            dimensions: [("door", door), ("reason", reason)]
        ).increment()
        guard let unsaid = throttle.leave(for: door + reason) else { return }
        logger.warning(
            "security: a request was refused",
            metadata: [
                "security.door": "\(door)", "security.reason": "\(reason)", "log.left_out": "\(unsaid)",
            ]
        )
    }
}
