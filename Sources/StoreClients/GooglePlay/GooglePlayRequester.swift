import Entitlements
import HTTPTypes
import Logging
import SignedTokens
import TextFormats
import Transport

/// What Google said where its answer is no failure.
enum GooglePlaySaid: Sendable {
    case content([UInt8])
    /// There is no such purchase.
    case unknown
    /// Google will not tell about it any more.
    case gone
    /// The purchase is in another state than the request is for; for any other request a failure.
    case conflict(ReadFailure.Code)
}

extension GooglePlaySaid {
    /// What a purchase, an order or a list is read from; an absence is `nil`, and a conflict fails what only reads.
    func read<Value>(_ decode: ([UInt8]) throws(JSONFault) -> Value) throws(ReadFailure) -> Value? {
        switch self {
        case .content(let body): return try decoded(body, decode)
        case .unknown, .gone: return nil
        case .conflict(let code): throw ReadFailure(code)
        }
    }
}

/// Sends single requests in the name of the service account.
struct GooglePlayRequester: Sendable {
    private let configuration: GooglePlayConfiguration
    var packageName: String { configuration.packageName }
    private let prefix: String
    let requester: StoreRequester
    private let gate: @Sendable (GooglePlayBudget) -> RequestPermit
    private let tokens = AccessTokens()
    private let systemSeconds: @Sendable () -> Int64

    init(
        _ configuration: GooglePlayConfiguration,
        _ http: HTTPClient,
        _ gate: @escaping @Sendable (GooglePlayBudget) -> RequestPermit,
        _ logger: Logger,
        _ systemSeconds: @escaping @Sendable () -> Int64
    ) {
        self.configuration = configuration
        prefix = configuration.base.path + "/androidpublisher/v3/applications/" + configuration.packageName
        requester = StoreRequester(.googlePlay, GooglePlayEndpoint.templates, http, logger, systemSeconds)
        self.gate = gate
        self.systemSeconds = systemSeconds
    }

    /// Sends a request, twice where the access token turns out to be good no more.
    ///
    /// `requests` is raised by one for each request that was sent, those for access tokens included.
    func send<Value: Sendable>(
        _ endpoint: GooglePlayEndpoint,
        lane: Lane,
        purpose: StoreCall.Purpose = .reading,
        requests: inout Int,
        read: (GooglePlaySaid) throws(ReadFailure) -> Value
    ) async throws(ReadFailure) -> Value {
        var isSecond = false
        let body = endpoint.body
        while true {
            let token = try await accessToken(lane: lane, requests: &requests)
            let call = StoreCall(
                endpoint: endpoint.index,
                request: HTTPRequest(
                    body == nil ? .get : .post,
                    configuration.base,
                    path: prefix + endpoint.target,
                    sending: body == nil ? nil : "application/json",
                    bearer: token.text
                ),
                body: body,
                gate: gate(endpoint.budget),
                lane: lane,
                purpose: purpose
            )
            let value = try await requester.send(call, requests: &requests) { response throws(ReadFailure) -> Value? in
                let error = (200...299).contains(response.status) ? nil : GooglePlayError(body: response.body)
                switch classify(status: response.status, error: error, purpose: purpose) {
                case .content: return try read(.content(response.body))
                case .unknown: return try read(.unknown)
                case .gone: return try read(.gone)
                case .conflict(let code): return try read(.conflict(code))
                case .failure(let code): throw ReadFailure(code)
                case .stale:
                    if isSecond { throw ReadFailure(.unauthorized) }
                    return nil
                }
            }
            if let value { return value }
            tokens.drop(token)
            isSecond = true
        }
    }

    // MARK: Access tokens

    private func accessToken(lane: Lane, requests: inout Int) async throws(ReadFailure) -> AccessToken {
        var sent = 0
        defer { requests += sent }
        return try await tokens.token { () async throws(ReadFailure) -> AccessToken in
            try await fetchToken(lane, &sent)
        }
    }

    private func fetchToken(_ lane: Lane, _ requests: inout Int) async throws(ReadFailure) -> AccessToken {
        guard let (request, body) = configuration.access.tokenRequest(at: systemSeconds()) else {
            throw ReadFailure(.unauthorized, store: .googlePlay)
        }
        let call = StoreCall(
            endpoint: GooglePlayEndpoint.tokenIndex,
            request: request,
            body: body,
            gate: gate(.token),
            lane: lane
        )
        let sentAt = ContinuousClock.now
        let granted = try await requester.send(call, requests: &requests) { response throws(ReadFailure) in
            try GoogleAccess.token(in: response)
        }
        return AccessToken(granted, sentAt: sentAt)
    }
}
