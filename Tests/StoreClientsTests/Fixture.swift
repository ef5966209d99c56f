import Entitlements
import HTTPTypes
import Logging
@testable import StoreClients
import Synchronization
import Testing
@testable import TextFormats
@testable import Transport

/// Answers in the shape of RevenueCat's reference; every value is invented.
enum Fixture {
    static let user = "kQ3vZr8mT2fXw1LdYp6sNb4HcJe7"
    static let anonymous = "$RCAnonymousID:0f1e2d3c4b5a69788796a5b4c3d2e1f0"

    /// A member of an item to be changed: JSON text, or `nil` to leave it out.
    typealias Changes = [String: String?]

    static func subscription(id: String = "sub4d5e6f7a8b", _ changes: Changes = [:]) -> String {
        object(
            [
                ("object", #""subscription""#), ("id", "\"\(id)\""), ("customer_id", "\"\(user)\""),
                ("original_customer_id", "\"\(user)\""), ("product_id", #""prod1122334455""#),
                ("starts_at", "1786000000000"), ("current_period_starts_at", "1788678400000"),
                ("current_period_ends_at", "1791356800000"), ("ends_at", "1791356800000"), ("gives_access", "true"),
                ("pending_payment", "false"), ("auto_renewal_status", #""will_renew""#), ("status", #""active""#),
                (
                    "total_revenue_in_usd",
                    #"{"currency":"USD","gross":19.98,"commission":2.99,"tax":3.4,"proceeds":13.59}"#
                ),
                ("presented_offering_id", "null"), ("entitlements", entitlements(["premium"])),
                ("environment", #""production""#), ("store", #""app_store""#),
                ("store_subscription_identifier", #""480001234567890""#), ("ownership", #""purchased""#),
                ("pending_changes", "null"), ("country", #""PT""#),
                ("management_url", #""https:\/\/apps.apple.com\/account\/subscriptions""#),
            ],
            changes
        )
    }

    static func purchase(id: String = "purc1a2b3c4d5e", _ changes: Changes = [:]) -> String {
        object(
            [
                ("object", #""purchase""#), ("id", "\"\(id)\""), ("customer_id", "\"\(user)\""),
                ("original_customer_id", "\"\(user)\""), ("product_id", #""prod5566778899""#),
                ("purchased_at", "1786000000000"), ("quantity", "1"), ("status", #""owned""#),
                ("presented_offering_id", "null"), ("entitlements", entitlements(["premium"])),
                ("environment", #""production""#), ("store", #""play_store""#),
                ("store_purchase_identifier", #""GPA.1234-5678-9012-34567""#), ("ownership", #""purchased""#),
                ("country", #""PT""#),
            ],
            changes
        )
    }

    static func entitlements(_ keys: [String], next: String = "null") -> String {
        page(
            keys.map { key in
                #"{"object":"entitlement","project_id":"proj0a1b2c3d","id":"entl-\#(key)","lookup_key":"\#(key)","#
                    + #""display_name":"Premium","created_at":1700000000000}"#
            },
            next: next
        )
    }

    static func aliases(_ ids: [String]) -> String {
        page(ids.map { #"{"object":"customer.alias","id":"\#($0)","created_at":1781000000000}"# })
    }

    /// A list of JSON texts; `next` is the text of `next_page`, left out where `nil`.
    static func page(_ items: [String], next: String? = "null") -> String {
        let tail = next.map { ",\"next_page\":\($0)" } ?? ""
        return #"{"object":"list","items":[\#(items.joined(separator: ","))],"url":"/v2/some/where"\#(tail)}"#
    }

    static func error(_ type: String, retryable: String = "false", backoff: String = "null") -> String {
        #"{"object":"error","type":"\#(type)","message":"m","retryable":\#(retryable),"backoff_ms":\#(backoff),"#
            + #""doc_url":"https://errors.rev.cat/x"}"#
    }

    private static func object(_ members: [(String, String)], _ changes: Changes) -> String {
        var members = members
        for (name, value) in changes.sorted(by: { $0.key < $1.key }) {
            members.removeAll { $0.0 == name }
            if let value { members.append((name, value)) }
        }
        return "{" + members.map { "\"\($0)\":\($1)" }.joined(separator: ",") + "}"
    }
}

/// A store made of prepared answers, and a gate that writes down what it hears.
final class FakeStore: Sendable {
    private struct State {
        var answers: [String: [Result<HTTPClientResponse, HTTPClientFailure>]] = [:]
        var requests: [HTTPRequest] = []
        var admitted: [Lane] = []
        var reports: [StoreAnswer] = []
        var refusal: (after: Int, ReadFailure)?
    }

    private let state = Mutex(State())

    static let project = "/v2/projects/proj0a1b2c3d"
    static let customer = "/customers/\(Fixture.user)"
    static let subscriptions = customer + "/subscriptions?limit=100"
    static let purchases = customer + "/purchases?limit=100"
    static func aliases(of id: String) -> String { "/customers/\(PercentCoding.encode(id))/aliases?limit=100" }

    /// Prepares the next answer to a target below the project; the last one repeats.
    func on(_ target: String, _ status: Int = 200, _ body: String = "", headers: HTTPFields = [:]) {
        let response = HTTPClientResponse(status: status, headers: headers, body: Array(body.utf8))
        state.withLock { $0.answers[target, default: []].append(.success(response)) }
    }

    func on(_ target: String, fails code: HTTPClientFailure.Code) {
        state.withLock { $0.answers[target, default: []].append(.failure(HTTPClientFailure(code))) }
    }

    /// Lets the gate refuse everything after some requests.
    func refuse(after count: Int, _ failure: ReadFailure) { state.withLock { $0.refusal = (count, failure) } }

    var requests: [HTTPRequest] { state.withLock { $0.requests } }
    var admitted: [Lane] { state.withLock { $0.admitted } }
    var reports: [StoreAnswer] { state.withLock { $0.reports } }
    /// What was asked for, below the project, in order.
    var targets: [String] { requests.map { String(($0.path ?? "").dropFirst(Self.project.count)) } }

    var http: HTTPClient {
        HTTPClient { request, _ throws(HTTPClientFailure) in
            let target = String((request.path ?? "").dropFirst(Self.project.count))
            let answer = self.state.withLock { state in
                state.requests.append(request)
                var answers = state.answers[target] ?? []
                let answer = answers.first
                if answers.count > 1 { answers.removeFirst() }
                state.answers[target] = answers
                return answer
            }
            guard let answer else {
                Issue.record("unexpected request: \(target)")
                throw HTTPClientFailure(.unavailable)
            }
            return try answer.get()
        }
    }

    var gate: RequestPermit {
        RequestPermit(
            admit: { lane throws(ReadFailure) in
                let refusal = self.state.withLock { state -> ReadFailure? in
                    if let refusal = state.refusal, state.admitted.count >= refusal.after { return refusal.1 }
                    state.admitted.append(lane)
                    return nil
                }
                if let refusal { throw refusal }
            },
            report: { answer in
                var answer = answer
                // Nobody knows beforehand how long it takes.
                answer.elapsed = nil
                self.state.withLock { [answer] in $0.reports.append(answer) }
            }
        )
    }

    func client(
        maxPages: Int = 50,
        baseURL: String = "https://api.revenuecat.com/v2",
        logger: Logger = Logger(label: "test") { _ in SwiftLogNoOpLogHandler() }
    ) throws -> RevenueCatClient {
        RevenueCatClient(
            configuration: try RevenueCatConfiguration(
                apiKey: "sk_secret",
                projectID: "proj0a1b2c3d",
                baseURL: baseURL,
                maxPages: maxPages
            ),
            http: http,
            gate: gate,
            logger: logger,
            systemSeconds: { 784_111_777 }
        )
    }

    /// Reads the fixture's user.
    func read(
        sandboxCounts: Bool = false,
        hostUsers: Set<String> = [],
        maxPages: Int = 50,
        user: String = Fixture.user,
        lane: Lane = .restore
    ) async throws -> CustomerReading {
        let query = CustomerQuery(userID: user, lane: lane, sandboxCounts: sandboxCounts) { ids in
            Set(ids.map(ExactText.init)).intersection(hostUsers.map(ExactText.init))
        }
        return try await client(maxPages: maxPages).read(query)
    }
}
