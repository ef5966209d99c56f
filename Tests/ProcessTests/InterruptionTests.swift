import Foundation
import Postgres
import TestSupport
import Testing

/// Workers that die: what is left is what an undisturbed run leaves.
@Suite(.serialized)
struct InterruptionTests {
    /// Small batches and few jobs at once, so that every instant is in the middle of something.
    static let settings = [
        "WORKER_CONCURRENCY": "200", "WORKER_BATCH": "50", "JOB_LEASE_SECONDS": "2", "BACKGROUND_CHECK_DAYS": "0",
    ]

    /// After how many ended jobs the next worker dies.
    private static let goals: [Int64] =
        Profile.isFull
        ? [50, 300, 600, 900, 1200, 1500, 1800, 2100, 2300] : [700, 1700]

    /// What becomes of the crowd when nothing happens.
    static let record = Task {
        let simulator = try await Simulator(scenario: Crowd.usual.scenario)
        let record = Slot<Record>()
        try await Site.with(store: simulator.url, settings: settings) { site in
            try await site.execute(Crowd.usual.load)
            let ending = try await site.run("worker", "--until-idle", within: .seconds(120))
            #expect(ending.code == 0, "\(ending)")
            try await Record.expectSettled(site)
            record.value = try await Record(of: site)
        }
        return try #require(record.value)
    }

    @Test("A crowd of every kind is answered as it should be by a run that nobody disturbs")
    func undisturbed() async throws {
        let record = try await Self.record.value
        let expected: [(String, Int)] = [
            ("restore done restored restored", 900 + 100 + 60 + 150 + 50 + 40),
            ("restore done restored restored.assets_pending", 3),
            ("restore done already_subscriber", 300), ("restore done nothing_to_restore nothing.ended", 100),
            ("reconcile done demoted", 100), ("restore done nothing_to_restore nothing.expired", 250),
            ("restore done nothing_to_restore nothing.billing_retry", 100), ("restore done not_eligible", 50),
            ("restore done store_account_mismatch mismatch", 60 + 40 + 20),
            ("restore done store_unavailable sign_in_needed", 30),
            ("restore dead store_unavailable unavailable", 10),
        ]
        for (text, count) in expected {
            let suffix = text.hasSuffix("restored restored") ? record.count("answer", with: text + ".") : 0
            #expect(record.count("answer", with: text) - suffix == count, "\(text)")
        }
        #expect(record.count("error", with: "restore product_unmapped") == 5)
        #expect(record.count("error", with: "restore malformed") == 5)
        #expect(record.count("user", with: " subscriber ") == 1300 + 3 + 300)
        // The second asset of everybody and every third of the collectors was frozen by a moderator or not at all.
        #expect(record.count("asset", with: "collector-0001 {subscription_lapsed}") == 0)
        #expect(record.count("asset", with: "collector-0001 {moderation}") == 4000)
        #expect(record.count("asset", with: "lapsed-0001 {subscription_lapsed}") == 2)
        #expect(record.count("ticket", with: "owner_mismatch") > 0)
    }

    @Test("166, L12: a worker killed again and again leaves what an undisturbed one leaves")
    func killed() async throws {
        let undisturbed = try await Self.record.value
        let simulator = try await Simulator(scenario: Crowd.usual.scenario)
        try await Site.with(store: simulator.url, settings: Self.settings) { site in
            try await site.execute(Crowd.usual.load)
            let assets = try await Self.hold(Self.laterAssets, in: site)
            var heldAtDeath: Int64 = 0
            for goal in Self.goals {
                let worker = try await site.start("worker", "--until-idle")
                try await site.waitUntil(Self.ended(goal), comment: "\(goal) jobs did not end")
                heldAtDeath += try await Self.kill(worker, of: site)
            }
            #expect(heldAtDeath > 0, "every kill came between two pieces of work")
            // The last one dies in the middle of a batch of assets, after batches that their owners were told of.
            let worker = try await site.start("worker", "--until-idle")
            try await site.waitUntil(
                "SELECT (count(*) = 0)::integer::bigint FROM entitlement_sync.queue AS q WHERE q.crashes >= 2"
            )
            try await site.waitUntil("SELECT count(*) FROM entitlement_sync.asset_run AS r WHERE r.changed > 0")
            let gate = try await Self.hold("LOCK TABLE entitlement_sync.asset_batch IN SHARE MODE", in: site)
            await assets.close()
            try await site.waitUntil(
                """
                SELECT count(*) FROM pg_locks AS l
                  JOIN pg_database AS d ON d.oid = l.database AND d.datname = current_database()
                 WHERE l.relation = 'entitlement_sync.asset_batch'::regclass AND NOT l.granted
                """
            )
            try await worker.kill()
            await gate.close()

            let ending = try await site.run("worker", "--until-idle", within: .seconds(120))
            #expect(ending.code == 0, "\(ending)")
            try await Record.expectSettled(site)
            let record = try await Record(of: site)
            #expect(record.differences(from: undisturbed) == [])
        }
    }

    /// All of the collectors' assets but those that are changed in the first batches.
    private static let laterAssets = """
        SELECT FROM assets AS a
         WHERE a.id IN (SELECT o.id
                          FROM (SELECT b.id, row_number() OVER (PARTITION BY b.user_id ORDER BY b.id) AS place
                                  FROM assets AS b WHERE b.user_id LIKE 'collector-%') AS o
                         WHERE o.place > 3000)
           FOR UPDATE
        """

    /// Holds locks as a host may.
    ///
    /// - Returns: whose end is the locks' end.
    private static func hold(_ lock: String, in site: Site) async throws -> PostgresConnection {
        let holder = try PostgresConnection(configuration: .init(connectionString: site.database.tcpURL))
        try await holder.open()
        try await holder.execute(script: "BEGIN; \(lock)")
        return holder
    }

    /// Whether so many jobs have ended.
    static func ended(_ goal: Int64) -> PostgresQuery {
        "SELECT (count(*) >= \(goal))::integer::bigint FROM entitlement_sync.job_status AS s WHERE s.finished_at IS NOT NULL"
    }

    /// Kills a worker that is still at work.
    ///
    /// - Returns: how many jobs it held.
    private static func kill(_ worker: Program, of site: Site) async throws -> Int64 {
        // Whoever is held at three deaths runs alone, one after the other: that is another subject.
        try await site.waitUntil(
            """
            SELECT (count(*) = 0)::integer::bigint FROM entitlement_sync.queue AS q
             WHERE q.owner IS NOT NULL AND q.crashes >= 2
            """
        )
        try await worker.kill()
        return try await site.number("SELECT count(*) FROM entitlement_sync.queue AS q WHERE q.owner IS NOT NULL")
    }
}
