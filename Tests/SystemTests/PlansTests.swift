import Entitlements
import Foundation
import Postgres
import Queue
import TestSupport
import Testing
import UserRequests

/// How rows are reached where the server's statistics are old: taken when there were next to none.
///
/// A session keeps the plans that it made then, for as long as nobody analyzes the tables again.
@Suite struct PlansTests {
    private static let users = 360
    private static let rounds = 6
    /// Rows of a table that may be read: twenty-five a user, who is worked on three times.
    private static let most = Int64(25 * users)

    private static func state(_ number: Int) -> String {
        switch number % 3 {
        case 0: "active"
        case 1: "expired"
        default: "none"
        }
    }

    @Test(arguments: Profile.cases([6, 0, 24]))
    func `Restores, reconciles and answers reach users and ledger by key, however old the statistics`(few: Int)
        async throws
    {
        let customers = (0..<Self.users).map { "{id: user-\($0), state: \(Self.state($0))}" }
        try await World.with(customers: customers, isFresh: true) { world in
            try await world.pool.query(
                """
                INSERT INTO users (id, type)
                SELECT 'user-' || n, CASE n % 3 WHEN 1 THEN 'subscriber' ELSE 'free' END
                  FROM generate_series(0, \(Int64(Self.users - 1))) AS n
                """
            )
            try await world.pool.query(
                """
                INSERT INTO assets (user_id, frozen_reasons)
                SELECT 'user-' || n, CASE n % 3 WHEN 1 THEN '{}'::text[] ELSE '{subscription_lapsed}' END
                  FROM generate_series(0, \(Int64(Self.users - 1))) AS n
                """
            )
            let configuration = PostgresConfiguration(
                connectionString: world.database.url,
                maxConnections: 2,
                sessionSettings: SessionSettings.ordinary
            )
            try await withPool(configuration) { pool in
                // Once a brake is used up, later batches count all subscribers again and again; this one never is.
                let setup = WorkerSetup(brake: DemotionBrake(percent: 0.5, minimum: 1000))
                try await world.working(setup) {
                    let app = AppRequests(pool: pool)
                    try await Self.tap(world, app, users: 0..<few)
                    try await world.pool.query("VACUUM (ANALYZE)")
                    try await Self.tap(world, app, users: few..<Self.users)
                }
            }
            let wide = try await Self.wide(world)
            #expect(wide.isEmpty, "whole tables were read: \(wide)")
        }
    }

    /// Asks for everybody's restore, some at a time, then again, then for what a sweep asks.
    private static func tap(_ world: World, _ app: AppRequests, users: Range<Int>) async throws {
        for again in [false, true] {
            for round in 0..<rounds {
                let wishes = stride(from: users.lowerBound + round, to: users.upperBound, by: rounds).map { number in
                    // What the app tells beside it makes it a new restore.
                    RestoreWish(userID: "user-\(number)", clientError: again ? "receipt_already_in_use" : nil)
                }
                var jobs: [UUID] = []
                for (wish, answer) in zip(wishes, try await app.restores(wishes)) {
                    // Whoever is held at the moment is asked for alone.
                    if case .success(let taken) = answer {
                        jobs.append(taken.id)
                    } else {
                        jobs.append(try await app.restore(wish).id)
                    }
                }
                try await untilEnded(jobs, app, in: world)
            }
        }
        for number in users { _ = try await world.reconcile("user-\(number)") }
        try await world.waitUntil("SELECT (NOT EXISTS (SELECT 1 FROM entitlement_sync.queue))::int")
    }

    /// Reads the answers of restores that wait, and again once all have ended: not between, for each answer reads a row.
    private static func untilEnded(_ jobs: [UUID], _ app: AppRequests, in world: World) async throws {
        _ = try await app.answers(jobs)
        try await world.waitUntil(
            "SELECT (NOT EXISTS (SELECT 1 FROM entitlement_sync.queue))::int",
            comment: "restores do not end"
        )
        #expect(try await app.answers(jobs).allSatisfy(\.hasEnded))
    }

    /// The tables and indexes of which much more is read than is wanted, with what was read.
    ///
    /// Rows are counted that are still there, not an index's entries: entries of former versions of a row are met again and
    /// again until nothing on the server can see them any more, and how long that takes is up to whatever else it does.
    private static func wide(_ world: World) async throws -> [String] {
        // Sessions say what they did when they end; those of the test's own pool, up to four, stay.
        await world.workerPool.closeIdle(since: .now)
        try await world.waitUntil(
            """
            SELECT (count(*) <= 4)::int FROM pg_catalog.pg_stat_activity AS a
             WHERE a.datname = current_database() AND a.backend_type = 'client backend'
            """
        )
        return try await world.pool.query(
            """
            SELECT t.relname || ' ' || t.idx_tup_fetch || ' ' || t.seq_tup_read
              FROM pg_catalog.pg_stat_user_tables AS t
             WHERE t.relname IN ('purchase', 'purchase_identifier', 'observation', 'user_sync', 'users', 'assets')
               AND t.idx_tup_fetch + t.seq_tup_read > \(most)
            UNION ALL
            -- What an index gives without its table is counted here alone, former versions with it.
            SELECT s.indexrelname || ' ' || s.idx_tup_read
              FROM pg_catalog.pg_stat_user_indexes AS s
             WHERE s.relname IN ('purchase', 'purchase_identifier', 'observation', 'user_sync', 'users', 'assets')
               AND s.idx_tup_read > \(2 * most)
             ORDER BY 1
            """
        ).map { try $0.decode(String.self, at: 0) }
    }
}
