import Entitlements
import HTTPTypes
import Logging
import SignedTokens
import Telemetry
import TextFormats
import Transport

/// What became of an id in one environment.
enum AppStoreFound<Value: Sendable>: Sendable {
    case value(Value)
    /// The other environment may know it.
    case unknownHere
    case unknown
}

/// Sends single requests to the App Store, each with a token, and understands what it answers.
struct AppStoreRequester: Sendable {
    let configuration: AppStoreConfiguration
    private let proofs: AppStoreProofs
    private let tokens: AppStoreTokens
    let requester: StoreRequester
    private let gate: @Sendable (AppStoreEnvironment, AppStoreBudget) -> RequestPermit
    private let logger: Logger
    private let throttle = LogThrottle<ReadFailure.Code>()

    init(
        _ configuration: AppStoreConfiguration,
        _ proofs: AppStoreProofs,
        _ http: HTTPClient,
        _ gate: @escaping @Sendable (AppStoreEnvironment, AppStoreBudget) -> RequestPermit,
        _ logger: Logger,
        _ systemSeconds: @escaping @Sendable () -> Int64
    ) {
        self.configuration = configuration
        self.proofs = proofs
        self.gate = gate
        self.logger = logger
        tokens = AppStoreTokens(configuration, systemSeconds: systemSeconds)
        requester = StoreRequester(.appStore, AppStoreEndpoint.templates, http, logger, systemSeconds)
    }

    /// Asks for something that is known or not.
    ///
    /// What clients give us is unknown as well where the App Store takes it for no id at all.
    func ask<Value: Sendable>(
        _ endpoint: AppStoreEndpoint,
        in environment: AppStoreEnvironment,
        lane: Lane,
        purpose: StoreCall.Purpose,
        requests: inout Int,
        decode: ([UInt8]) throws(JSONFault) -> Value
    ) async throws(ReadFailure) -> AppStoreFound<Value> {
        try await send(endpoint, in: environment, lane: lane, purpose: purpose, requests: &requests) {
            answer throws(ReadFailure) in
            switch answer {
            case .content(let body): return .value(try decoded(body, decode))
            case .refused(.unknownHere, _): return .unknownHere
            case .refused(.unknown, _): return .unknown
            case .refused:
                guard purpose == .lookup else { throw ReadFailure(.rejected) }
                return .unknown
            }
        }
    }

    /// Asks for an id where it may be known: in production and, where that does not know it, in the sandbox.
    ///
    /// Until an app has been released production refuses every key: a key is bad only where the sandbox refuses it too.
    /// Where the sandbox takes it and does not know the id, the failure is `unavailable`. A known environment alone is
    /// asked. `nil` where no environment knows the id.
    func search<Value: Sendable>(
        _ endpoint: AppStoreEndpoint,
        in known: AppStoreEnvironment?,
        lane: Lane,
        purpose: StoreCall.Purpose,
        requests: inout Int,
        decode: ([UInt8]) throws(JSONFault) -> Value
    ) async throws(ReadFailure) -> (value: Value, environment: AppStoreEnvironment)? {
        var isRefused = false
        search: for environment in known.map({ [$0] }) ?? [.production, .sandbox] {
            let found: AppStoreFound<Value>
            do throws(ReadFailure) {
                found = try await ask(
                    endpoint,
                    in: environment,
                    lane: lane,
                    purpose: purpose,
                    requests: &requests,
                    decode: decode
                )
            } catch {
                guard error.code == .unauthorized, known == nil, environment == .production else { throw error }
                isRefused = true
                continue
            }
            switch found {
            case .value(let value): return (value, environment)
            case .unknown: break search
            case .unknownHere: continue
            }
        }
        guard !isRefused else { throw ReadFailure(.unavailable, store: .appStore) }
        return nil
    }

    /// Sends a request, and once more with a fresh token where the first is refused.
    ///
    /// A clock that is a second ahead of theirs suffices for a refusal. `requests` is raised by one for each request.
    func send<Value: Sendable>(
        _ endpoint: AppStoreEndpoint,
        in environment: AppStoreEnvironment,
        lane: Lane,
        purpose: StoreCall.Purpose,
        body: [UInt8]? = nil,
        requests: inout Int,
        read: (AppStoreAnswer) throws(ReadFailure) -> Value
    ) async throws(ReadFailure) -> Value {
        let base = configuration.base(environment)
        let permit = gate(environment, endpoint.budget)
        var refused: String?
        while true {
            let token = try tokens.token(insteadOf: refused)
            let call = StoreCall(
                endpoint: endpoint.index,
                request: HTTPRequest(
                    endpoint.method,
                    base,
                    path: base.path + endpoint.target,
                    sending: body == nil ? nil : "application/json",
                    bearer: token
                ),
                body: body,
                gate: permit,
                lane: lane,
                purpose: purpose
            )
            let value = try await requester.send(call, requests: &requests) { response throws(ReadFailure) -> Value? in
                // No word on our key yet: a fresh token decides.
                response.status == 401 && refused == nil ? nil : try read(AppStoreAnswer(response))
            }
            if let value { return value }
            refused = token
        }
    }

    // MARK: Signed texts

    /// Verifies a transaction of an answer; `nil` where it is not genuine, of another environment or another app's.
    func transaction(_ text: String, in environment: AppStoreEnvironment) async -> SignedTransaction? {
        do throws(ProofRefusal) {
            let transaction = try await proofs.transaction(text)
            guard transaction.environment == environment.rawValue else {
                throw ProofRefusal(.wrongEnvironment, "It is of another environment than was asked.")
            }
            guard transaction.bundleID == configuration.bundleID else {
                throw ProofRefusal(.wrongBundle, "It is about another app.")
            }
            return transaction
        } catch {
            tell(error)
            return nil
        }
    }

    /// Verifies the renewal info that came with a transaction; `nil` where it is not genuine, or about another line.
    func renewalInfo(_ text: String, of transaction: SignedTransaction) async -> SignedRenewalInfo? {
        do throws(ProofRefusal) {
            let renewal = try await proofs.renewalInfo(text)
            // It names no app: a genuine one of another app shows by the line alone.
            guard renewal.environment == transaction.environment,
                renewal.originalTransactionID == transaction.originalTransactionID
            else { throw ProofRefusal(.malformed, "The renewal info is about another line.") }
            return renewal
        } catch {
            tell(error)
            return nil
        }
    }

    private func tell(_ refusal: ProofRefusal) {
        guard let unsaid = throttle.leave(for: .malformed) else { return }
        logger.info(
            "store sent a signed text that does not count",
            metadata: [
                "store": "\(Store.appStore.rawValue)",
                "error.code": "\(refusal.code.rawValue)",
                "log.left_out": "\(unsaid)",
            ]
        )
    }
}
