import Entitlements
import Foundation
import HTTPTypes
import Logging
@testable import StoreClients
import StoreSimulator
import Synchronization
import Testing
@testable import Transport

/// The simulator as the App Store of one test: no socket, answers that can be altered, a gate that writes down what it
/// hears.
final class SimulatedAppStore: Sendable {
    private struct State {
        var requests: [HTTPRequest] = []
        var bodies: [[UInt8]] = []
        var budgets: [String] = []
        var reports: [StoreAnswer] = []
        /// How far the client's clock is ahead.
        var ahead: Int64 = 0
        var alter: @Sendable (String, inout HTTPClientResponse) -> Void = { _, _ in }
    }

    let simulator: StoreSimulator
    private let state = Mutex(State())

    /// Sets a store up from the part of a scenario below `app_store:`.
    init(_ yaml: String) throws {
        simulator = try StoreSimulator(
            scenario: Scenario(yaml: yaml),
            logger: Logger(label: "test") { _ in SwiftLogNoOpLogHandler() }
        )
    }

    /// A store with one customer, whose transactions are written in YAML, one a line.
    convenience init(environment: String = "Production", extra: String = "", transactions: [String]) throws {
        let lines = transactions.map { "        - {\($0)}" }.joined(separator: "\n")
        try self.init(
            """
            app_store:
              customers:
                - id: alice
                  environment: \(environment)
                  \(extra)
                  transactions:
            \(lines)
            """
        )
    }

    /// Changes answers on their way, by the path and query that was asked for.
    func alter(_ change: @escaping @Sendable (String, inout HTTPClientResponse) -> Void) {
        state.withLock { $0.alter = change }
    }

    /// Replaces a text in the answers to paths that contain another.
    func replace(_ text: String, with other: String, where part: String = "") {
        alter { target, response in
            guard target.contains(part) else { return }
            let body = String(decoding: response.body, as: UTF8.self)
            #expect(body.contains(text) || response.status != 200)
            response.body = Array(body.replacing(text, with: other).utf8)
        }
    }

    var requests: [HTTPRequest] { state.withLock { $0.requests } }
    var bodies: [String] { state.withLock { $0.bodies.map { String(decoding: $0, as: UTF8.self) } } }
    var targets: [String] { requests.map { $0.path ?? "" } }
    /// Environment and budget of each request that was admitted.
    var budgets: [String] { state.withLock { $0.budgets } }
    var reports: [StoreAnswer] { state.withLock { $0.reports } }
    /// The tokens that were sent.
    var tokens: [String] {
        requests.compactMap { $0.headerFields[.authorization]?.split(separator: " ").last.map(String.init) }
    }

    /// Sets the client's clock ahead of the store's.
    func setAhead(seconds: Int64) { state.withLock { $0.ahead = seconds } }

    var http: HTTPClient {
        HTTPClient { request, body throws(HTTPClientFailure) in
            let target = request.path ?? ""
            let alter = self.state.withLock { state in
                state.requests.append(request)
                state.bodies.append(body ?? [])
                return state.alter
            }
            let answer = self.simulator.answer(
                method: request.method.rawValue,
                target: target,
                authorization: request.headerFields[.authorization],
                contentType: request.headerFields[.contentType],
                body: body ?? []
            )
            guard answer.status != 0 else { throw HTTPClientFailure(.unavailable) }
            var headers = HTTPFields()
            for (name, value) in answer.headers {
                if let name = HTTPField.Name(name) { headers[name] = value }
            }
            var response = HTTPClientResponse(status: answer.status, headers: headers, body: answer.body)
            alter(target, &response)
            return response
        }
    }

    func client(bundleID: String = "com.example.app", key: String = StoreSimulator.appStoreKey) throws -> AppStoreClient
    {
        AppStoreClient(
            configuration: try AppStoreConfiguration(
                issuerID: "57246542-96fe-1a63-e053-0824d011072a",
                keyID: "2X9R4HXF34",
                privateKey: key,
                bundleID: bundleID,
                baseURL: "http://127.0.0.1:8080/app-store",
                sandboxBaseURL: "http://127.0.0.1:8080/app-store-sandbox"
            ),
            proofs: AppStoreProofs(roots: [try StoreSimulator.appStoreRoot], expected: .init(bundleID: bundleID)),
            http: http,
            gate: { environment, budget in
                RequestPermit(
                    admit: { _ throws(ReadFailure) in
                        self.state.withLock { $0.budgets.append("\(environment.ledgerName) \(budget)") }
                    },
                    report: { answer in self.state.withLock { $0.reports.append(answer) } }
                )
            },
            logger: Logger(label: "test") { _ in SwiftLogNoOpLogHandler() },
            systemSeconds: { Int64(Date().timeIntervalSince1970) + self.state.withLock { $0.ahead } }
        )
    }

    /// Reads the customer behind an id.
    func read(
        _ id: String,
        environment: AppStoreEnvironment? = .production,
        isFromClient: Bool = false,
        isProven: Bool = false,
        mayGrant: @escaping @Sendable ([String]) -> Bool = { _ in false }
    ) async throws -> AppStoreReading {
        try await client().read(
            AppStoreQuery(
                .init(id: id, environment: environment),
                isFromClient: isFromClient,
                isProven: isProven,
                mayGrant: mayGrant
            )
        )
    }

    /// Speaks to the simulator's control endpoint.
    @discardableResult
    func control(_ method: String, _ path: String, _ body: String = "") throws -> String {
        let answer = simulator.answer(method: method, target: "/control" + path, body: Array(body.utf8))
        try #require(answer.status == 200, "\(String(decoding: answer.body, as: UTF8.self))")
        return String(decoding: answer.body, as: UTF8.self)
    }
}
