import Entitlements
import Foundation
import HTTPTypes
import Logging

/// Sends single requests: leave, answer, class, decoding, report.
struct RevenueCatRequester: Sendable {
    private let base: BaseURL
    private let project: String
    private let headers: HTTPFields
    private let http: StoreHTTP
    private let gate: RequestGate
    private let logger: Logger
    private let throttle = LogThrottle()
    private let systemSeconds: @Sendable () -> Int64
    let metrics: StoreMetrics
    let maxPages: Int

    init(
        _ configuration: RevenueCatConfiguration,
        http: StoreHTTP,
        gate: RequestGate,
        logger: Logger,
        systemSeconds: @escaping @Sendable () -> Int64
    ) {
        base = configuration.base
        project = configuration.base.path + "/projects/" + PercentCoding.encode(configuration.projectID)
        maxPages = configuration.maxPages
        var authorization = HTTPField(name: .authorization, value: "Bearer \(configuration.apiKey)")
        authorization.indexingStrategy = .disallow
        var headers: HTTPFields = [.accept: "application/json"]
        headers.append(authorization)
        self.headers = headers
        self.http = http
        self.gate = gate
        self.logger = logger
        self.systemSeconds = systemSeconds
        metrics = StoreMetrics(store: "revenuecat", endpoints: RevenueCatEndpoint.templates)
    }

    /// Why a request is sent, as far as its report depends on it.
    enum Purpose: Sendable {
        case reading
        /// The id comes from a client: whatever happens says little about the store, and must alarm nobody.
        case lookup
    }

    /// Asks for one page.
    ///
    /// - Parameters:
    ///   - endpoint: what to ask for.
    ///   - cursor: the id of the last item of the page before.
    ///   - lane: on whose behalf.
    ///   - purpose: why.
    ///   - requests: raised by one for a request that was sent.
    ///   - item: reads one element of the list.
    /// - Returns: the page; `nil` where RevenueCat answers that it does not know what was asked for.
    /// - Throws: why there is no page; nothing was sent where the gate said no.
    func page<Item: Sendable>(
        _ endpoint: RevenueCatEndpoint,
        after cursor: String? = nil,
        lane: Lane,
        purpose: Purpose = .reading,
        requests: inout Int,
        item: (inout JSONReader) throws(JSONFault) -> Item
    ) async throws(ReadFailure) -> WirePage<Item>? {
        try await gate.admit(lane)
        requests += 1
        let request = HTTPRequest(
            method: .get,
            scheme: base.scheme,
            authority: base.authority,
            path: project + endpoint.target(after: cursor),
            headerFields: headers
        )
        let response: StoreHTTPResponse
        let sentAt = ContinuousClock.now
        do throws(StoreHTTPFailure) {
            response = try await http.send(request, nil)
        } catch {
            metrics.countRequest(endpoint: endpoint.index, status: nil, took: .now - sentAt)
            let failure = ReadFailure(Self.codes[error.code] ?? .unavailable)
            report(failure, nil, endpoint, purpose)
            throw failure
        }
        metrics.countRequest(endpoint: endpoint.index, status: response.status, took: .now - sentAt)
        let answer = Answer(response, now: systemSeconds)
        switch answer.outcome {
        case .missing:
            report(nil, answer, endpoint, purpose)
            if answer.isDegraded { throw ReadFailure(.unavailable) }
            return nil
        case .failure(let code):
            let failure = ReadFailure(code, retryAfter: answer.retryAfter)
            report(failure, answer, endpoint, purpose)
            throw failure
        case .content:
            var page: WirePage<Item>
            do throws(JSONFault) {
                page = try decodePage(response.body, item: item)
            } catch {
                let failure = ReadFailure(.malformed)
                report(failure, answer, endpoint, purpose)
                throw failure
            }
            page.isDegraded = answer.isDegraded
            // One odd item is one customer's trouble: no word on the store's health, so the breaker hears of none.
            report(page.badItems == 0 ? nil : ReadFailure(.malformed), answer, endpoint, purpose, isOneItem: true)
            return page
        }
    }

    private static let codes: [StoreHTTPFailure.Code: ReadFailure.Code] = [
        .timeout: .timeout,
        .unavailable: .unavailable,
        .tooLarge: .malformed,
        .cancelled: .interrupted,
    ]

