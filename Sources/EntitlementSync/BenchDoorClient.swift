import Foundation
import HTTPTypes
import Logging
import Transport

/// An app, and a store that sends events.
struct BenchDoorClient: Sendable {
    struct Post: Sendable {
        var headers: HTTPFields
        var body: [UInt8]
    }

    private let port: Int
    private let transport: HTTPTransport

    init(port: Int, connections: Int = 512, logger: Logger) {
        self.port = port
        transport = HTTPTransport(
            configuration: HTTPTransportConfiguration(
                maxConnectionsPerHost: connections,
                maxTotalConnections: connections,
                maxInFlight: 4096,
                maxQueued: 100_000
            ),
            logger: logger
        )
    }

    private struct Answer: Decodable {
        var id: String
        var outcome: String?
    }

    /// Asks for a restore.
    ///
    /// - Returns: its id.
    func accept(_ token: String) async throws -> String {
        let accepted = try await send(.post, "/v1/restores", [.authorization: "Bearer " + token], 202)
        return try JSONDecoder().decode(Answer.self, from: Data(accepted)).id
    }

    /// Waits for whatever a restore has to tell.
    func wait(_ job: String, _ token: String, streams: Bool) async throws {
        let path = "/v1/restores/\(job)" + (streams ? "/events" : "?wait=25")
        _ = try await send(.get, path, [.authorization: "Bearer " + token], 200)
    }

    /// Asks for a restore and waits for its end, as an app does.
    func restore(_ token: String) async throws {
        let job = try await accept(token)
        let headers: HTTPFields = [.authorization: "Bearer " + token]
        let ended = try await send(.get, "/v1/restores/\(job)?wait=20", headers, 200)
        let outcome = try JSONDecoder().decode(Answer.self, from: Data(ended)).outcome
        guard outcome == "restored" else {
            throw CommandFailure(.software, "a restore ended with \(outcome ?? "nothing")")
        }
    }

    func event(_ post: Post) async throws {
        _ = try await send(.post, "/v1/webhooks/revenuecat", post.headers, 200, post.body)
    }

    func shutdown() async { await transport.shutdown() }

    private func send(
        _ method: HTTPRequest.Method,
        _ path: String,
        _ headers: HTTPFields,
        _ expected: Int,
        _ body: [UInt8]? = nil
    ) async throws -> [UInt8] {
        let request = HTTPRequest(
            method: method,
            scheme: "http",
            authority: "127.0.0.1:\(port)",
            path: path,
            headerFields: headers
        )
        let answer = try await transport.send(request, body: body, timeout: .seconds(30), maxResponseBytes: 1 << 20)
        guard answer.response.status.code == expected else {
            throw CommandFailure(.software, "the API answered \(answer.response.status.code) to \(path.prefix(24))")
        }
        return answer.body
    }
}
