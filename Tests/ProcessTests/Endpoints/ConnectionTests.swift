import Foundation
import HTTPTypes
import TestSupport
import Testing

/// Whoever holds connections, memory or streams without end keeps nobody else waiting.
struct ConnectionTests {
    /// How the server fared, as the script tells it.
    private struct Outcome: Decodable {
        var held: Int
        var worst: Double?
        var rssKiB: Int

        enum CodingKeys: String, CodingKey {
            case held, worst
            case rssKiB = "rss_kib"
        }
    }

    struct Attack: Sendable, CustomTestStringConvertible {
        var kind: String
        var count: Int
        /// What the log and the metric tell.
        var reason: String

        var testDescription: String { "\(count) \(kind)" }
    }

    /// The server's own deadline of 30 s in the full profile, else one that is handed in; and longer than that.
    private static let (times, seconds) =
        Profile.isFull ? ([:], 36) : (["FAULT_POINT_OWN_VALUES": "request=5"], 11)

    private static func run(
        _ attack: Attack,
        at port: Int,
        of endpoint: Endpoint,
        token: String = ""
    ) async throws -> Outcome {
        let script = try await Program(
            [
                "/usr/bin/env", "python3", Paths.fixtures + "/attack.py", attack.kind, "\(attack.count)", "\(seconds)",
                "\(port)", "\(endpoint.program.pid)", token,
            ],
            environment: Site.environment([:])
        )
        // Those seconds begin when the server has filled all connections, which may take it long beside other tests.
        let ending = try await script.ending(within: .seconds(seconds + 180))
        try #require(ending.code == 0, "\(ending)")
        return try JSONDecoder().decode(Outcome.self, from: Data(ending.out.utf8))
    }

    private static func expect(_ outcome: Outcome, of attack: Attack, at endpoint: Endpoint) throws {
        let worst = try #require(outcome.worst, "somebody else was not answered")
        // How long says something only where nobody else keeps the machine; in any case it was answered.
        #expect(worst < 1 || !Profile.isFull, "others waited \(worst) s")
        #expect(outcome.rssKiB < 150 << 10, "the process took \(outcome.rssKiB) KiB")
        #expect(outcome.held == 0, "\(outcome.held) connections are still there")
        let reasons = Set(try endpoint.log.compactMap { $0["security.reason"] })
        #expect(reasons.contains(attack.reason), "\(reasons)")
        #expect(endpoint.program.isRunning)
    }

    private static let many = Profile.isFull ? 2000 : 100

    /// First one that holds connections, one that reads nothing, and one that keeps memory.
    private static let attacks = [
        Attack(kind: "silent", count: 64, reason: "too_many_connections"),
        Attack(kind: "unread", count: 30, reason: "answer_not_read"),
        Attack(kind: "user", count: 58, reason: "share_used_up"),
        Attack(kind: "crumbs", count: many, reason: "chunks_too_small"),
        Attack(kind: "stranger", count: 2000, reason: "share_used_up"),
        Attack(kind: "headers", count: 2000, reason: "too_many_connections"),
    ]

    @Test(arguments: Profile.cases(attacks, bounded: 3))
    func `Connections without end are ended, take little memory, and keep nobody waiting`(attack: Attack) async throws {
        try await Turnstile.shared.pass(alone: Profile.isFull) { try await Self.attack(attack) }
    }

    private static func attack(_ attack: Attack) async throws {
        try await EndpointSite.with(scenario: "customers: [{id: ann, state: active}]\n", users: ["ann"]) { endpoints in
            let most = ["HTTP_MAX_CONNECTIONS": attack.kind == "silent" ? "64" : "10000"]
            let endpoint = try await endpoints.open("serve", settings: times.merging(most) { $1 })
            let ann = try await endpoints.caller("ann", at: endpoint)
            let outcome = try await run(attack, at: endpoint.port, of: endpoint, token: ann.token)
            try expect(outcome, of: attack, at: endpoint)
            // And they themselves are served again.
            #expect(try await ann.restore().state == "queued")
            try await endpoint.close()
        }
    }

    @Test func `The admin address has the same limits, and the API goes on beside it`() async throws {
        try await EndpointSite.with(scenario: "customers: []\n") { endpoints in
            let endpoint = try await endpoints.open("serve", settings: Self.times)
            let admin = try await endpoint.adminPort
            let attack = Attack(kind: "unread-metrics", count: 80, reason: "too_many_connections")
            try Self.expect(try await Self.run(attack, at: admin, of: endpoint), of: attack, at: endpoint)
            #expect(try await endpoint.ask(.get, "/health/ready").status == 200)
            try await endpoint.close()
        }
    }

    @Test func `A user has five waits and five streams at once, and the oldest gives way`() async throws {
        let scenario = "customers: [{id: ann, state: active}, {id: bob, state: active}]\n"
        try await EndpointSite.with(scenario: scenario, users: ["ann", "bob"]) { endpoints in
            // Nobody works, so that nothing ends by itself.
            let endpoint = try await endpoints.open("serve")
            let (ann, bob) = (
                try await endpoints.caller("ann", at: endpoint), try await endpoints.caller("bob", at: endpoint)
            )
            let (hers, his) = (try await ann.restore(), try await bob.restore())
            let other = bob.events(of: his)
            var streams: [EventStream] = []
            for number in 1...7 {
                streams.append(ann.events(of: hers))
                try await eventually("stream \(number) never began") { streams.last?.names == ["queued"] }
            }
            try await eventually("the oldest streams go on") { streams.prefix(2).allSatisfy { $0.isWhole } }
            #expect(streams.dropFirst(2).allSatisfy { !$0.isWhole } && !other.isWhole)

            let began = ContinuousClock.now
            try await withThrowingTaskGroup(of: Duration.self) { group in
                for _ in 1...7 {
                    group.addTask {
                        let answer = try await ann.ask(.get, hers.path + "?wait=12")
                        #expect(answer.status == 200, "\(answer)")
                        return ContinuousClock.now - began
                    }
                    // Nothing shows that a wait has begun, and each has to begin before the next.
                    try await Task.sleep(for: .milliseconds(300))
                }
                let waits = try await group.reduce(into: [Duration]()) { $0.append($1) }.sorted()
                #expect(waits.filter { $0 < .seconds(6) }.count == 2, "\(waits)")
            }
            #expect(streams.dropFirst(2).allSatisfy { !$0.isWhole }, "waits and streams have places of their own")
            try await endpoint.close()
        }
    }
}
