import Foundation
import Glibc
import NIOCore
import Testing

@testable import StoreSimulator

@Suite("A listening simulator", .timeLimit(.minutes(10)))
struct LiveTests {
    private static let scenario = """
        project: p1
        rate_limit_per_minute: 0
        customers: [{id: u, state: active}, {id: v, state: active}]
        """

    /// Runs a test against a live simulator, and returns once the simulator has stopped.
    private func live(
        _ yaml: String = scenario,
        _ body: @escaping @Sendable (RawClient, StoreSimulator) async throws -> Void
    ) async throws {
        let simulator = try StoreSimulator(scenario: Scenario(yaml: yaml), logger: Probe.quiet)
        let (ports, listening) = AsyncStream.makeStream(of: Int.self)
        try await withThrowingTaskGroup(of: Void.self) { group in
            group.addTask {
                defer { listening.finish() }
                try await simulator.run { port in listening.yield(port) }
            }
            let port = try #require(await ports.first { _ in true })
            try await body(RawClient(port: port), simulator)
            group.cancelAll()
            try await group.waitForAll()
        }
    }

    @Test("A connection serves many requests, pipelined ones in order, and closes when asked")
    func keepAlive() async throws {
        try await live { client, _ in
            let requests =
                RawClient.get("customers/u", close: false) + RawClient.get("customers/nobody", close: false)
                + RawClient.get("customers/v")
            let outcome = try await client.exchange(requests)
            #expect(outcome.errorCode == nil)
            let heads = outcome.text.components(separatedBy: "HTTP/1.1 ").dropFirst().map { String($0.prefix(3)) }
            #expect(heads == ["200", "404", "200"])
            #expect(outcome.text.contains(#""id":"v""#))
            #expect(outcome.text.components(separatedBy: "Connection: close").count == 2)
        }
    }

    @Test("Head and body are what a client needs: length, type, date, request id")
    func head() async throws {
        try await live { client, _ in
            let outcome = try await client.exchange(RawClient.get("customers/u/subscriptions"))
            let parts = outcome.text.components(separatedBy: "\r\n\r\n")
            try #require(parts.count == 2)
            #expect(parts[0].contains("Content-Length: \(parts[1].utf8.count)\r\n"))
            #expect(parts[0].contains("Content-Type: application/json\r\n"))
            #expect(parts[0].contains(" GMT\r\nX-Request-Id: "))
            #expect(try JSON(parts[1]).items.count == 1)
        }
    }

    @Test("A request whose body comes in pieces is read whole")
    func bodyInPieces() async throws {
        try await live { client, _ in
            let body = #"{"target_customer_id":"v"}"#
            let connection = try await client.connect()
            try await connection.executeThenClose { inbound, outbound in
                let head =
                    "POST /v2/projects/p1/customers/u/actions/transfer HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
                    + "Authorization: Bearer sk_x\r\nContent-Type: application/json\r\n"
                    + "Content-Length: \(body.utf8.count)\r\n\r\n"
                for piece in [head, String(body.prefix(10)), String(body.dropFirst(10))] {
                    try await outbound.write(ByteBuffer(string: piece))
                }
                var text = ""
                for try await part in inbound { text += String(buffer: part) }
                #expect(text.hasPrefix("HTTP/1.1 200 OK"))
            }
        }
    }

    @Test("A dropped request gets no byte and is not carried out")
    func drop() async throws {
        let faults = "faults: [{method: POST, connection: drop_before}]\n"
        try await live(faults + Self.scenario) { client, simulator in
            let outcome = try await client.exchange(Self.transfer)
            #expect(outcome.bytes == 0)
            #expect(outcome.errorCode == nil)
            let owner = simulator.simulation.withState { $0.revenueCat.book.customer("u") }
            #expect(owner?.subscriptions.count == 1)
            #expect(simulator.requestReport().byStatus == [0: 1])
        }
    }

    @Test("A reset after processing gets no byte, but the transfer has happened")
    func reset() async throws {
        let faults = "faults: [{method: POST, connection: reset_after}]\n"
        try await live(faults + Self.scenario) { client, simulator in
            let outcome = try await client.exchange(Self.transfer)
            #expect(outcome.bytes == 0)
            #expect(outcome.errorCode == ECONNRESET)
            let owner = simulator.simulation.withState { $0.revenueCat.book.customer("u") }
            #expect(owner?.subscriptions.isEmpty == true)
        }
    }

    @Test("A connection dropped midway announces more than it sends", arguments: ["", "body: empty, "])
    func cut(body: String) async throws {
        let faults = "faults: [{\(body)connection: drop_midway}]\n"
        try await live(faults + Self.scenario) { client, _ in
            let outcome = try await client.exchange(RawClient.get("customers/u/subscriptions"))
            #expect(outcome.errorCode == nil)
            #expect(outcome.text.hasPrefix("HTTP/1.1 200 OK"))
            let parts = outcome.text.components(separatedBy: "\r\n\r\n")
            if body.isEmpty {
                try #require(parts.count == 2)
                let announced = try #require(Self.announcedLength(parts[0]))
                #expect(announced > parts[1].utf8.count)
                #expect(!parts[1].isEmpty)
            } else {
                #expect(parts.count == 1)
            }
        }
    }

