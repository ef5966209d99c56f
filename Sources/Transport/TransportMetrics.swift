import Metrics
import Synchronization
import Telemetry

/// Counts and times requests by the caller's label and by outcome.
final class TransportMetrics: Sendable {
    static let requests = "entitlement_sync_http_client_requests"

    static let duration = "entitlement_sync_http_client_request_duration"

    private struct Key: Hashable {
        var app: String?
        var target: String
        var outcome: String
    }

    private struct Instruments {
        var requests: Counter
        var duration: Timer
    }

    private let factory: any MetricsFactory
    private let instruments = Mutex<[Key: Instruments]>([:])

    init(factory: any MetricsFactory) { self.factory = factory }

    /// Records the end of one request: `outcome` is the status class of a response, such as `2xx`, or an error's code.
    func record(target: String?, outcome: String, elapsed: Duration) {
        let key = Key(app: AppScope.name, target: target ?? "other", outcome: outcome)
        // Making an instrument takes the backend's lock and allocates, so each is made once.
        let found = instruments.withLock { instruments in
            if let found = instruments[key] { return found }
            let dimensions = [("target", key.target), ("outcome", key.outcome)]
            let made = Instruments(
                requests: Counter(label: Self.requests, dimensions: dimensions, factory: factory),
                duration: Timer(label: Self.duration, dimensions: dimensions, factory: factory)
            )
            instruments[key] = made
            return made
        }
        found.requests.increment()
        let (seconds, attoseconds) = elapsed.components
        found.duration.recordNanoseconds(seconds * 1_000_000_000 + attoseconds / 1_000_000_000)
    }

    private static let classes = ["1xx", "2xx", "3xx", "4xx", "5xx"]

    /// The status class as a label, without building a string.
    static func outcome(status: Int) -> String {
        (100..<600).contains(status) ? classes[status / 100 - 1] : "other"
    }
}
