import Composition
import Foundation
import HTTPServing
import HTTPTypes
import Logging
import NIOCore
import Transport

/// An app, and a store that sends events.
struct BenchAPIClient: Sendable {
    private let port: Int
    private let connections: Int
    private let lean: LeanHTTPClient
    private let executor: LoopExecutor
    private let logger: Logger

    /// Lets a body use a client.
    static func with<Value>(
        port: Int,
        connections: Int = 512,
        logger: Logger,
        _ body: (BenchAPIClient) async throws -> Value
    ) async throws -> Value {
        let lean = LeanHTTPClient(port: port, most: connections)
        let executor = LoopExecutor(lean.loop)
        return try await cleaningUp({ await lean.shutdown() }) {
            try await body(Self(port: port, connections: connections, lean: lean, executor: executor, logger: logger))
        }
    }

    /// Asks for a restore.
    ///
    /// - Returns: its id.
    func accept(_ token: String, showing body: String? = nil) async throws -> String {
        let headers = ["Authorization: Bearer " + token] + (body == nil ? [] : ["Content-Type: application/json"])
        let request = Self.request("POST", "/v1/restores", headers, body.map { Array($0.utf8) })
        let accepted = try await send(request, 202)
        return try Self.text(#""id":""#, in: accepted)
    }

    /// Asks for a restore and waits for its end, as an app does.
    func restore(_ token: String, showing body: String? = nil, expecting expected: String = "restored") async throws {
        let job = try await accept(token, showing: body)
        let request = Self.request("GET", "/v1/restores/\(job)?wait=20", ["Authorization: Bearer " + token])
        let outcome = try Self.text(#""outcome":""#, in: try await send(request, 200))
        guard outcome == expected else { throw CommandFailure(.software, "a restore ended with \(outcome)") }
    }

    func entitlement(_ token: String) async throws {
        _ = try await send(Self.request("GET", "/v1/entitlement", ["Authorization: Bearer " + token]), 200)
    }

    /// Does something so many times at an even rate, on the thread that sends: what a change of threads takes would be
    /// measured with the answers.
    ///
    /// - Returns: how long each took from when it was to begin, in milliseconds.
    func steadily(
        _ count: Int,
        perSecond: Int,
        _ body: @escaping @Sendable (Int) async throws -> Void
    ) async throws -> [Double] {
        try await withTaskExecutorPreference(executor) {
            let start = NIODeadline.now()
            return try await withThrowingTaskGroup(of: Double.self) { group in
                for index in 0..<count {
                    let due = start + .nanoseconds(1_000_000_000 * Int64(index) / Int64(perSecond))
                    try await lean.loop.scheduleTask(deadline: due) {}.futureResult.get()
                    group.addTask {
                        try await body(index)
                        return Double((NIODeadline.now() - due).nanoseconds) / 1_000_000
                    }
                }
                return try await group.reduce(into: []) { $0.append($1) }
            }
        }
    }

    /// Sends what `post` wrote.
    func event(_ request: ByteBuffer) async throws { _ = try await send(request, 200) }

    /// Opens a stream or a long poll of each job, in turns, and keeps them open as long as the body runs: it ends the
    /// server.
    ///
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
        return try await cleaningUp({ await transport.shutdown() }) {
            try await withThrowingTaskGroup(of: Void.self) { group in
                for (index, job) in jobs.enumerated() {
                    let path = "/v1/restores/\(job.id)" + (index.isMultiple(of: 2) ? "/events" : "?wait=25")
                    var request = HTTPRequest(method: .get, scheme: "http", authority: "127.0.0.1:\(port)", path: path)
                    request.headerFields[.authorization] = "Bearer " + job.token
                    group.addTask { [request] in
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
        }
    }

    private func send(_ request: ByteBuffer, _ expected: Int) async throws -> ByteBuffer {
        let answer = try await lean.send(request)
        guard answer.status == expected else {
            throw CommandFailure(.software, "the API answered \(answer.status)")
        }
        return answer.body
    }

    /// A member of an answer, searched for and not parsed: the answers are known, and parsing takes from those measured.
    private static func text(_ member: StaticString, in json: ByteBuffer) throws -> String {
        guard let start = json.offset(of: member) else {
            throw CommandFailure(.software, "the API answered without \(member)")
        }
        let value = json.readableBytesView.dropFirst(start + member.utf8CodeUnitCount).prefix {
            $0 != UInt8(ascii: "\"")
        }
        return String(decoding: value, as: UTF8.self)
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
