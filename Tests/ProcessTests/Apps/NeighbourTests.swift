import Foundation
import HTTPTypes
import Postgres
import TestSupport
import Testing

/// One app's users beside another app's run, and beside one whose database is away; the times are printed.
@Suite(.timeLimit(.minutes(10)))
struct NeighbourTests {
    private static let (seconds, rate) = (40, 20.0)
    /// How many users golf's run reads, and how many of them before its pace is even.
    private static let (many, burst): (Int, Int64) = (60_000, 4_500)

    @Test(.full) func `An app's restores go on beside another's run, and while a third one's database is away`()
        async throws
    {
        let names = (1...100).map { "user-\($0)" }
        try await AppsSite.with(["games", "golf", "poker"], users: names) { site in
            let golf = try site.record("golf")
            try await golf.pool.query(
                "INSERT INTO users (id) SELECT 'many-' || n FROM generate_series(1, \(Int64(Self.many))) AS n"
            )
            // At first golf has a process of its own.
            try site.remove("golf")
            let endpoint = try await site.open()
            try await site.untilAllReady(endpoint)
            var callers: [Caller] = []
            for name in names { callers.append(try await site.caller(name, of: "games", at: endpoint)) }
            let path = "/v1/apps/games/restores"
            _ = try await RestorePace.measure(callers, at: path, Self.rate, for: 2)
            let alone = try await RestorePace.measure(callers, at: path, Self.rate, for: Self.seconds)
            var own = golf
            own.settings.merge(Self.fast) { $1 }
            let worker = try await own.start("worker")
            // What the machine itself has left for games beside such a run.
            let (apart, readApart) = try await Self.beside(golf) {
                try await RestorePace.measure(callers, at: path, Self.rate, for: Self.seconds)
            }
            _ = try await own.run("runs", "cancel", "1")
            _ = try await worker.stop()
            try site.write("golf", changing: Self.fast.mapValues { $0 })
            try await site.untilAllReady(endpoint)
            let (beside, read) = try await Self.beside(golf) {
                try await RestorePace.measure(callers, at: path, Self.rate, for: Self.seconds)
            }
            _ = try await site.run("runs", "cancel", "2", "--app", "golf")
            let poker = try site.record("poker").database
            try await poker.server.administer("ALTER DATABASE \(poker.name) WITH ALLOW_CONNECTIONS false")
            try await poker.server.administer(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '\(poker.name)'"
            )
            let away = try await RestorePace.measure(callers, at: path, Self.rate, for: Self.seconds)
            try await site.untilReady(endpoint) {
                $0.status == 200 && $0.text.contains("app poker: ") && !$0.text.contains("app games")
            }
            report(
                "restore p99: alone \(alone), beside \(readApart) reads of a run in another process \(apart), beside \(read) in the same"
                    + " one \(beside), with a database away \(away)"
            )
            try await poker.server.administer("ALTER DATABASE \(poker.name) WITH ALLOW_CONNECTIONS true")
            try await site.untilAllReady(endpoint)
            try await endpoint.close()
        }
    }

    /// Five hundred requests a second.
    private static let fast = ["REVENUECAT_REQUESTS_PER_MINUTE": "30000"]

    /// Measures beside a run, once its pace is even, and counts what it reads meanwhile.
    private static func beside(
        _ app: Site,
        _ measure: () async throws -> Duration
    ) async throws -> (p99: Duration, read: Int64) {
        let ends: PostgresQuery = "SELECT count(*) FROM entitlement_sync.job_history"
        let before = try await app.number(ends)
        try await app.execute("SELECT entitlement_sync.ask_run('all', false, NULL, NULL, 'test')")
        // Until what the limit had saved up is spent.
        try await eventually("the run does not begin") { try await app.number(ends) > before + Self.burst }
        let began = try await app.number(ends)
        let p99 = try await measure()
        return (p99, try await app.number(ends) - began)
    }
}
