import Entitlements
import Foundation
import Postgres
import Queue
import TestSupport
import Testing

/// A queue that many jobs went through, or many wait in.
struct QueueSizeTests {
    /// Queues restores for made-up users and ends them, so that their rows are dead.
    private static func fill(_ world: World, dead: Int, alive: Int) async throws {
        try await world.pool.query("ALTER TABLE entitlement_sync.queue SET (autovacuum_enabled = off)")
        for (first, count) in [(1, alive), (100_000, dead)] {
            try await world.pool.query(
                """
                INSERT INTO entitlement_sync.queue (user_key, due, lane, restore_id, restore_due)
                SELECT n, now(), 0, entitlement_sync.new_id(), now()
                  FROM generate_series(\(Int64(first)), \(Int64(first + count - 1))) AS n
                """
            )
        }
        try await world.pool.query("DELETE FROM entitlement_sync.queue AS q WHERE q.user_key >= 100000")
    }

    private static func size(_ world: World) async throws -> Int64 {
        try await world.number("SELECT pg_total_relation_size('entitlement_sync.queue')")
    }

    private static func content(_ world: World) async throws -> String? {
        try await world.pool.query(
            "SELECT string_agg(q::text, ' ' ORDER BY q.user_key) FROM entitlement_sync.queue AS q"
        ).first?.decode(String?.self, at: 0)
    }

    @Test func `A queue full of dead rows is moved, and its living rows come along`() async throws {
        try await World.with(isFresh: true) { world in
            let compactor = JobQueue(pool: world.pool)
            try await Self.fill(world, dead: 160_000, alive: 30)
            let before = try await Self.content(world)
            let large = try await Self.size(world)
            #expect(large > 32 << 20)
            #expect(try await compactor.compact())
            #expect(try await Self.size(world) < 1 << 20)
            #expect(try await Self.content(world) == before)
            #expect(try await !compactor.compact())
        }
    }

    @Test func `A queue that somebody is at work in stays where it is`() async throws {
        try await World.with(isFresh: true) { world in
            try await Self.fill(world, dead: 1000, alive: 3)
            let before = try await Self.content(world)
            try await world.pool.withTransaction { connection in
                try await connection.query("SELECT 1 FROM entitlement_sync.queue AS q FOR UPDATE")
                let moved = try await world.pool.query("SELECT entitlement_sync.compact_queue(above => 1)").first
                #expect(try moved?.decode(Bool.self, at: 0) == false)
            }
            let many = try await world.pool.query("SELECT entitlement_sync.compact_queue(above => 1, at_most => 2)")
                .first
            #expect(try many?.decode(Bool.self, at: 0) == false)
            #expect(try await Self.content(world) == before)
        }
    }

    @Test(
        "A claim reads what it takes and not the whole queue, whatever the planner knows",
        arguments: ["", "ANALYZE entitlement_sync.queue", "DELETE FROM entitlement_sync.queue WHERE user_key % 2 = 0"]
    )
    func plan(preparation: String) async throws {
        try await World.with(isFresh: true) { world in
            var configuration = PostgresConfiguration(connectionString: world.database.url, maxConnections: 1)
            configuration.sessionSettings = SessionSettings.ordinary
            let pool = PostgresPool(configuration: configuration, logger: .quiet)
            try await world.pool.query("ALTER TABLE entitlement_sync.queue SET (autovacuum_enabled = off)")
            // In no order that the table's own would resemble.
            try await world.pool.query(
                """
                INSERT INTO entitlement_sync.user_sync (user_id) SELECT 'waiting-' || n FROM generate_series(1, 60000) AS n
                """
            )
            try await world.pool.query(
                """
                INSERT INTO entitlement_sync.queue (user_key, due, lane, restore_id, restore_due)
                SELECT u.user_key, now() - random() * interval '1 hour', 0, entitlement_sync.new_id(), now()
                  FROM entitlement_sync.user_sync AS u
                """
            )
            if !preparation.isEmpty { try await world.pool.query(PostgresQuery(rawSQL: preparation)) }
            let epoch = try await Leases(pool: pool, duration: .seconds(60)).register(
                .init(host: "h", pid: 1, version: "v")
            )
            let queue = JobQueue(pool: pool)
            let read = """
                SELECT pg_stat_get_tuples_returned('entitlement_sync.queue_due'::regclass)
                     + pg_stat_get_tuples_returned('entitlement_sync.queue'::regclass)
                """
            try await world.pool.query("SELECT pg_stat_force_next_flush()")
            let before = try await world.number("\(rawSQL: read)")
            var taken = 0
            for _ in 0..<8 {
                taken += try await queue.claim([.init(lane: .restore, limit: 10)], upTo: 10, for: epoch).count
                try await pool.query("SELECT pg_stat_force_next_flush()")
            }
            #expect(taken == 80)
            // Counters reach other sessions at the end of this one at the latest.
            let session = try #require(try await pool.query("SELECT pg_backend_pid()").first).decode(Int32.self)
            await pool.close()
            try await world.waitUntil(
                "SELECT (NOT EXISTS (SELECT 1 FROM pg_catalog.pg_stat_activity AS a WHERE a.pid = \(session)))::int",
                comment: "the session does not end"
            )
            let seen = try await world.number("\(rawSQL: read)") - before
            #expect(seen < 3000, "\(seen) entries were read for 80 jobs")
        }
    }
}
