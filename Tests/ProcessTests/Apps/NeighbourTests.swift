import Foundation
import HTTPTypes
import Postgres
import TestSupport
import Testing

/// One app's users beside another app's run, and beside one whose database is away; the times are printed.
@Suite(.timeLimit(.minutes(10)))
struct NeighbourTests {
    private static let (seconds, rate) = FaultRuns.isFull ? (40, 20.0) : (3, 10.0)
    /// What golf's run reads.
    private static let many = FaultRuns.isFull ? 60_000 : 1_000

    @Test func `An app's restores go on beside another's run, and while a third one's database is away`() async throws {
        let names = (1...100).map { "user-\($0)" }
        try await AppsSite.with(["games", "golf", "poker"], users: names) { site in
            let golf = try site.record("golf")
            try await golf.pool.query(
                "INSERT INTO users (id) SELECT 'many-' || n FROM generate_series(1, \(Int64(Self.many))) AS n"
            )
            // Five hundred requests a second.
            try site.write("golf", changing: ["REVENUECAT_REQUESTS_PER_MINUTE": "30000"])
            let endpoint = try await site.open()
            try await site.untilAllReady(endpoint)
            let callers = try await names.asyncMap { try await site.caller($0, of: "games", at: endpoint) }
            _ = try await Self.restores(callers, for: 2)
            let alone = try await Self.restores(callers, for: Self.seconds)
            try await golf.execute("SELECT entitlement_sync.ask_run('all', false, NULL, NULL, 'test')")
            try await eventually("the run does not begin") {
                try await golf.number("SELECT count(*) FROM entitlement_sync.decision") > 50
            }
            let began = try await golf.number("SELECT count(*) FROM entitlement_sync.decision")
            let beside = try await Self.restores(callers, for: Self.seconds)
            let read = try await golf.number("SELECT count(*) FROM entitlement_sync.decision") - began
            try await golf.execute(
                "UPDATE entitlement_sync.run SET state = 'canceled', ended_at = now() WHERE ended_at IS NULL"
            )
            let poker = try site.record("poker").database
            try await poker.server.administer("ALTER DATABASE \(poker.name) WITH ALLOW_CONNECTIONS false")
            try await poker.server.administer(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '\(poker.name)'"
            )
            let away = try await Self.restores(callers, for: Self.seconds)
            try await site.untilReady(endpoint) {
                $0.status == 200 && $0.text.contains("app poker: ") && !$0.text.contains("app games")
            }
            report("restore p99: alone \(alone), beside \(read) reads of a run \(beside), with a database away \(away)")
            try await poker.server.administer("ALTER DATABASE \(poker.name) WITH ALLOW_CONNECTIONS true")
            try await site.untilAllReady(endpoint)
            try await endpoint.close()
        }
    }

    /// Restores at an even pace, each of which has to end.
    ///
    /// - Returns: the time that ninety-nine in a hundred take at most.
    private static func restores(_ callers: [Caller], for seconds: Int) async throws -> Duration {
        let count = Int(Double(seconds) * rate)
        let times = try await withThrowingTaskGroup(of: Duration.self) { group in
            let began = ContinuousClock.now
            for number in 0..<count {
                group.addTask {
                    try await Task.sleep(until: began + .seconds(Double(number) / rate), clock: .continuous)
                    let caller = callers[number % callers.count]
                    let tapped = ContinuousClock.now
                    let accepted = try await caller.ask(.post, "/v1/apps/games/restores", body: "{}")
                    let path = try #require(accepted["Location"], "\(accepted)")
                    let seen: SeenRestore = try await caller.ask(.get, path + "?wait=25").decode()
                    #expect(seen.hasEnded)
                    return .now - tapped
                }
            }
            var times: [Duration] = []
            for try await time in group { times.append(time) }
            return times.sorted()
        }
        return times[min(times.count - 1, times.count * 99 / 100)]
    }
}

extension Sequence {
    fileprivate func asyncMap<Mapped>(_ transform: (Element) async throws -> Mapped) async throws -> [Mapped] {
        var mapped: [Mapped] = []
        for element in self { mapped.append(try await transform(element)) }
        return mapped
    }
}