    private func report(
        _ failure: ReadFailure?,
        _ answer: Answer?,
        _ endpoint: RevenueCatEndpoint,
        _ purpose: Purpose,
        isOneItem: Bool = false
    ) {
        let isReading = purpose == .reading
        gate.report(
            StoreAnswer(
                // What an id of a client brings about is no word on the store's health, be it good or bad.
                status: isReading || failure?.code == .throttled ? answer?.status : nil,
                failure: isReading || failure?.code == .throttled ? failure?.code : nil,
                limit: answer?.limit,
                usage: answer?.usage,
                retryAfter: failure?.retryAfter,
                dateSkewSeconds: answer?.dateSkewSeconds,
                countsForBreaker: isReading && !isOneItem && failure.map { breakerFailures.contains($0.code) } ?? false
            )
        )
        guard let failure, let unsaid = throttle.leave(for: failure.code) else { return }
        logger.log(
            level: isReading ? level(of: failure.code) : .debug,
            "store gave no usable answer",
            metadata: [
                "store": "revenuecat",
                "error.code": "\(failure.code.rawValue)",
                "http.endpoint": "\(endpoint.template)",
                "http.status": "\(answer?.status.description ?? "none")",
                "http.request_id": "\(answer?.requestID ?? "none")",
                "log.left_out": "\(unsaid)",
            ]
        )
    }

    /// Failures that somebody has to look at; the rest show in the metrics.
    private func level(of code: ReadFailure.Code) -> Logger.Level {
        switch code {
        case .unauthorized, .rejected, .malformed, .unusableID: .info
        default: .debug
        }
    }
}

/// An answer's status and headers, read.
private struct Answer {
    var status: Int
    var outcome: AnswerClass
    var limit: Int?
    var usage: Int?
    var retryAfter: Duration?
    var dateSkewSeconds: Int64?
    /// The load-shedder answered, as it does in incidents: nothing may be taken away on its word.
    var isDegraded: Bool
    /// Names the request in RevenueCat's own logs; ours take it only in a harmless form.
    var requestID: String?

    private static let limitName = HTTPField.Name("RevenueCat-Rate-Limit-Current-Limit")
    private static let usageName = HTTPField.Name("RevenueCat-Rate-Limit-Current-Usage")
    private static let shedderName = HTTPField.Name("X-RevenueCat-Fortress")
    private static let requestIDName = HTTPField.Name("X-Request-Id")

    init(_ response: StoreHTTPResponse, now: () -> Int64) {
        func field(_ name: HTTPField.Name?) -> String? { name.flatMap { response.headers[$0] } }
        func count(_ name: HTTPField.Name?) -> Int? {
            guard let text = field(name), text.utf8.count <= 9, let value = Int(text), value >= 0 else { return nil }
            return value
        }
        status = response.status
        isDegraded = field(Self.shedderName)?.lowercased() == "true"
        let error = response.status == 200 ? nil : RevenueCatError(body: response.body)
        outcome = classify(status: response.status, error: error)
        limit = count(Self.limitName)
        usage = count(Self.usageName)
        let serverSeconds = field(.date).flatMap(HTTPDate.seconds)
        dateSkewSeconds = serverSeconds.map { $0 - now() }
        if case .failure = outcome {
            requestID = field(Self.requestIDName).flatMap(Self.harmless)
            // The body's milliseconds leave no doubt; the header once meant milliseconds and now means seconds.
            retryAfter =
                error?.backoffMs.map { .milliseconds($0) }
                ?? field(.retryAfter).flatMap { Self.wait($0, serverSeconds ?? now()) }
        }
    }

    /// Reads a `Retry-After`: seconds, or a date on the clock that `seconds` was read from.
    private static func wait(_ text: String, _ seconds: Int64) -> Duration? {
        if !text.isEmpty, text.utf8.count <= 12, text.utf8.allSatisfy({ (0x30...0x39).contains($0) }) {
            return Int64(text).map { .seconds($0) }
        }
        return HTTPDate.seconds(text).map { .seconds(max(0, $0 - seconds)) }
    }

    private static func harmless(_ text: String) -> String? {
        let isHarmless = text.utf8.allSatisfy { byte in
            byte == UInt8(ascii: "-") || Unicode.Scalar(byte).properties.isASCIIHexDigit || (0x41...0x7A).contains(byte)
        }
        return isHarmless && (1...64).contains(text.utf8.count) ? text : nil
    }
}
