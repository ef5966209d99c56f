import Foundation
import HTTPTypes
import Logging
import TestSupport
import Testing
import Transport

/// The store simulator as a process of its own.
final class Simulator: Sendable {
    let program: Program
    let port: Int

    var url: String { "http://127.0.0.1:\(port)/v2" }

    /// Starts a simulator on a free port and waits until it listens.
    ///
    /// - Parameters:
    ///   - scenario: what the stores hold.
    ///   - files: a folder that is given what operators and devices would have.
    ///   - keys: the folder that keeps its keys; that of all tests by default.
    /// - Throws: when it does not start.
    init(scenario: String, files: String? = nil, keys: String = Paths.keys) async throws {
        let file = try Paths.temporary("project: proj0a1b2c3d\nrate_limit_per_minute: 0\n" + scenario, suffix: ".yaml")
        defer { try? FileManager.default.removeItem(atPath: file) }
        program = try await Program(
            [Paths.program, "simulate", "--port", "0", "--scenario", file, "--keys", keys]
                + (files.map { ["--files", $0] } ?? []),
            environment: Site.environment([:])
        )
        port = try await listeningPort(of: program)
    }

    /// How many requests the store was sent for a customer.
    func requests(for customer: String) async throws -> Int {
        struct Report: Decodable { var customer: [String: Int] }
        let body = try await fetch("GET", "/control/requests?customer=\(customer)", from: port)
        return try JSONDecoder().decode(Report.self, from: body).customer[customer] ?? 0
    }

    /// Ends every fault.
    func heal() async throws { _ = try await fetch("DELETE", "/control/faults", from: port) }
}

/// Asks a server on loopback.
///
/// - Returns: the body of a good answer.
func fetch(_ method: String, _ path: String, body: String? = nil, from port: Int) async throws -> Data {
    let answer = try await ask(method, path, body: body, of: port, within: .seconds(5))
    try #require(answer.response.status.code == 200, "\(String(decoding: answer.body, as: UTF8.self))")
    return Data(answer.body)
}

/// Asks a server on loopback.
///
/// - Returns: the answer, whatever it is.
func ask(
    _ method: String,
    _ path: String,
    body: String? = nil,
    of port: Int,
    within limit: Duration
) async throws -> HTTPExchange {
    let transport = HTTPTransport(configuration: HTTPTransportConfiguration(), logger: .silent)
    let request = HTTPRequest(
        method: try #require(HTTPRequest.Method(method)),
        scheme: "http",
        authority: "127.0.0.1:\(port)",
        path: path
    )
    return try await run {
        try await transport.send(request, body: body.map { Array($0.utf8) }, timeout: limit)
    } finally: {
        await transport.shutdown()
    }
}

/// Waits for a line of a server's output that ends with its port.
func listeningPort(of program: Program) async throws -> Int {
    try await program.find("its port") {
        let said = program.out
        return said.hasSuffix("\n") ? said.split(whereSeparator: \.isWhitespace).last.flatMap { Int($0) } : nil
    }
}
