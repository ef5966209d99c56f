import Entitlements
import HTTPTypes
import Logging
@testable import StoreClients
import StoreSimulator
import Synchronization
import Testing
@testable import Transport

/// Answers in the shape of Google Play's reference; every value is invented.
enum PlayFixture {
    /// 2026-03-15T00:00:00Z.
    static let now = Instant(microseconds: 1_773_532_800_000_000)
    static let past = "2026-03-14T12:00:00Z"
    static let future = "2026-04-01T08:00:00Z"

    /// A member to be changed: JSON text, or `nil` to leave it out.
    typealias Changes = [String: String?]

    static func item(_ changes: Changes = [:]) -> String {
        object(
            [
                ("productId", #""pro""#),
                ("expiryTime", "\"\(future)\""),
                ("latestSuccessfulOrderId", #""GPA.1111-2222-3333-44444..1""#),
                ("autoRenewingPlan", #"{"autoRenewEnabled":true}"#),
                ("offerDetails", #"{"basePlanId":"monthly"}"#),
            ],
            changes
        )
    }

    static func subscription(_ state: String, items: [String] = [item()], _ changes: Changes = [:]) -> String {
        object(
            [
                ("kind", #""androidpublisher#subscriptionPurchaseV2""#),
                ("startTime", #""2026-03-01T08:00:00.123Z""#),
                ("subscriptionState", "\"SUBSCRIPTION_STATE_\(state)\""),
                ("acknowledgementState", #""ACKNOWLEDGEMENT_STATE_ACKNOWLEDGED""#),
                ("lineItems", "[\(items.joined(separator: ","))]"),
            ],
            changes
        )
    }

    static func product(_ changes: Changes = [:]) -> String {
        object(
            [
                ("kind", #""androidpublisher#productPurchaseV2""#),
                ("orderId", #""GPA.5555-6666-7777-88888""#),
                ("purchaseStateContext", #"{"purchaseState":"PURCHASED"}"#),
                ("acknowledgementState", #""ACKNOWLEDGEMENT_STATE_ACKNOWLEDGED""#),
                ("purchaseCompletionTime", #""2026-03-01T08:00:00Z""#),
                ("productLineItem", #"[{"productId":"lifetime","productOfferDetails":{"quantity":1}}]"#),
            ],
            changes
        )
    }

    static func error(_ status: Int, _ reason: String) -> String {
        #"{"error":{"code":\#(status),"message":"m","errors":[{"message":"m","domain":"androidpublisher","#
            + #""reason":"\#(reason)"}]}}"#
    }

    /// What a state of a subscription comes to, without asking anybody.
    static func observation(_ body: String, token: String = "tok", lineage: [String]? = nil) throws -> Observation? {
        try SubscriptionPurchase(Array(body.utf8)).observations(token: token, lineage: lineage ?? [token], at: now)
            .first
    }

    private static func object(_ members: [(String, String)], _ changes: Changes) -> String {
        var members = members
        for (name, value) in changes.sorted(by: { $0.key < $1.key }) {
            let index = members.firstIndex { $0.0 == name }
            if let index { members.remove(at: index) }
            if let value { members.insert((name, value), at: index ?? members.count) }
        }
        return "{" + members.map { "\"\($0)\":\($1)" }.joined(separator: ",") + "}"
    }
}

/// A Google Play made of prepared answers, and gates that write down what they hear.
final class FakePlay: Sendable {
    private struct State {
        var answers: [String: [Result<HTTPClientResponse, HTTPClientFailure>]] = [:]
        var requests: [HTTPRequest] = []
        var bodies: [String] = []
        var admitted: [GooglePlayBudget] = []
        var reports: [StoreAnswer] = []
        var tokensGiven = 0
    }

    private let state = Mutex(State())

    static let base = "/androidpublisher/v3/applications/com.example.app"
    static func subscription(_ token: String) -> String { "/purchases/subscriptionsv2/tokens/\(token)" }
    static func product(_ token: String) -> String { "/purchases/productsv2/tokens/\(token)" }
    static let token = "/token"

    /// Prepares the next answer to a target below the app; the last one repeats.
    func on(_ target: String, _ status: Int = 200, _ body: String = "", headers: HTTPFields = [:]) {
        let response = HTTPClientResponse(status: status, headers: headers, body: Array(body.utf8))
        state.withLock { $0.answers[target, default: []].append(.success(response)) }
    }

    func on(_ target: String, fails code: HTTPClientFailure.Code) {
        state.withLock { $0.answers[target, default: []].append(.failure(HTTPClientFailure(code))) }
    }

    var requests: [HTTPRequest] { state.withLock { $0.requests } }
    var bodies: [String] { state.withLock { $0.bodies } }
    var admitted: [GooglePlayBudget] { state.withLock { $0.admitted } }
    var reports: [StoreAnswer] { state.withLock { $0.reports } }
    /// What was asked for, below the app, in order; requests for access tokens are `/token`.
    var targets: [String] { requests.map(Self.target) }
    /// The same without those for access tokens.
    var reads: [String] { targets.filter { $0 != Self.token } }

    private static func target(_ request: HTTPRequest) -> String {
        let path = request.path ?? ""
        return path.hasPrefix(base) ? String(path.dropFirst(base.count)) : path
    }

    var http: HTTPClient {
        HTTPClient { request, body throws(HTTPClientFailure) in
            let target = Self.target(request)
            let answer = self.state.withLock { state -> Result<HTTPClientResponse, HTTPClientFailure> in
                state.requests.append(request)
                state.bodies.append(String(decoding: body ?? [], as: UTF8.self))
                guard var answers = state.answers[target], let answer = answers.first else {
                    if target == Self.token {
                        state.tokensGiven += 1
                        let text =
                            #"{"access_token":"ya29.\#(state.tokensGiven)","expires_in":3599,"token_type":"Bearer"}"#
                        return .success(HTTPClientResponse(status: 200, body: Array(text.utf8)))
                    }
                    let text = PlayFixture.error(404, "purchaseTokenNotFound")
                    return .success(HTTPClientResponse(status: 404, body: Array(text.utf8)))
                }
                if answers.count > 1 { answers.removeFirst() }
                state.answers[target] = answers
                return answer
            }
            return try answer.get()
        }
    }

    func gate(_ budget: GooglePlayBudget) -> RequestPermit {
        RequestPermit(
            admit: { _ throws(ReadFailure) in self.state.withLock { $0.admitted.append(budget) } },
            report: { answer in self.state.withLock { $0.reports.append(answer) } }
        )
    }

    func client(
        http: HTTPClient? = nil,
        logger: Logger = Logger(label: "test") { _ in SwiftLogNoOpLogHandler() }
    ) throws -> GooglePlayClient {
        GooglePlayClient(
            configuration: try GooglePlayConfiguration(
                serviceAccount: StoreSimulator.googleServiceAccount,
                packageName: "com.example.app"
            ),
            http: http ?? self.http,
            gate: { self.gate($0) },
            logger: logger,
            systemSeconds: { 1_773_532_800 }
        )
    }

    func read(
        _ tokens: String...,
        known: Set<String> = [],
        isFromClient: Bool = false
    ) async throws -> GooglePlayReading {
        let query = GooglePlayQuery(
            tokens: tokens,
            known: known,
            askedAt: PlayFixture.now,
            isFromClient: isFromClient
        )
        return try await client().read(query)
    }
}

extension Observation {
    /// The values of its identifiers of one kind, sorted.
    func names(_ kind: String) -> [String] { identifiers.filter { $0.kind == kind }.map(\.value) }
}
