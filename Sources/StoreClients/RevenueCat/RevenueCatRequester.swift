import Entitlements
import HTTPTypes
import Logging
import SignedTokens
import TextFormats
import Transport

/// Asks RevenueCat for single pages.
struct RevenueCatRequester: Sendable {
    private let base: BaseURL
    private let project: String
    private let apiKey: String
    private let gate: RequestPermit
    let requester: StoreRequester
    let maxPages: Int

    init(
        _ configuration: RevenueCatConfiguration,
        _ http: HTTPClient,
        _ gate: RequestPermit,
        _ logger: Logger,
        _ systemSeconds: @escaping @Sendable () -> Int64
    ) {
        base = configuration.base
        project = configuration.base.path + "/projects/" + PercentCoding.encode(configuration.projectID)
        maxPages = configuration.maxPages
        apiKey = configuration.apiKey
        self.gate = gate
        requester = StoreRequester(
            .revenueCat,
            RevenueCatEndpoint.templates,
            http,
            logger,
            systemSeconds,
            headers: StoreHeaders.init(revenueCat:)
        )
    }

    /// Asks for one page, from behind the item that `cursor` names; `item` reads one element of the list.
    ///
    /// `nil` where RevenueCat answers that it does not know what was asked for.
    func page<Item: Sendable>(
        _ endpoint: RevenueCatEndpoint,
        after cursor: String? = nil,
        lane: Lane,
        purpose: StoreCall.Purpose = .reading,
        requests: inout Int,
        item: (inout JSONReader) throws(JSONFault) -> Item
    ) async throws(ReadFailure) -> WirePage<Item>? {
        let request = HTTPRequest(.get, base, path: project + endpoint.target(after: cursor), bearer: apiKey)
        let said = try await requester.send(
            StoreCall(endpoint: endpoint.index, request: request, gate: gate, lane: lane, purpose: purpose),
            requests: &requests,
            // One odd item is one customer's trouble: the breaker hears of none.
            oddity: { $0.page.map { $0.badItems > 0 } ?? false ? .malformed : nil },
            read: { response throws(ReadFailure) in try Self.read(response, item: item) }
        )
        // In an incident, that it does not know what was asked for means nothing.
        guard said.page != nil || !said.isDegraded else { throw ReadFailure(.unavailable) }
        return said.page
    }

    private static func read<Item: Sendable>(
        _ response: HTTPClientResponse,
        item: (inout JSONReader) throws(JSONFault) -> Item
    ) throws(ReadFailure) -> (page: WirePage<Item>?, isDegraded: Bool) {
        let error = response.status == 200 ? nil : RevenueCatError(body: response.body)
        switch classify(status: response.status, error: error) {
        case .missing: return (nil, response.isDegraded)
        // The body's milliseconds leave no doubt; the header once meant milliseconds and now means seconds.
        case .failure(let code): throw ReadFailure(code, retryAfter: error?.backoffMs.map { .milliseconds($0) })
        case .content:
            var page = try decoded(response.body) { body throws(JSONFault) in try decodePage(body, item: item) }
            page.isDegraded = response.isDegraded
            return (page, response.isDegraded)
        }
    }

    /// Has RevenueCat do something.
    ///
    /// Where it throws, the thing may have been done all the same, unless nothing was sent or it was refused.
    func post(_ endpoint: RevenueCatEndpoint, body: [UInt8], lane: Lane) async throws(ReadFailure) -> RevenueCatDone {
        let request = HTTPRequest(
            .post,
            base,
            path: project + endpoint.target(after: nil),
            sending: "application/json",
            bearer: apiKey
        )
        var requests = 0
        return try await requester.send(
            StoreCall(endpoint: endpoint.index, request: request, body: body, gate: gate, lane: lane, purpose: .action),
            requests: &requests
        ) { response throws(ReadFailure) in
            if response.status == 200 || response.status == 201 { return .done }
            let error = RevenueCatError(body: response.body)
            if response.status == 409, error?.type == "resource_already_exists" { return .exists }
            switch classify(status: response.status, error: error) {
            case .missing: return .missing
            case .failure(let code): throw ReadFailure(code, retryAfter: error?.backoffMs.map { .milliseconds($0) })
            case .content: throw ReadFailure(.malformed)
            }
        }
    }
}

/// What RevenueCat said of something it was to do.
enum RevenueCatDone: Sendable {
    case done, exists, missing
}

extension HTTPClientResponse {
    private static let shedderName = HTTPField.Name("X-RevenueCat-Fortress")

    /// The load-shedder answered, as it does in incidents: nothing may be taken away on its word.
    fileprivate var isDegraded: Bool { Self.shedderName.flatMap { headers[$0] }?.lowercased() == "true" }
}

extension StoreHeaders {
    private static let limitName = HTTPField.Name("RevenueCat-Rate-Limit-Current-Limit")
    private static let usageName = HTTPField.Name("RevenueCat-Rate-Limit-Current-Usage")
    private static let requestIDName = HTTPField.Name("X-Request-Id")

    /// Reads what RevenueCat tells of its limits and of the request.
    fileprivate init(revenueCat response: HTTPClientResponse) {
        func field(_ name: HTTPField.Name?) -> String? { name.flatMap { response.headers[$0] } }
        func count(_ name: HTTPField.Name?) -> Int? {
            guard let text = field(name), text.utf8.count <= 9, let value = Int(text), value >= 0 else { return nil }
            return value
        }
        limit = count(Self.limitName)
        usage = count(Self.usageName)
        requestID = field(Self.requestIDName).flatMap(Self.harmless)
    }

    private static func harmless(_ text: String) -> String? {
        let isHarmless = text.utf8.allSatisfy { byte in
            byte == UInt8(ascii: "-") || byte.isDigit || (0x41...0x7A).contains(byte)
        }
        return isHarmless && (1...64).contains(text.utf8.count) ? text : nil
    }
}
