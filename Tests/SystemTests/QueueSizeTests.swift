import Entitlements
import Foundation
import Jobs
import Postgres
import Storage
import TestSupport
import Testing

/// A queue that many jobs went through, or many wait in.
struct QueueSizeTests {
    @Test func `What very many jobs took up is given back by vacuum once they have ended`() async throws {
        try await World.with { world in
            try await world.pool.query("ALTER TABLE entitlement_sync.queue SET (autovacuum_enabled = off)")
            try await world.pool.query(
                """
                INSERT INTO entitlement_sync.queue (user_key, due, lane, restore_id, restore_due)
                SELECT n, now(), 0, entitlement_sync.new_id(), now() FROM generate_series(1, 160000) AS n
                """
            )
            try await world.pool.query("DELETE FROM entitlement_sync.queue AS q WHERE q.user_key > 30")
            let size: PostgresQuery = "SELECT pg_relation_size('entitlement_sync.queue')"
            #expect(try await world.number(size) > 16 << 20)
            try await world.pool.query("VACUUM entitlement_sync.queue")
            #expect(try await world.number(size) < 1 << 20)
            #expect(try await world.number("SELECT count(*) FROM entitlement_sync.queue") == 30)
        }
    }

    @Test(
        "A claim reads what it takes and not the whole queue, whatever the planner knows",
        arguments: ["", "ANALYZE entitlement_sync.queue", "DELETE FROM entitlement_sync.queue WHERE user_key % 2 = 0"]
    )
    func plan(preparation: String) async throws {
        try await World.with { world in
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
            let epoch = try await Leases(pool: pool, duration: .seconds(60)).register(host: "h", pid: 1, version: "v")
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
            // Counters reach the others at the end of the session at the latest.
            await pool.close()
            try await Task.sleep(for: .milliseconds(100))
            let seen = try await world.number("\(rawSQL: read)") - before
            #expect(seen < 3000, "\(seen) entries were read for 80 jobs")
        }
    }

    @Test func `Claims begin where the last one ended, and at the beginning once a second`() async throws {
        let start = ContinuousClock.now
        let now = Instant(microseconds: 1_000_000_000_000)
        func job(_ lane: JobLane, _ due: Int64) -> ClaimedJob {
            ClaimedJob(
                id: UUID(),
                kind: .restore,
                lane: lane,
                due: Instant(microseconds: now.microseconds - due * 1_000_000),
                userKey: 1,
                userID: nil,
                claimedAt: now,
                claimedTick: start
            )
        }
        var floors = ClaimFloors()
        #expect(floors.next(at: start).isEmpty)
        let wishes: [JobQueue.Wish] = [.init(lane: .restore, limit: 2), .init(lane: .event, limit: 5)]
        floors.note([job(.restore, 90), job(.restore, 80), job(.event, 70)], of: wishes, upTo: 9)
        let next = floors.next(at: start + .milliseconds(999))
        // More restores may wait from the last one on; of events there were no more.
        #expect(next[.restore] == Instant(microseconds: now.microseconds - 80_000_000))
        #expect(next[.event] == Instant(microseconds: now.microseconds - 2_000_000))
        floors.note([], of: wishes, upTo: 9)
        #expect(floors.next(at: start + .milliseconds(999)) == next)
        #expect(floors.next(at: start + .seconds(1)).isEmpty)
        floors.note([job(.restore, 90), job(.event, 70)], of: wishes, upTo: 9)
        #expect(!floors.mayHaveMore, "each lane gave less than it was asked for")
        floors.note([job(.restore, 90), job(.event, 70)], of: wishes, upTo: 2)
        #expect(floors.mayHaveMore, "all lanes together were asked for no more")
        floors.note([job(.restore, 90), job(.restore, 80)], of: wishes, upTo: 9)
        #expect(floors.mayHaveMore)
        floors.note([], of: wishes, upTo: 9)
        #expect(!floors.mayHaveMore)
    }

    @Test func `A job that was due long before it was committed is found all the same`() async throws {
        try await World.with { world in
            for user in ["early", "late"] { try await world.add(user) }
            let queue = JobQueue(pool: world.pool)
            let epoch = try await Leases(pool: world.pool, duration: .seconds(60))
                .register(host: "h", pid: 1, version: "v")
            var floors = ClaimFloors()
            let wishes = [JobQueue.Wish(lane: .restore, limit: 10)]
            var found: [String?] = []
            _ = try await world.requests.restore("early", proofs: "[]", clientError: nil)
            let deadline = ContinuousClock.now + .seconds(60)
            var isLateQueued = false
            while found.count < 2, ContinuousClock.now < deadline {
                let jobs = try await queue.claim(wishes, upTo: 10, for: epoch, from: floors.next(at: .now))
                floors.note(jobs, of: wishes, upTo: 10)
                found += jobs.map(\.userID)
                guard found.count == 1, !isLateQueued else { continue }
                isLateQueued = true
                _ = try await world.requests.restore("late", proofs: "[]", clientError: nil)
                try await world.pool.query(
                    "UPDATE entitlement_sync.queue AS q SET due = now() - interval '1 hour' WHERE q.owner IS NULL"
                )
            }
            #expect(found == ["early", "late"])
        }
    }
}
