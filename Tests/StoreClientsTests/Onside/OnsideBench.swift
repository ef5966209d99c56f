import Entitlements
import Foundation
import HTTPTypes
import Logging
@testable import SignedTokens
@testable import StoreClients
import StoreSimulator
import Synchronization
import Testing
@testable import Transport

/// A client before a simulated Onside in the same process, and everything that passes between them.
final class OnsideBench: Sendable {
    static let order = "91c1f0a2-7d3e-4a55-b6c8-3f2e1d0c9b8a"
    static let renewal = "5b0d6f1e-2c77-4c1b-8f9a-0e6a7c1d2b33"
    static let account = "kQ3vZr8mT2fXw1LdYp6sNb4HcJe7"
    static let secret = "onside-demo-secret"

    /// A line with one renewal, paid for.
    static let usual = """
        onside:
          orders:
            - {order: \(order), account: \(account), bought: -40d, purchased: -40d, expires: -10d, subscription: grp}
            - {order: \(renewal), original: \(order), account: \(account), bought: -40d, purchased: -10d,
               expires: +20d, subscription: grp}
        """

    private struct State {
        var requests: [HTTPRequest] = []
        var reports: [StoreAnswer] = []
        var lines: [String] = []
        var replacement: (path: String, response: Result<HTTPClientResponse, HTTPClientFailure>)?
        var monotonic = ContinuousClock.now
        var skew: Int64 = 0
    }

    let simulator: StoreSimulator
    private let state = Mutex(State())

    init(_ yaml: String = usual) throws {
        simulator = try StoreSimulator(
            scenario: Scenario(yaml: yaml),
            logger: Logger(label: "test") { _ in SwiftLogNoOpLogHandler() }
        )
    }

    var requests: [HTTPRequest] { state.withLock { $0.requests } }
    var reports: [StoreAnswer] { state.withLock { $0.reports } }
    var lines: [String] { state.withLock { $0.lines } }
    var keyRequests: Int { requests.count { $0.path?.hasSuffix("jwks.json") == true } }

    /// Answers requests whose path ends so in another way from now on.
    func replace(_ path: String, status: Int = 200, body: String, type: String = "text/html") {
        let response = HTTPClientResponse(status: status, headers: [.contentType: type], body: Array(body.utf8))
        state.withLock { $0.replacement = (path, .success(response)) }
    }

    func replace(_ path: String, fails code: HTTPClientFailure.Code) {
        state.withLock { $0.replacement = (path, .failure(HTTPClientFailure(code))) }
    }

    func restore() { state.withLock { $0.replacement = nil } }

    /// Lets time pass on the clock that nobody sets.
    func wait(_ duration: Duration) { state.withLock { $0.monotonic += duration } }

    /// Sets our own clock wrong.
    func skewClock(by seconds: Int64) { state.withLock { $0.skew = seconds } }

    var http: HTTPClient {
        HTTPClient { request, body throws(HTTPClientFailure) in
            let path = request.path ?? ""
            let replacement = self.state.withLock { state in
                state.requests.append(request)
                return state.replacement.flatMap { path.hasSuffix($0.path) ? $0.response : nil }
            }
            if let replacement { return try replacement.get() }
            let answer = self.simulator.answer(
                method: request.method.rawValue,
                target: path,
                authorization: request.headerFields[.authorization],
                contentType: request.headerFields[.contentType],
                body: body ?? []
            )
            var headers = HTTPFields()
            for (name, value) in answer.headers {
                if let name = HTTPField.Name(name) { headers[name] = value }
            }
            return HTTPClientResponse(status: answer.status, headers: headers, body: answer.body)
        }
    }

    var gate: RequestPermit {
        RequestPermit(
            admit: { _ throws(ReadFailure) in },
            report: { answer in self.state.withLock { $0.reports.append(answer) } }
        )
    }

    /// A client; its key set starts empty.
    func client(secret: String = secret, bundleID: String = "com.example.app") throws -> OnsideClient {
        var logger = Logger(label: "test") { _ in Sink(bench: self) }
        logger.logLevel = .trace
        return OnsideClient(
            configuration: try OnsideConfiguration(
                merchantID: "merchant-demo",
                merchantSecret: secret,
                secretKeyID: "key-demo",
                bundleID: bundleID,
                baseURL: "http://127.0.0.1:9/onside"
            ),
            http: http,
            gate: gate,
            logger: logger,
            systemSeconds: { Int64(Date().timeIntervalSince1970) + self.state.withLock { $0.skew } },
            keys: KeySet(of: .onside) { self.state.withLock { $0.monotonic } }
        )
    }

    static var now: Instant { Instant(microseconds: Int64(Date().timeIntervalSince1970 * 1_000_000)) }

    static func query(
        _ ids: [String] = [order],
        proven: Set<String> = [],
        isFromClient: Bool = false
    ) -> OnsideQuery {
        OnsideQuery(
            orderIDs: ids,
            provenIDs: proven,
            askedAt: now,
            lane: .restore,
            isFromClient: isFromClient
        )
    }

    func read(_ query: OnsideQuery = query()) async throws -> OnsideReading { try await client().read(query) }

    private struct Sink: LogHandler {
        let bench: OnsideBench
        var metadata: Logger.Metadata = [:]
        var logLevel = Logger.Level.trace
        subscript(metadataKey key: String) -> Logger.Metadata.Value? {
            get { metadata[key] }
            set { metadata[key] = newValue }
        }
        func log(event: LogEvent) {
            bench.state.withLock { $0.lines.append("\(event.level) \(event.message) \(event.metadata ?? [:])") }
        }
    }
}

/// Why a signed history was not taken.
func refusal(_ text: String, _ client: OnsideClient) async -> OnsideProofFailure? {
    do throws(OnsideProofFailure) {
        _ = try await client.history(text)
        return nil
    } catch { return error }
}

extension OnsideProofFailure {
    var code: ProofRefusal.Code? { if case .refused(let refusal) = self { refusal.code } else { nil } }
}