    @Test("A dripping body arrives in pieces, but whole")
    func drip() async throws {
        let faults = "faults: [{drip_bytes: 100, drip_every: 5ms}]\n"
        try await live(faults + Self.scenario) { client, _ in
            let outcome = try await client.exchange(RawClient.get("customers/u/subscriptions"))
            #expect(outcome.reads > 3)
            let body = try #require(outcome.text.components(separatedBy: "\r\n\r\n").last)
            #expect(try JSON(body).items.count == 1)
        }
    }

    @Test("A huge body has the size that was asked for")
    func huge() async throws {
        let faults = "faults: [{body: huge, size: 20000000}]\n"
        try await live(faults + Self.scenario) { client, _ in
            let outcome = try await client.exchange(RawClient.get("customers/u"))
            #expect(outcome.text.contains("Content-Length: 20000000\r\n"))
            let head = try #require(outcome.text.range(of: "\r\n\r\n"))
            #expect(outcome.bytes == 20_000_000 + outcome.text[..<head.upperBound].utf8.count)
        }
    }

    @Test("Delayed requests run side by side, and the most at once is known")
    func concurrency() async throws {
        let faults = "faults: [{latency: 300ms}]\n"
        try await live(faults + Self.scenario) { client, simulator in
            let started = ContinuousClock.now
            try await withThrowingTaskGroup(of: Void.self) { group in
                for _ in 0..<10 {
                    group.addTask { _ = try await client.exchange(RawClient.get("customers/u")) }
                }
                try await group.waitForAll()
            }
            let elapsed = ContinuousClock.now - started
            #expect(elapsed >= .milliseconds(300))
            #expect(simulator.requestReport().peakInFlight > 1)
            #expect(simulator.requestReport().inFlight == 0)
        }
    }

    @Test("A client that goes away while its answer is delayed leaves nothing behind")
    func clientLeaves() async throws {
        let faults = "faults: [{latency: 10m}]\n"
        try await live(faults + Self.scenario) { client, simulator in
            let connection = try await client.connect()
            try await connection.executeThenClose { _, outbound in
                try await outbound.write(ByteBuffer(string: RawClient.get("customers/u")))
                while simulator.requestReport().inFlight == 0 { await Task.yield() }
            }
            while simulator.requestReport().inFlight > 0 { await Task.yield() }
        }
    }

    @Test("A cancelled simulator stops at once, with delays running and connections idle")
    func stop() async throws {
        let (stopping, announce) = AsyncStream.makeStream(of: ContinuousClock.Instant.self)
        try await live("faults: [{customer: u, latency: 10m}]\n" + Self.scenario) { client, simulator in
            // The clients never close; the server has to.
            try await client.send(RawClient.get("customers/v", close: false))
            try await client.send(RawClient.get("customers/u"))
            while simulator.requestReport().total < 2 { await Task.yield() }
            announce.yield(.now)
        }
        let began = try #require(await stopping.first { _ in true })
        #expect(ContinuousClock.now - began < .seconds(10))
    }

    @Test("A port in use is said plainly")
    func portInUse() async throws {
        try await live { client, _ in
            let second = try StoreSimulator(
                scenario: Scenario(),
                configuration: SimulatorConfiguration(port: client.port),
                logger: Probe.quiet
            )
            let error = await #expect(throws: SimulatorError.self) { try await second.run() }
            #expect(error?.code == .addressInUse)
            #expect(error?.description.contains("127.0.0.1:\(client.port) is in use") == true)
        }
    }

    @Test("A request that is no HTTP closes the connection and nothing else")
    func nonsense() async throws {
        try await live { client, _ in
            let outcome = try await client.exchange("\u{1}\u{2}nonsense\r\n\r\n")
            #expect(outcome.bytes == 0)
            #expect(try await client.exchange(RawClient.get("customers/u")).text.hasPrefix("HTTP/1.1 200"))
        }
    }

    private static let transfer: String = {
        let body = #"{"target_customer_id":"v"}"#
        return "POST /v2/projects/p1/customers/u/actions/transfer HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
            + "Authorization: Bearer sk_x\r\nContent-Type: application/json\r\n"
            + "Content-Length: \(body.utf8.count)\r\n\r\n\(body)"
    }()

    private static func announcedLength(_ head: String) -> Int? {
        let line = head.components(separatedBy: "\r\n").first { $0.hasPrefix("Content-Length: ") }
        return line.flatMap { Int($0.dropFirst("Content-Length: ".count)) }
    }
}
