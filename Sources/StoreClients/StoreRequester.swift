import Entitlements
import HTTPTypes
import Logging
import Telemetry
import TextFormats
import Transport

/// One request to a store, and on whose behalf.
struct StoreCall: Sendable {
    /// Why a request is sent, as far as its report depends on it.
    enum Purpose: Sendable {
        case reading
        /// The id comes from a client: whatever happens says little about the store, and must raise no alarm.
        case lookup
        /// What our records hold is asked for in one of several apps, and may be another one's.
        case probe
        /// Something is to be done with a key of its own: what the store thinks of that key is no word on the others.
        case action

        /// Whether the id comes from our own records, so that the answer says something of the store.
        var isOfRecords: Bool { self == .reading || self == .probe }
    }

    /// Points into the store's route templates.
    var endpoint: Int
    var request: HTTPRequest
    var body: [UInt8]?
    var gate: RequestPermit
    var lane: Lane
    var purpose = Purpose.reading
}

/// What a store's headers tell of itself, where it says more than others.
struct StoreHeaders: Sendable {
    /// Requests a minute that the store allows, and those it counted in the current one.
    var limit: Int?
    var usage: Int?
    /// Names the request in the store's own logs, in a harmless form.
    var requestID: String?
}

/// Sends single requests to one store: leave, answer, reading, report.
struct StoreRequester: Sendable {
    private let store: Store
    private let endpoints: [String]
    private let http: HTTPClient
    private let logger: Logger
    private let systemSeconds: @Sendable () -> Int64
    private let headers: @Sendable (HTTPClientResponse) -> StoreHeaders
    private let throttle = LogThrottle<ReadFailure.Code>()
    private let metrics: StoreMetrics

    /// Makes a requester; `endpoints` are the store's route templates, for labels.
    ///
    /// The logger hears of failures; of no ids, keys and bodies. `headers` reads what the store tells of itself.
    init(
        _ store: Store,
        _ endpoints: [String],
        _ http: HTTPClient,
        _ logger: Logger,
        _ systemSeconds: @escaping @Sendable () -> Int64,
        headers: @escaping @Sendable (HTTPClientResponse) -> StoreHeaders = { _ in StoreHeaders() }
    ) {
        self.store = store
        self.endpoints = endpoints
        self.http = http
        self.logger = logger
        self.systemSeconds = systemSeconds
        self.headers = headers
        metrics = StoreMetrics(store: store.rawValue, endpoints: endpoints)
    }

    /// Notes how many requests one reading of a user took.
    func recordRead(requests: Int) { metrics.recordRead(requests: requests) }

    /// Sends a request; where the gate says no, nothing is sent.
    ///
    /// `requests` is raised by one for a request that was sent. `read` makes a value of the answer, or throws what it
    /// comes to; that an id is unknown is a value. `oddity` says what is odd about a usable value: one customer's
    /// trouble, and no word on the store's health.
    func send<Value>(
        _ call: StoreCall,
        requests: inout Int,
        oddity: (Value) -> ReadFailure.Code? = { _ in nil },
        read: (HTTPClientResponse) throws(ReadFailure) -> Value
    ) async throws(ReadFailure) -> Value {
        do throws(ReadFailure) { try await call.gate.admit(call.lane) } catch { throw named(error) }
        requests += 1
        let sentAt = ContinuousClock.now
        let response: HTTPClientResponse
        do throws(HTTPClientFailure) {
            response = try await http.send(call.request, call.body)
        } catch {
            metrics.countRequest(endpoint: call.endpoint, status: nil, took: .now - sentAt)
            let failure = named(ReadFailure(Self.codes[error.code] ?? .unavailable))
            report(failure, nil, call)
            throw failure
        }
        let elapsed = .now - sentAt
        metrics.countRequest(endpoint: call.endpoint, status: response.status, took: elapsed)
        do throws(ReadFailure) {
            let value = try read(response)
            report(oddity(value).map { ReadFailure($0) }, response, call, elapsed, isOddity: true)
            return value
        } catch {
            var failure = named(error)
            if failure.retryAfter == nil, let text = response.headers[.retryAfter] {
                failure.retryAfter = RetryAfter.wait(text, now: serverSeconds(response) ?? systemSeconds())
            }
            report(failure, response, call, elapsed)
            throw failure
        }
    }

