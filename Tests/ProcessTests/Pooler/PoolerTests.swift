import Foundation
import Postgres
import TestSupport
import Testing

/// Everything through a transaction pooler: what is left is what a run without one leaves.
@Suite(.serialized)
struct PoolerTests {
    private static let crowd = Profile.isFull ? Crowd.usual : Crowd(percent: 12, latency: 175)
    /// Small batches and few jobs at once, so that workers come back for more all the time.
    private static let settings = FaultRuns.settings.merging(
        Profile.isFull
            ? ["WORKER_CONCURRENCY": "200", "WORKER_BATCH": "50"]
            : ["WORKER_CONCURRENCY": "30", "WORKER_BATCH": "10"]
    ) { $1 }

    @Test(
        "A crowd is answered behind PgBouncer as without it, also when a worker is killed and sessions are wiped",
        arguments: Profile.cases([true, false])
    )
    func crowd(resets: Bool) async throws {
        let undisturbed = try await Undisturbed.record(of: Self.crowd)
        let simulator = try await Simulator(scenario: Self.crowd.scenario)
        let pooler = try await PgBouncer(before: try await PrivatePostgres.shared, resets: resets)
        try await Site.with(.host, store: simulator.url, settings: Self.settings) { site in
            var site = site
            site.settings["DATABASE_URL"] = try pooler.url(database: site.database.name)
            site.settings["DATABASE_DIRECT_URL"] = try site.database.tcpURL + " application_name=direct"
            let migrated = try await site.run("migrate")
            #expect(migrated.code == 0, "\(migrated)")
            try await site.execute(
                """
                INSERT INTO entitlement_sync.product (store, product_id, entitlement, grants_access)
                VALUES ('revenuecat', 'premium', 'premium', true)
                """
            )
            try await site.execute(Self.crowd.load)
            try await work(at: site)
            try await Record.expectSettled(site)
            #expect(try await Record(of: site).differences(from: undisturbed) == [])
            try await commands(
                at: site,
                dead: undisturbed.count("answer", with: "restore dead store_unavailable unavailable")
            )
            #expect(!pooler.log.contains("unsupported startup parameter"), "\(pooler.log.suffix(2000))")
        }
    }

    @Test(
        "Behind PgBouncer no transaction runs as the database's defaults say",
        .database,
        arguments: Profile.cases([true, false])
    )
    func defaults(resets: Bool) async throws {
        let database = try #require(TestDatabase.current)
        try await database.server.administer(
            """
            ALTER DATABASE \(database.name) SET default_transaction_isolation = 'serializable';
            ALTER DATABASE \(database.name) SET default_transaction_read_only = on
            """
        )
        let pooler = try await PgBouncer(before: database.server, resets: resets)
        let configuration = PostgresConfiguration(
            connectionString: pooler.url(database: database.name),
            connectTimeout: .seconds(60),
            sessionState: false
        )
        let ask: PostgresQuery = "SELECT current_setting('transaction_isolation')"
        try await withThrowingTaskGroup(of: [String].self) { group in
            // More clients than the pooler has sessions.
            for client in 0..<(2 * PgBouncer.poolSize) {
                group.addTask {
                    let connection = PostgresConnection(configuration: configuration)
                    try await connection.open()
                    // What is written and what is read on its own, in turns with a transaction of another level.
                    try await connection.query("CREATE TABLE t\(rawSQL: String(client)) (id int8)")
                    var levels: [String] = []
                    for _ in 0..<20 {
                        levels.append(try await connection.query(ask)[0].decode(String.self))
                        _ = try await connection.withTransaction(.repeatableRead) { try await $0.query(ask) }
                    }
                    await connection.close()
                    return levels
                }
            }
            for try await levels in group { #expect(Set(levels) == ["read committed"]) }
        }
    }

    /// Two workers, of whom one is killed and replaced.
    private func work(at site: Site) async throws {
        let first = try await site.start("worker", "--until-idle")
        let second = try await site.start("worker", "--until-idle")
        let quarter = Int64(Self.crowd.size / 4)
        try await site.waitUntil(InterruptionTests.ended(quarter), comment: "\(quarter) jobs did not end")
        try await expectSharing(at: site)
        try await first.kill()
        let third = try await site.start("worker", "--until-idle")
        for worker in [second, third] {
            let ending = try await worker.ending(within: .seconds(180))
            #expect(ending.code == 0, "\(ending)")
            for sign in ["prepared statement", "26000", "42P05", "notifications are not heard"] {
                #expect(!ending.err.contains(sign), "\(ending)")
            }
        }
    }

    /// The pooler marks whoever comes through it; the rest came directly, to listen.
    private func expectSharing(at site: Site) async throws {
        try await site.waitUntil(
            """
            SELECT (count(*) FILTER (WHERE a.application_name LIKE 'entitlement-sync - %')
                        BETWEEN 1 AND \(Int64(PgBouncer.poolSize))
                    AND count(*) FILTER (WHERE a.application_name = 'direct') = 2
                    AND bool_and(a.query ILIKE 'LISTEN %' OR a.application_name <> 'direct'))::integer::bigint
              FROM pg_stat_activity AS a WHERE a.datname = current_database()
            """,
            comment: "the workers do not share the pooler's sessions, or do not listen beside it"
        )
    }

    /// What people type works as well.
    private func commands(at site: Site, dead: Int) async throws {
        let worker = try await site.start("worker")
        let restored = try await site.run("restore", "active-0001", "--wait", "60", "--output", "json")
        #expect(restored.code == 0 && restored.out.contains("already_subscriber"), "\(restored)")
        let reconciled = try await site.run("reconcile", "lapsed-0001", "--wait", "60", "--output", "json")
        #expect(reconciled.code == 0 && reconciled.out.contains("unchanged"), "\(reconciled)")
        for words in [
            ["explain", "active-0001"], ["queue", "stats"], ["queue", "dead"], ["pause", "demotions"],
            ["resume", "demotions"], ["grant", "add", "active-0002", "--until", "2099-01-01", "--reason", "r"],
        ] {
            let ending = try await Site.run(words, settings: site.settings)
            #expect(ending.code == 0, "\(words): \(ending)")
        }
        let doctor = try await site.run("doctor")
        #expect(doctor.code == 0 && doctor.out.contains("dead_jobs: \(dead) jobs are dead"), "\(doctor)")
        #expect(!doctor.out.contains("could not be"), "\(doctor)")
        try await worker.stop()
    }
}
