import Diagnostics
import Migrations
import Postgres
import TestSupport
import Testing
import UserRequests

/// What the host adapter gives that the worker can't read.
@Suite struct AdapterFaultTests {
    /// A value that a host has and the contract does not know.
    struct Slip: Sendable, CustomStringConvertible {
        /// What is changed in the adapter's functions.
        var from: String
        var to: String
        /// The function that is changed.
        var function: String
        /// What has to be named.
        var named: [String]
        var description: String { "\(function): \(to)" }
    }

    private static let slips = [
        Slip(from: "u.type", to: "'pro'::text", function: "lock_users", named: ["lock_users", "type", "pro"]),
        Slip(
            from: "u.status",
            to: "'enabled'::text",
            function: "lock_users",
            named: ["lock_users", "status", "enabled"]
        ),
        Slip(from: "u.status", to: "NULL::text", function: "lock_users", named: ["lock_users", "status", "NULL"]),
        Slip(from: "u.type", to: "NULL::text", function: "lock_users", named: ["lock_users", "type", "NULL"]),
    ]

    /// Changes one function of the installed adapter.
    private static func apply(_ slip: Slip, in world: World) async throws {
        try await world.pool.query(
            """
            DO $do$ BEGIN
                EXECUTE (SELECT replace(pg_get_functiondef(p.oid), '\(rawSQL: slip.from)', $x$\(rawSQL: slip.to)$x$) FROM pg_proc AS p
                          WHERE p.pronamespace = 'entitlement_sync_host'::regnamespace AND p.proname = '\(rawSQL: slip.function)');
            END $do$
            """
        )
    }

    @Test(arguments: slips)
    func `A word that the contract does not know ends a job with an error and an alarm of its own`(_ slip: Slip)
        async throws
    {
        try await World.with(customers: ["{id: ann, state: active}"]) { world in
            try await world.add("ann")
            try await Self.apply(slip, in: world)
            let job = try await world.restored("ann")
            #expect(job.state == "dead" && job.lastError == "adapter_refused", "\(job)")
            let alarm = try await world.texts(
                "SELECT a.detail FROM entitlement_sync.alarm AS a WHERE a.name = 'adapter_refused'"
            )
            for word in slip.named { #expect(alarm.first?.contains(word) == true, "\(alarm)") }
            #expect(try await world.type(of: "ann") == "free")
        }
    }

    @Test func `One user with a strange word spoils no other user's job`() async throws {
        let others = (1...12).map { "bob-\($0)" }
        try await World.with(customers: (["ann"] + others).map { "{id: \($0), state: active}" }) { world in
            for user in ["ann"] + others { try await world.add(user) }
            let slip = Slip(
                from: "u.type",
                to: "CASE u.id WHEN 'ann' THEN 'pro' ELSE u.type END",
                function: "lock_users",
                named: []
            )
            try await Self.apply(slip, in: world)
            let ann = try await world.restore("ann")
            for user in others { _ = try await world.restore(user) }
            try await world.work()
            #expect(try await world.status(ann).lastError == "adapter_refused")
            #expect(try await world.number("SELECT count(*) FROM users WHERE type = 'subscriber'") == 12)
        }
    }

    @Test func `A page of real rows shows which function gives what`() async throws {
        try await World.with { world in
            for user in ["ann", "bob"] { try await world.add(user) }
            let check = AdapterCheck(pool: world.pool)
            #expect(try await check.faults() == [])
            try await Self.apply(
                Slip(from: "u.type", to: "'pro'::text", function: "page_users", named: []),
                in: world
            )
            try await Self.apply(
                Slip(from: "u.status", to: "NULL::text", function: "read_users", named: []),
                in: world
            )
            try await Self.apply(
                Slip(from: "u.created_at", to: "NULL::timestamptz", function: "read_users", named: []),
                in: world
            )
            try await world.pool.query("ALTER FUNCTION entitlement_sync_host.set_type(text[], text) SECURITY INVOKER")
            let faults = try await check.faults()
            #expect(faults.count == 4, "\(faults)")
            for words in [
                ["set_type is not SECURITY DEFINER"],
                ["page_users gave type 'pro' in 2 of 2 rows", "free, subscriber"],
                ["read_users gave status NULL in 2 of 2 rows", "to_be_deleted"],
                ["read_users gave created_at NULL in 2 of 2 rows"],
            ] {
                #expect(faults.contains { fault in words.allSatisfy(fault.contains) }, "\(words): \(faults)")
            }
            let found = await Doctor(pool: world.pool).checks().first { $0.name == "adapter_users" }
            #expect(found?.ok == false && found?.detail.contains("2 users") == true)
        }
    }
}
