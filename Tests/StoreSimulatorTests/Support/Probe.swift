import HTTPTypes
import Logging

@testable import StoreSimulator

/// Asks a simulator in the same process, without a socket.
struct Probe {
    let simulator: StoreSimulator

    struct Answer {
        var status: Int
        var headers: HTTPFields
        var text: String

        var json: JSON { get throws { try JSON(text) } }
    }

    /// Runs a test against a scenario written as YAML; the clock stands still.
    static func run(_ yaml: String = "", _ body: @escaping @Sendable (Probe) async throws -> Void) async throws {
        let now = SimulatedClock.machine()
        // What the scenario is set up by must be the time at which the clock then stands.
        let simulator = try StoreSimulator(scenario: Scenario(yaml: yaml), logger: quiet, wall: { now })
        simulator.simulation.withState { $0.clock.setFrozen(true) }
        try await body(Probe(simulator: simulator))
    }

    static var quiet: Logger {
        var logger = Logger(label: "simulator-tests")
        logger.logLevel = .critical
        return logger
    }

    var nowMs: Int64 { simulator.simulation.withState { $0.clock.nowMs } }

    /// Sends any request.
    func send(
        _ method: HTTPRequest.Method,
        _ target: String,
        authorization: String? = "Bearer sk_test",
        contentType: String? = "application/json",
        body: String? = nil
    ) async throws -> Answer {
        let answer = simulator.answer(
            method: method.rawValue,
            target: target,
            authorization: authorization,
            contentType: contentType,
            body: body.map { Array($0.utf8) } ?? []
        )
        var headers = HTTPFields()
        for (name, value) in answer.headers { if let name = HTTPField.Name(name) { headers[name] = value } }
        return Answer(status: answer.status, headers: headers, text: String(decoding: answer.body, as: UTF8.self))
    }

    /// Reads below `/v2/projects/p1/`.
    func get(_ path: String, authorization: String? = "Bearer sk_test") async throws -> Answer {
        try await send(.get, "/v2/projects/p1/" + path, authorization: authorization)
    }

    /// Posts below `/v2/projects/p1/`.
    func post(_ path: String, _ body: String) async throws -> Answer {
        try await send(.post, "/v2/projects/p1/" + path, body: body)
    }

    /// Speaks to the control endpoint.
    func control(_ method: HTTPRequest.Method, _ path: String, _ body: String? = nil) async throws -> Answer {
        try await send(method, "/control" + path, authorization: nil, body: body)
    }
}

extension HTTPField.Name {
    static var usage: Self? { .init("RevenueCat-Rate-Limit-Current-Usage") }
    static var limit: Self? { .init("RevenueCat-Rate-Limit-Current-Limit") }
    static var requestID: Self? { .init("X-Request-Id") }
}

extension Probe.Answer {
    func header(_ name: HTTPField.Name?) -> String? {
        name.flatMap { headers[$0] }
    }
}
