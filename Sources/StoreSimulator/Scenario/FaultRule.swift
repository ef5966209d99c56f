/// A fault that requests run into.
///
/// A rule applies to requests that match `customer`, `endpoint` and `method` (absent: any). Of all rules that match,
/// each field is taken from the first rule that sets it, so that a global latency and a failing customer add up.
package struct FaultRule: ScenarioObject, Hashable {
    /// Any id of the customer.
    package var customer: String?
    /// The endpoint's short name, such as `subscriptions` or `app_store.statuses`.
    package var endpoint: String?
    /// `GET`, `POST` or `DELETE`.
    package var method: String?
    /// How many matching requests pass unharmed before the fault begins.
    package var skip = 0
    /// How many matching requests it then hits; absent: all.
    package var times: Int?
    /// Every how manyeth matching request is hit; 1 is each.
    package var every = 1
    /// Delay before the answer; with `latencyMax`, drawn evenly between the two.
    package var latency: Span?
    /// Upper end of the delay's range.
    package var latencyMax: Span?
    /// HTTP status instead of the true answer; the request is not carried out unless `processed`.
    package var status: Int?
    /// The error object's `type`; the usual one of the status by default.
    package var errorType: String?
    /// The error object's `retryable`; the usual one of the status by default.
    package var retryable: Bool?
    /// Wait asked for with 423 and 429.
    package var backoff: Span?
    /// Whether a request answered by `status` is carried out all the same.
    package var processed = false
    /// What becomes of the body.
    package var body: BodyFault?
    /// Bytes of a `huge` body (default 50 MiB) or levels of a `deep` one (default 100000).
    package var size: Int?
    /// What becomes of the connection.
    package var connection: ConnectionFault?
    /// Bytes sent at a time, for a slowly dripping body.
    package var dripBytes: Int?
    /// Pause between two drips; 50 ms by default.
    package var dripEvery: Span?
    /// Whether `next_page` always names the same cursor.
    package var repeatCursor = false
    /// Added to the `Date` header; negative is slow.
    package var dateSkew: Moment?

    /// What becomes of the answer's body.
    package enum BodyFault: String, ScenarioWord {
        /// A web page, with the answer's status.
        case html
        /// No bytes.
        case empty
        /// The first half of the true JSON, with a matching length.
        case truncated
        /// Arrays within arrays, `size` levels.
        case deep
        /// Valid JSON of `size` bytes.
        case huge
    }

    /// What becomes of the connection.
    package enum ConnectionFault: String, ScenarioWord {
        /// Closed without an answer; the request is not carried out.
        case dropBefore = "drop_before"
        /// Closed in the middle of the body.
        case dropMidway = "drop_midway"
        /// Reset after the request was carried out, without an answer.
        case resetAfter = "reset_after"
    }

    /// Every store's endpoints by their short names.
    static let endpoints: [String] =
        RevenueCatEndpoint.allCases.map(\.rawValue) + AppStoreSimulation.endpoints + GooglePlaySimulation.endpoints
        + OnsideSimulation.endpoints + IdentitySimulation.endpoints

    package init() {}

    /// Makes a rule without any fault.
    package init(customer: String? = nil, endpoint: String? = nil, times: Int? = nil) {
        self.customer = customer
        self.endpoint = endpoint
        self.times = times
    }

    package static let fields: [ScenarioField<Self>] = [
        .optional("customer", \.customer), .optional("endpoint", \.endpoint),
        .optional("times", \.times, in: 1...1_000_000_000), .optional("method", \.method),
        .value("skip", \.skip, in: 0...1_000_000_000), .value("every", \.every, in: 1...1_000_000_000),
        .optional("latency", \.latency), .optional("latency_max", \.latencyMax),
        .optional("status", \.status, in: 200...599), .optional("error_type", \.errorType),
        .optional("retryable", \.retryable), .optional("backoff", \.backoff), .value("processed", \.processed),
        .optional("body", \.body), .optional("size", \.size, in: 1...1_073_741_824),
        .optional("connection", \.connection), .optional("drip_bytes", \.dripBytes, in: 1...1_048_576),
        .optional("drip_every", \.dripEvery), .value("repeat_cursor", \.repeatCursor),
        .optional("date_skew", \.dateSkew),
    ]

    package func check() throws {
        if let endpoint, !Self.endpoints.contains(endpoint) {
            let known = Self.endpoints.joined(separator: ", ")
            throw FieldFault(message: "is \"\(endpoint)\"; use one of \(known)", at: "endpoint")
        }
        if let latencyMax, latencyMax.milliseconds < (latency?.milliseconds ?? 0) {
            throw FieldFault(message: "is below `latency`; raise it", at: "latency_max")
        }
        let harmless =
            latency == nil && latencyMax == nil && status == nil && body == nil && connection == nil
            && dripBytes == nil && !repeatCursor && dateSkew == nil
        if harmless {
            throw FieldFault(
                message: "does nothing; add latency, status, body, connection, drip_bytes, repeat_cursor or date_skew"
            )
        }
    }
}
