import HTTPTypes
import Hummingbird
import Metrics

/// What the API counts.
enum APIMetrics {
    /// Counts an answered request.
    ///
    /// Labels come from closed sets: the route's pattern, never the path as it was sent.
    static func count(
        _ request: Request,
        _ context: APIContext,
        _ response: Response,
        since began: ContinuousClock.Instant
    ) {
        let route = context.endpointPath ?? "none"
        Counter(
            label: "entitlement_sync_http_requests_total",
            dimensions: [("route", route), ("status", "\(response.status.code / 100)xx")]
        ).increment()
        Timer(label: "entitlement_sync_http_request_duration_seconds", dimensions: [("route", route)])
            .record(duration: ContinuousClock.now - began)
    }

    /// Counts a store's event that is kept.
    static func accept(_ source: String) {
        Counter(label: "entitlement_sync_events_accepted_total", dimensions: [("source", source)]).increment()
    }

    /// Counts a request that was refused because of who sent it.
    static func refuse(_ door: String, _ reason: String) {
        Counter(
            label: "entitlement_sync_http_refusals_total",
            dimensions: [("door", door), ("reason", reason)]
        ).increment()
    }
}
