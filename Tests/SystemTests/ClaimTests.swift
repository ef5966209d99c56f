@testable import Entitlements
import Logging
import Postgres
import Queue
import TestSupport
import Testing

struct ClaimTests {
    @Test func `a claim takes what is due, free and held by nobody, and only under a living lease`() async throws {
        try await World.with { world in
            // A correct claim waits for no lock, so this limit says only when a wrong one has lost.
            let pool = PostgresPool(
                configuration: PostgresConfiguration(
                    connectionString: world.database.url,
                    maxConnections: 1,
                    sessionSettings: ["lock_timeout": "5s"]
                ),
                logger: .quiet
            )
            let queue = JobQueue(pool: pool)
            let leases = Leases(pool: pool, duration: .seconds(3600))
            let (mine, other) = try await (lease(leases), lease(leases))
            for user in ["held", "ann", "later"] {
                try await world.add(user)
                _ = try await world.restore(user)
            }
            try await world.pool.query(
                "UPDATE entitlement_sync.queue SET due = now() + interval '1 hour' WHERE user_key = \(await key("later", world))"
            )
            let limits = [JobQueue.LaneLimit(lane: .restore, limit: 10)]
            try await world.pool.withTransaction { host in
                try await host.query(
                    "SELECT 1 FROM entitlement_sync.queue WHERE user_key = \(await key("held", world)) FOR UPDATE"
                )
                #expect(try await queue.claim(limits, upTo: 10, for: mine).map(\.userID) == ["ann"])
            }
            #expect(try await queue.claim(limits, upTo: 10, for: other).map(\.userID) == ["held"])
            #expect(try await queue.claim(limits, upTo: 10, for: other).isEmpty)
            // Given back, one in each way, both are as they were.
            try await queue.release([try await key("ann", world)], for: mine)
            try await leases.end(other)
            let touched = try await world.number(
                """
                SELECT count(*) FROM entitlement_sync.queue
                 WHERE owner IS NOT NULL OR active IS NOT NULL OR crashes + restore_attempt + reconcile_attempt > 0
                """
            )
            #expect(touched == 0)
            try await world.pool.query(
                "UPDATE entitlement_sync.worker SET expires_at = now() - interval '1 second' WHERE epoch = \(mine)"
            )
            #expect(try await queue.claim(limits, upTo: 10, for: mine).isEmpty)
            await pool.close()
        }
    }

    /// How a row comes back undone.
    enum Return: CaseIterable { case release, releaseAll, end, rescue, thirdRescue }

    @Test(arguments: Return.allCases)
    func `a restore that was asked for beside a sweep is a restore when that comes back undone`(way: Return)
        async throws
    {
        try await World.with { world in
            let queue = JobQueue(pool: world.pool)
            let leases = Leases(pool: world.pool, duration: .seconds(3600))
            let mine = try await lease(leases)
            for user in ["ann", "bob"] {
                try await world.add(user)
                _ = try await world.reconcile(user)
            }
            let (ann, bob) = try await (key("ann", world), key("bob", world))
            let sweeps = [JobQueue.LaneLimit(lane: .sweep, limit: 10)]
            #expect(try await queue.claim(sweeps, upTo: 10, for: mine).count == 2)
            let restore = try await world.restore("ann")
            let due = try await world.number(
                "SELECT (extract(epoch FROM max(q.due)) * 1e6)::bigint FROM entitlement_sync.queue AS q WHERE q.user_key = \(bob)"
            )
            switch way {
            case .release: try await queue.release([ann, bob], for: mine)
            case .releaseAll: try await queue.releaseAll(except: [], for: mine)
            case .end: try await leases.end(mine)
            case .rescue, .thirdRescue:
                if way == .thirdRescue { try await world.pool.query("UPDATE entitlement_sync.queue SET crashes = 2") }
                try await world.pool.query(
                    "UPDATE entitlement_sync.worker SET expires_at = now() - interval '1 second'"
                )
                #expect(try await leases.rescue() == 2)
            }
            let quarantined: Int64 = way == .thirdRescue ? 1 : 0
            #expect(
                try await world.number(
                    """
                    SELECT count(*) FROM entitlement_sync.queue AS q
                     WHERE q.user_key = \(ann) AND q.owner IS NULL AND q.restore_id = \(restore)
                       AND CASE WHEN \(quarantined) = 1 THEN q.lane = 9
                                ELSE q.lane = 0 AND q.due >= q.restore_due AND q.due <= clock_timestamp() END
                    """
                ) == 1
            )
            #expect(
                try await world.number(
                    """
                    SELECT count(*) FROM entitlement_sync.queue AS q
                     WHERE q.user_key = \(bob) AND q.owner IS NULL AND q.lane = CASE WHEN \(quarantined) = 1 THEN 9 ELSE 2 END
                       AND (extract(epoch FROM q.due) * 1e6)::bigint = \(due)
                    """
                ) == 1,
                "nobody asked for bob's"
            )
        }
    }

    @Test(arguments: [true, false])
    func `a restore that waited for a reconcile is due when that is over, and neither before nor later`(
        ends: Bool
    ) async throws {
        try await World.with { world in
            let queue = JobQueue(pool: world.pool)
            let mine = try await lease(Leases(pool: world.pool, duration: .seconds(3600)))
            try await world.add("ann")
            let reconcile = try await world.reconcile("ann")
            let key = try await key("ann", world)
            let sweeps = [JobQueue.LaneLimit(lane: .sweep, limit: 10)]
            #expect(try await queue.claim(sweeps, upTo: 10, for: mine).map(\.id) == [reconcile])
            let restore = try await world.restore("ann")
            let after = try await world.pool.withTransaction { connection in
                let began = try await connection.query("SELECT clock_timestamp()::text").first?.decode(
                    String.self,
                    at: 0
                )
                if ends {
                    let end = JobEnd(
                        id: reconcile,
                        userKey: key,
                        kind: .reconcile,
                        state: .done,
                        outcome: .unchanged,
                        attempt: 0
                    )
                    try await connection.send(JobEnds.finish([end]) { #expect($0 == 1) })
                } else {
                    let retry = JobRetry(
                        userKey: key,
                        kind: .reconcile,
                        after: .seconds(60),
                        attempt: 1,
                        error: "timeout"
                    )
                    try await connection.send(JobEnds.retry([retry]))
                }
                return try #require(began)
            }
            // Those who claim do not look at what was due before their last finding.
            let row = try await world.number(
                """
                SELECT count(*) FROM entitlement_sync.queue AS q
                 WHERE q.lane = 0 AND q.owner IS NULL AND q.restore_id = \(restore)
                   AND q.due BETWEEN \(after)::timestamptz AND clock_timestamp()
                """
            )
            #expect(row == 1)
            let restores = [JobQueue.LaneLimit(lane: .restore, limit: 10)]
            #expect(try await queue.claim(restores, upTo: 10, for: mine).map(\.id) == [restore])
        }
    }

    private func lease(_ leases: Leases) async throws -> Int32 {
        try await leases.register(.init(host: "test", pid: 1, version: "test"))
    }

    private func key(_ user: String, _ world: World) async throws -> Int64 {
        try await world.number("SELECT user_key FROM entitlement_sync.user_sync WHERE user_id = \(user)")
    }
}
