import Foundation
import HTTPTypes
import Postgres
import TestSupport
import Testing

/// As many apps as one process may have to carry: five, a hundred in the full profile.
@Suite(.serialized, .timeLimit(.minutes(20)))
struct ManyAppsTests {
    private static let names = (1...(Profile.isFull ? 100 : 5)).map { "app-\($0)" }

    private static func with(_ body: @escaping @Sendable (AppsSite, PrivatePostgres) async throws -> Void) async throws
    {
        // What quiet apps cost a server must not be mixed with what other tests do, and autovacuum's transactions are not theirs.
        let server = try await PrivatePostgres.start(settings: ["max_connections": "400", "autovacuum": "off"])
        try await AppsSite.with(names, on: server) { site in try await body(site, server) }
        try await server.stop(immediately: true)
    }

    @Test func `Quiet apps cost a connection each, and hardly a transaction`() async throws {
        try await Self.with { site, server in
            let began = ContinuousClock.now
            let endpoint = try await site.open(
                settings: Profile.isFull ? [:] : ["FAULT_POINT_OWN_VALUES": "settling=1"]
            )
            report("\(Self.names.count) apps: HTTP answers after \(ContinuousClock.now - began)")
            try await site.untilAllReady(endpoint)
            report("all are ready after \(ContinuousClock.now - began)")
            // They come to rest ten seconds after the last thing that happened, or after what is handed in.
            try await Task.sleep(for: .seconds(Profile.isFull ? 60 : 8))
            let activity = PostgresPool(
                configuration: PostgresConfiguration(
                    connectionString: server.url(database: "postgres"),
                    maxConnections: 1
                ),
                logger: .silent
            )
            let before = try await Self.transactions(activity)
            var most: Int64 = 0
            let seconds = Profile.isFull ? 180 : 20
            for _ in 0..<(seconds * 2) {
                most = max(most, try await Self.connections(activity))
                try await Task.sleep(for: .milliseconds(500))
            }
            let each = Double(try await Self.transactions(activity) - before) / Double(seconds * Self.names.count)
            let memory = try endpoint.program.residentBytes >> 20
            report("at rest: at most \(most) connections, \(each) transactions/s an app, \(memory) MiB")
            #expect(most <= Int64(max(Self.names.count * 12 / 10, Self.names.count + 8)))
            // A process that does not rest makes seventeen. What an app does a minute after its start is in the shorter measurement.
            #expect(each <= (Profile.isFull ? 1 : 3))
            #expect(memory <= 300)

            // What comes to an app that rests is dealt with at once, whatever way it comes.
            let name = try #require(Self.names.last)
            let record = try site.record(name)
            try await record.execute("SELECT entitlement_sync.request_reconcile('ben')")
            try await endpoint.program.find("the reconcile's end", within: .seconds(5)) {
                try await record.number("SELECT count(*) FROM entitlement_sync.job_status WHERE state = 'done'") == 1
                    ? true : nil
            }
            await activity.close()
            let stopping = ContinuousClock.now
            try await endpoint.close()
            report("stopped in \(ContinuousClock.now - stopping)")
        }
    }

    /// Connections of the process, those that listen among them.
    private static func connections(_ pool: PostgresPool) async throws -> Int64 {
        try #require(
            try await pool.query(
                "SELECT count(*) FROM pg_catalog.pg_stat_activity WHERE application_name = 'entitlement-sync'"
            ).first
        ).decode(Int64.self)
    }

    private static func transactions(_ pool: PostgresPool) async throws -> Int64 {
        try #require(
            try await pool.query(
                """
                SELECT sum(d.xact_commit + d.xact_rollback)::bigint FROM pg_catalog.pg_stat_database AS d
                 WHERE d.datname LIKE 'test%'
                """
            ).first
        ).decode(Int64.self)
    }
}

extension Program {
    /// The memory that it has now.
    var residentBytes: Int {
        get throws {
            let status = try String(contentsOfFile: "/proc/\(pid)/status", encoding: .utf8)
            let kilobytes = try #require(status.firstMatch(of: /VmRSS:\s+(\d+) kB/).flatMap { Int($0.1) })
            return kilobytes << 10
        }
    }
}
