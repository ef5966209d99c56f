import Bench
import Foundation
import HTTPTypes
import Logging
import NIOCore
import Transport

/// An app, and a store that sends events.
struct BenchDoorClient: Sendable {
    private let port: Int
    private let connections: Int
    private let lean: LeanHTTPClient
    private let logger: Logger

    init(port: Int, connections: Int = 512, logger: Logger) {
        self.port = port
        self.connections = connections
        self.logger = logger
        lean = LeanHTTPClient(port: port, most: connections)
    }

    private struct Answer: Decodable {
        var id: String
        var outcome: String?
    }

    /// Asks for a restore.
    ///
    /// - Returns: its id.
    func accept(_ token: String, showing body: String? = nil) async throws -> String {
        let headers = ["Authorization: Bearer " + token] + (body == nil ? [] : ["Content-Type: application/json"])
        let request = Self.request("POST", "/v1/restores", headers, body.map { Array($0.utf8) })
        let accepted = try await send(request, 202)
        return try JSONDecoder().decode(Answer.self, from: accepted).id
    }

    /// Asks for a restore and waits for its end, as an app does.
    func restore(_ token: String, showing body: String? = nil, expecting expected: String = "restored") async throws {
        let job = try await accept(token, showing: body)
        let request = Self.request("GET", "/v1/restores/\(job)?wait=20", ["Authorization: Bearer " + token])
        let outcome = try JSONDecoder().decode(Answer.self, from: try await send(request, 200)).outcome
        guard outcome == expected else {
            throw CommandFailure(.software, "a restore ended with \(outcome ?? "nothing")")
        }
    }

    /// Sends what `post` wrote.
    func event(_ request: ByteBuffer) async throws { _ = try await send(request, 200) }

    /// Opens streams and long polls, and keeps them open as long as the body runs and the server lets them.
    ///
    /// - Parameters:
    ///   - jobs: ids and their users' tokens; every other one is streamed.
    ///   - body: runs while they are open; they end with the server.
    /// - Returns: what the body returns.
    /// - Throws: what the body throws, or why one of them did not end as it should.
    func waiting<Value: Sendable>(
        for jobs: [(id: String, token: String)],
        _ body: () async throws -> Value
    ) async throws -> Value {
        let transport = HTTPTransport(
            configuration: HTTPTransportConfiguration(
                maxConnectionsPerHost: connections,
                maxTotalConnections: connections,
                maxInFlight: 4096
            ),
            logger: logger
        )
        do {
            let value = try await withThrowingTaskGroup(of: Void.self) { group in
                for (index, job) in jobs.enumerated() {
                    let path = "/v1/restores/\(job.id)" + (index.isMultiple(of: 2) ? "/events" : "?wait=25")
                    let request = HTTPRequest(
                        method: .get,
                        scheme: "http",
                        authority: "127.0.0.1:\(port)",
                        path: path,
                        headerFields: [.authorization: "Bearer " + job.token]
                    )
                    group.addTask {
                        let answer = try await transport.send(
                            request,
                            body: nil,
                            timeout: .seconds(60),
                            maxResponseBytes: 1 << 20
                        )
                        guard answer.response.status == .ok else {
                            throw CommandFailure(.software, "the API answered \(answer.response.status.code) to a wait")
                        }
                    }
                }
                let value = try await body()
                try await group.waitForAll()
                return value
            }
            await transport.shutdown()
            return value
        } catch {
            await transport.shutdown()
            throw error
        }
    }

    func shutdown() async { await lean.shutdown() }

    private func send(_ request: ByteBuffer, _ expected: Int) async throws -> Data {
        let answer = try await lean.send(request)
        guard answer.status == expected else {
            throw CommandFailure(.software, "the API answered \(answer.status)")
        }
        return Data(answer.body.readableBytesView)
    }

    /// A request as it travels.
    static func request(_ method: String, _ path: String, _ headers: [String], _ body: [UInt8]? = nil) -> ByteBuffer {
        var lines = ["\(method) \(path) HTTP/1.1", "Host: 127.0.0.1"] + headers
        if let body { lines.append("Content-Length: \(body.count)") }
        var buffer = ByteBuffer(string: lines.joined(separator: "\r\n") + "\r\n\r\n")
        if let body { buffer.writeBytes(body) }
        return buffer
    }
}
