import Entitlements
import HTTPTypes
import Logging
@testable import StoreClients
@testable import StoreSimulator
import Testing
@testable import Transport

/// The client against the simulator, in the same process and without a socket.
struct PlayWorld {
    let simulator: StoreSimulator
    let client: GooglePlayClient

    init(_ yaml: String) throws {
        var quiet = Logger(label: "test") { _ in SwiftLogNoOpLogHandler() }
        quiet.logLevel = .critical
        let now = SimulatedClock.machine()
        let simulator = try StoreSimulator(scenario: Scenario(yaml: yaml), logger: quiet, wall: { now })
        self.simulator = simulator
        client = GooglePlayClient(
            configuration: try GooglePlayConfiguration(
                serviceAccount: StoreSimulator.googleServiceAccount,
                packageName: "com.example.app",
                baseURL: "http://127.0.0.1:1/google-play",
                oauthBaseURL: "http://127.0.0.1:1/google-oauth"
            ),
            http: HTTPClient { request, body throws(HTTPClientFailure) in
                let answer = simulator.answer(
                    method: request.method.rawValue,
                    target: request.path ?? "",
                    authorization: request.headerFields[.authorization],
                    contentType: request.headerFields[.contentType],
                    body: body ?? []
                )
                guard answer.status > 0 else { throw HTTPClientFailure(.unavailable) }
                var headers = HTTPFields()
                for (name, value) in answer.headers {
                    if let name = HTTPField.Name(name) { headers[name] = value }
                }
                return HTTPClientResponse(status: answer.status, headers: headers, body: answer.body)
            },
            gate: { _ in .open },
            logger: quiet
        )
    }

    /// A world with purchases, each the members of a YAML mapping; `rest` stands below them in the scenario.
    init(purchases: String..., rest: String = "") throws {
        try self.init("google_play:\n  purchases:\n" + purchases.map { "    - {\($0)}\n" }.joined() + rest)
    }

    var nowMs: Int64 { simulator.simulation.withState { $0.clock.nowMs } }

    func at(_ milliseconds: Int64) -> Instant? { Instant(milliseconds: nowMs + milliseconds) }

    func read(_ tokens: String..., known: Set<String> = []) async throws -> GooglePlayReading {
        let now = try #require(at(0))
        return await client.read(GooglePlayQuery(tokens: tokens, known: known, askedAt: now))
    }

    func count(_ template: String) -> Int { simulator.requestReport().byPath[template] ?? 0 }

    static let tokenRequests = "POST /google-oauth/token"
    static let day: Int64 = 86_400_000
}