    static let codes: [HTTPClientFailure.Code: ReadFailure.Code] = [
        .timeout: .timeout,
        .unavailable: .unavailable,
        .tooLarge: .malformed,
        .cancelled: .interrupted,
    ]

    /// RevenueCat is meant where no store is named.
    private func named(_ failure: ReadFailure) -> ReadFailure {
        ReadFailure(failure.code, retryAfter: failure.retryAfter, store: store == .revenueCat ? nil : store)
    }

    private func serverSeconds(_ response: HTTPClientResponse) -> Int64? {
        response.headers[.date].flatMap(HTTPDate.seconds)
    }

    private func report(
        _ failure: ReadFailure?,
        _ response: HTTPClientResponse?,
        _ call: StoreCall,
        _ elapsed: Duration? = nil,
        isOddity: Bool = false
    ) {
        let headers = response.map(headers) ?? StoreHeaders()
        // What an id of a client brings about is no word on the store's health, be it good or bad; what the store
        // thinks of our key, and that we are too fast, no id brings about.
        let saysOfStore =
            call.purpose.isOfRecords || failure?.code == .throttled
            || failure?.code == .unauthorized && call.purpose == .lookup
        call.gate.report(
            StoreAnswer(
                status: saysOfStore ? response?.status : nil,
                failure: saysOfStore ? failure?.code : nil,
                limit: headers.limit,
                usage: headers.usage,
                retryAfter: failure?.retryAfter,
                dateSkewSeconds: response.flatMap(serverSeconds).map { $0 - systemSeconds() },
                elapsed: elapsed,
                countsForBreaker: call.purpose.isOfRecords && !isOddity
                    && failure.map { breakerFailures.contains($0.code) } ?? false
            )
        )
        guard let failure, let unsaid = throttle.leave(for: failure.code) else { return }
        logger.log(
            level: saysOfStore && Self.noteworthy.contains(failure.code) ? .info : .debug,
            "store gave no usable answer",
            metadata: [
                "store": "\(store.rawValue)",
                "error.code": "\(failure.code.rawValue)",
                "http.endpoint": "\(endpoints[call.endpoint])",
                "http.status": "\(response?.status.description ?? "none")",
                "http.request_id": "\(headers.requestID ?? "none")",
                "log.left_out": "\(unsaid)",
            ]
        )
    }

    /// Failures that an operator has to know; the rest show in the metrics.
    private static let noteworthy: Set<ReadFailure.Code> = [.unauthorized, .rejected, .malformed, .unusableID]
}

/// The failures that the breaker counts against the store.
///
/// Throttling belongs to the budget, a lock to one customer, a refusal to our own request; the rest never comes from a
/// store.
let breakerFailures: Set<ReadFailure.Code> = [.unavailable, .timeout, .malformed, .unauthorized]

/// Decodes a store's answer; what can't be decoded is `malformed`.
func decoded<Value>(_ body: [UInt8], _ decode: ([UInt8]) throws(JSONFault) -> Value) throws(ReadFailure) -> Value {
    do throws(JSONFault) { return try decode(body) } catch { throw ReadFailure(.malformed) }
}

/// A store's wish to be left alone for a while.
enum RetryAfter {
    /// More milliseconds since 1970 than seconds ever will be: the App Store names the moment so.
    private static let leastEpochMs: Int64 = 100_000_000_000

    /// Reads a `Retry-After`: seconds, a date, or milliseconds since 1970; `now` is by the clock of its writer.
    ///
    /// - Returns: the wait, uncapped; `nil` for anything else.
    static func wait(_ text: String, now: Int64) -> Duration? {
        guard !text.isEmpty, text.utf8.count <= 18, text.utf8.allSatisfy(\.isDigit) else {
            return HTTPDate.seconds(text).map { .seconds(max(0, $0 - now)) }
        }
        guard let number = Int64(text) else { return nil }
        return number < leastEpochMs ? .seconds(number) : .milliseconds(max(0, number - now * 1000))
    }
}

/// Settings with a secret in them, of which only the description may be seen.
package protocol RedactedSettings: CustomStringConvertible, CustomDebugStringConvertible, CustomReflectable {}

extension RedactedSettings {
    package var debugDescription: String { description }
    /// Keeps `dump` and string interpolation of enclosing values from reaching the secret.
    package var customMirror: Mirror { Mirror(self, children: ["description": description]) }
}
