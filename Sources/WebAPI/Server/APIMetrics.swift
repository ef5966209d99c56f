import HTTPTypes
import Hummingbird
import Metrics
import Synchronization
import Telemetry

/// What the API counts.
///
/// Handlers are kept: to find one by its labels costs more than to count. Labels come from closed sets.
enum APIMetrics {
    private struct Route {
        var time: Timer
        var answers: [Counter]
    }

    private struct Key: Hashable {
        let app = AppScope.name
        /// The route, or the source of an event.
        var name: String
    }

    private static let routes = Mutex<[Key: Route]>([:])
    private static let counters = Mutex<[Key: Counter]>([:])

    /// Counts an answered request, by the route's pattern and never by the path as it was sent.
    static func count(_ context: APIContext, _ response: Response, since began: ContinuousClock.Instant) {
        let key = Key(name: context.endpointPath ?? "none")
        let elapsed = ContinuousClock.now - began
        let place = min(max(response.status.code / 100, 1), 5) - 1
        routes.withLock { routes in
            let route = routes[key] ?? make(key.name)
            routes[key] = route
            route.answers[place].increment()
            route.time.record(duration: elapsed)
        }
    }

    private static func make(_ name: String) -> Route {
        Route(
            time: Timer(label: "entitlement_sync_http_request_duration_seconds", dimensions: [("route", name)]),
            answers: (1...5).map {
                Counter(
                    label: "entitlement_sync_http_requests_total",
                    dimensions: [("route", name), ("status", "\($0)xx")]
                )
            }
        )
    }

    static func accept(_ source: String) {
        let key = Key(name: source)
        counters.withLock { counters in
            let counter =
                counters[key]
                ?? Counter(label: "entitlement_sync_events_accepted_total", dimensions: [("source", source)])
            counters[key] = counter
            counter.increment()
        }
    }
}
