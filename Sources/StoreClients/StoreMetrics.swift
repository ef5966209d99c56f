import Metrics

/// The class of an HTTP status, for labels.
enum StatusClass: Int, Sendable, CaseIterable {
    case none, informational, success, redirection, clientError, serverError

    /// - Parameter status: the HTTP status; `nil`, or one outside 100 to 599, has the class `none`.
    init(_ status: Int?) {
        self = status.flatMap { StatusClass(rawValue: (100..<600).contains($0) ? $0 / 100 : 0) } ?? .none
    }

    /// The label: `2xx` and the like, or `none`.
    var label: String { self == .none ? "none" : "\(rawValue)xx" }
}

/// The metrics of one store, made once: to find a handler by its labels costs more than to count.
///
/// Labels come from enums and route templates, never from ids.
struct StoreMetrics: Sendable {
    /// Requests sent, by store, status class and endpoint template.
    private let requests: [[Counter]]
    /// Time of requests, by store and status class.
    private let durations: [Timer]
    /// Requests one reading of a customer took, by store.
    private let perRead: Recorder

    /// Makes the handlers; a request names its route template by its index.
    init(store: String, endpoints: [String]) {
        requests = endpoints.map { endpoint in
            StatusClass.allCases.map { status in
                Counter(
                    label: "entitlement_sync_store_requests_total",
                    dimensions: [("store", store), ("status", status.label), ("endpoint", endpoint)]
                )
            }
        }
        durations = StatusClass.allCases.map { status in
            Timer(
                label: "entitlement_sync_store_request_duration_seconds",
                dimensions: [("store", store), ("status", status.label)]
            )
        }
        perRead = Recorder(label: "entitlement_sync_requests_per_read", dimensions: [("store", store)])
    }

    func countRequest(endpoint: Int, status: Int?, took duration: Duration) {
        let index = StatusClass(status).rawValue
        requests[endpoint][index].increment()
        let (seconds, attoseconds) = duration.components
        durations[index].recordNanoseconds(seconds * 1_000_000_000 + attoseconds / 1_000_000_000)
    }

    func recordRead(requests: Int) { perRead.record(requests) }
}
