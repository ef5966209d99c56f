/// The names of the program's metrics, and what each of them tells.
///
/// Lower targets count under these names without importing this one; here they get their help texts. A counter's name ends
/// in `_total` and a timer's in `_seconds`: the registry adds the ending where it is missing.
package enum MetricNames {
    /// What every name begins with.
    package static let prefix = "entitlement_sync_"

    /// A name of ours.
    ///
    /// - Parameter subject: what is measured, in snake_case, with its base unit: `queue_oldest_seconds`.
    /// - Returns: the subject behind the prefix.
    package static func name(_ subject: String) -> String { prefix + subject }

    /// Series that were asked for and not kept; see ``Registry``.
    static let droppedSeries = name("metrics_dropped_series_total")

    /// Help texts by exposed name.
    package static let help: [String: String] = [
        droppedSeries: "Series that were not kept, because there are too many or their name has another type.",
        name("http_client_requests_total"): "Requests sent, by kind of host, status class and error.",
        name("http_client_request_duration_seconds"): "Time from sending a request to the end of its answer.",
        name("store_requests_total"): "Requests to stores, by store, endpoint and status class.",
        name("requests_per_read"): "Store requests that one read of a user took.",
    ]
}
