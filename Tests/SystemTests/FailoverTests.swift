import Entitlements
import Postgres
import Queue
import TestSupport
import Testing
import UserRequests

/// What a process still believes after a failover that lost the end of what was committed.
@Suite struct FailoverTests {
    @Test func `A number is not given again: whose lease was lost is refused, and writes nothing`() async throws {
        try await World.with { world in
            try await world.add("ann")
            let leases = Leases(pool: world.pool, duration: .seconds(60))
            let old = try await leases.register(.init(host: "old", pid: 1, version: "v"))
            // The row is lost, and whatever numbers are drawn from begins again.
            try await world.pool.query("DELETE FROM entitlement_sync.worker")
            try await world.pool.query("SELECT setval('entitlement_sync.worker_epoch', 1, false)")
            var taken: Set<Int32> = []
            for pid in 1...200 {
                taken.insert(try await leases.register(.init(host: "new", pid: Int32(pid), version: "v")))
            }
            #expect(taken.count == 200 && !taken.contains(old))
            #expect(try await !leases.heartbeat(old))
            _ = try await world.restore("ann")
            let queue = JobQueue(pool: world.pool)
            #expect(try await queue.claim([.init(lane: .restore, limit: 1)], upTo: 1, for: old).isEmpty)
            #expect(
                try await queue.claim([.init(lane: .restore, limit: 1)], upTo: 1, for: try #require(taken.first)).count
                    == 1
            )
        }
    }

    @Test func `Numbers of purchases that are given twice are drawn again, by a new process and by one that goes on`()
        async throws
    {
        let users = ["ann", "bob", "cy"]
        try await World.with(customers: users.map { "{id: \($0), state: active}" }) { world in
            for user in users { try await world.add(user) }
            #expect(try await world.restored("ann").outcome == "restored")
            // The sequence lost its end: the next block is that of ann's purchase.
            try await world.pool.query("SELECT setval('entitlement_sync.purchase_id_block', 1000, false)")
            try await world.working {
                let second = try await world.restore("bob")
                try await world.waitUntil("SELECT count(*) FROM entitlement_sync.job_history WHERE id = \(second)")
                #expect(try await world.status(second).outcome == "restored")
                // Another process was given the same block, and has used its next number.
                try await world.pool.query(
                    """
                    INSERT INTO entitlement_sync.purchase
                    SELECT (jsonb_populate_record(p, jsonb_build_object('id', p.id + 1))).*
                      FROM entitlement_sync.purchase AS p ORDER BY p.id DESC LIMIT 1
                    """
                )
                let third = try await world.restore("cy")
                try await world.waitUntil("SELECT count(*) FROM entitlement_sync.job_history WHERE id = \(third)")
                #expect(try await world.status(third).outcome == "restored")
            }
        }
    }

    private static let defaults = [
        ("default_transaction_isolation", "repeatable read"), ("default_transaction_isolation", "serializable"),
        ("default_transaction_deferrable", "on"), ("default_transaction_read_only", "on"),
        ("TimeZone", "Asia/Kathmandu"), ("DateStyle", "German"), ("IntervalStyle", "iso_8601"),
        ("statement_timeout", "1"), ("lock_timeout", "1"), ("idle_in_transaction_session_timeout", "1"),
        ("idle_session_timeout", "1"), ("search_path", "nowhere"), ("bytea_output", "escape"),
        ("standard_conforming_strings", "off"), ("extra_float_digits", "-15"), ("array_nulls", "off"),
        ("transform_null_equals", "on"),
    ]

    /// One after the other in the full profile; in the bounded one all at once, of the isolations the last.
    @Test(arguments: Profile.isFull ? defaults.map { [$0] } : [defaults])
    func `What a role or database carries as a default changes no session of ours`(_ settings: [(String, String)])
        async throws
    {
        // Sessions of before would not have them.
        try await World.with(customers: ["{id: ann, state: active}"], isFresh: true) { world in
            try await world.add("ann")
            for (name, value) in settings {
                try await world.database.server.administer(
                    "ALTER DATABASE \(world.database.name) SET \(name) = '\(value)'"
                )
            }
            let configuration = PostgresConfiguration(
                connectionString: world.database.url,
                maxConnections: 1,
                sessionSettings: SessionSettings.ordinary
            )
            try await withPool(configuration) { pool in
                let app = AppRequests(pool: pool)
                let job = try await app.restore(RestoreWish(userID: "ann")).id
                try await world.work()
                #expect(try await app.answers([job]).first?.hasEnded == true)
                #expect(try await world.status(job).outcome == "restored")
            }
        }
    }
}
