import Diagnostics
import Postgres
import Queue
import TestSupport
import Testing

/// Failovers that may have lost commits are noticed by any worker that reaches the new server.
@Suite(.timeLimit(.minutes(5)))
struct CommitWatchTests {
    private static let findings = ["alarm.commits_at_risk", "alarm.commits_lost", "durability", "paused.demotions"]

    /// The names of doctor's findings that are about lost commits, with details and fixes.
    private static func findings(in pool: PostgresPool) async throws -> [String: Check] {
        let checks = await Doctor(pool: pool).checks().filter { !$0.ok && findings.contains($0.name) }
        return Dictionary(checks.map { ($0.name, $0) }) { $1 }
    }

    /// A primary, its standby, and a pool on each.
    private struct Pair {
        var world: World
        var primary: PrivatePostgres
        var standby: PrivatePostgres

        static func with(
            waiting isWaiting: Bool,
            _ body: @Sendable (Pair) async throws -> Void
        ) async throws {
            let primary = try await PrivatePostgres.start()
            try await World.with(on: primary) { world in
                let standby = try await primary.standby()
                if isWaiting {
                    for setting in ["synchronous_standby_names = 'standby'", "synchronous_commit = on"] {
                        try await primary.administer("ALTER SYSTEM SET \(setting)")
                    }
                    try await primary.administer("SELECT pg_reload_conf()")
                    // Each session takes the new settings on by itself, once it gets to it.
                    try await eventually("the setting has no effect") {
                        try await world.number(
                            "SELECT (current_setting('synchronous_standby_names') = 'standby')::int"
                        ) == 1
                    }
                }
                try await eventually("the standby does not follow") {
                    try await world.number("SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'") == 1
                }
                try await run {
                    try await body(Pair(world: world, primary: primary, standby: standby))
                } finally: {
                    try? await standby.stop(immediately: true)
                    // What the world leaves behind is dropped, which waits for no standby then.
                    try await primary.administer("ALTER SYSTEM RESET synchronous_standby_names")
                    try await primary.administer("SELECT pg_reload_conf()")
                }
            }
            try await primary.stop(immediately: true)
        }

        /// Waits until the standby has everything, promotes it, and works with a pool on it.
        func promoted(_ body: (PostgresPool) async throws -> Void) async throws {
            try await eventually("the standby stays behind") {
                try await world.number(
                    "SELECT (replay_lsn >= pg_current_wal_lsn())::int FROM pg_stat_replication"
                ) == 1
            }
            try await standby.promote()
            try await withPool(
                PostgresConfiguration(connectionString: standby.url(database: world.database.name)),
                body
            )
        }
    }

    @Test func `A failover between servers whose commits do not wait pauses demotions and names what to read again`()
        async throws
    {
        try await Pair.with(waiting: false) { pair in
            let watch = CommitWatch(pool: pair.world.pool)
            #expect(try await watch.note() == ["commits_at_risk"])
            try await pair.world.pool.query(
                "UPDATE entitlement_sync.server_watch SET noted_at = noted_at - interval '5 seconds'"
            )
            #expect(try await watch.note() == [], "not again within minutes")
            let before = try await Self.findings(in: pair.world.pool)
            #expect(before.keys.sorted() == ["alarm.commits_at_risk", "durability"])
            #expect(before["durability"]?.detail.contains("synchronous_standby_names is empty") == true)
            let lacks = try #require(
                try await pair.world.texts(
                    """
                    SELECT to_char(w.noted_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"')
                      FROM entitlement_sync.server_watch AS w
                    """
                ).first
            )
            try await pair.promoted { pool in
                let watch = CommitWatch(pool: pool)
                #expect(try await watch.note() == ["commits_lost"])
                #expect(try await watch.note() == [])
                let found = try await Self.findings(in: pool)
                #expect(found.keys.sorted() == ["alarm.commits_lost", "paused.demotions"], "\(found)")
                let fix = found["alarm.commits_lost"]?.fix ?? ""
                #expect(fix.contains("commits from \(lacks) on may be lost"), "\(fix) \(lacks)")
                let since = try #require(fix.firstMatch(of: /reconcile --since (\S+);/)?.1)
                #expect(since > lacks[...], "whoever was read before this server took over is read again")
                #expect(found["paused.demotions"]?.detail.contains("may have lost commits") == true)
                // A second failover before anybody acted: the first instant stands.
                try await pool.query(
                    "UPDATE entitlement_sync.server_watch SET timeline = timeline - 1, noted_at = now() + interval '1 hour'"
                )
                #expect(try await watch.note() == ["commits_lost"])
                let again = try await Self.findings(in: pool)["alarm.commits_lost"]?.fix ?? ""
                #expect(again.contains("commits from \(lacks) on"), "\(again)")
                try await Controls(pool: pool).set("demotions", paused: false)
                let left = try await pool.query(
                    "SELECT count(w.lacks_since) FROM entitlement_sync.server_watch AS w"
                ).one.decode(Int64.self)
                #expect(left == 0)
                #expect(try await Self.findings(in: pool)["paused.demotions"] == nil)
            }
        }
    }

    @Test func `A failover to a standby that has every commit is no finding`() async throws {
        try await Pair.with(waiting: true) { pair in
            #expect(try await CommitWatch(pool: pair.world.pool).note() == [])
            #expect(try await Self.findings(in: pair.world.pool).isEmpty)
            try await pair.promoted { pool async throws in
                #expect(try await CommitWatch(pool: pool).note() == [])
                #expect(try await Self.findings(in: pool).isEmpty)
            }
        }
    }

    @Test func `A copy on another server is no failover, and a server alone has nothing to wait for`() async throws {
        try await World.with(isFresh: true) { world in
            let watch = CommitWatch(pool: world.pool)
            #expect(try await watch.note() == [])
            try await world.pool.query(
                "UPDATE entitlement_sync.server_watch SET server_id = server_id - 1, timeline = timeline + 5"
            )
            #expect(try await watch.note() == [])
            #expect(try await Self.findings(in: world.pool).isEmpty)
            let noted = try await world.number("SELECT (w.is_waiting)::int FROM entitlement_sync.server_watch AS w")
            #expect(noted == 0)
        }
    }

    @Test func `A server that lacks what a worker has seen is a finding, however its commits were made`() async throws {
        try await World.with(isFresh: true) { world in
            let watch = CommitWatch(pool: world.pool)
            #expect(try await watch.note() == [])
            // As after a restore to an earlier instant, or where the standby had not followed for a while.
            try await world.pool.query(
                "UPDATE entitlement_sync.server_watch SET notes = notes - 1, is_waiting = true"
            )
            #expect(try await CommitWatch(pool: world.pool).note() == [], "who has seen nothing misses nothing")
            try await world.pool.query("UPDATE entitlement_sync.server_watch SET notes = notes - 2")
            #expect(try await watch.note() == ["commits_lost"])
            #expect(try await Self.findings(in: world.pool)["paused.demotions"] != nil)
            #expect(try await watch.note() == [])
        }
    }

    @Test func `A pause that an operator set is taken over by a loss`() async throws {
        try await World.with(isFresh: true) { world in
            try await Controls(pool: world.pool).set("demotions", paused: true)
            let watch = CommitWatch(pool: world.pool)
            #expect(try await watch.note() == [])
            try await world.pool.query("UPDATE entitlement_sync.server_watch SET timeline = timeline - 1")
            #expect(try await watch.note() == ["commits_lost"])
            let found = try await Self.findings(in: world.pool)["paused.demotions"]
            #expect(found?.detail.contains("may have lost commits") == true)
        }
    }

    @Test func `A session whose commits do not wait for the disk is a finding`() async throws {
        try await World.with(isFresh: true) { world in
            let name = world.database.name
            try await world.database.server.administer("ALTER DATABASE \(name) SET synchronous_commit = off")
            let configuration = PostgresConfiguration(connectionString: world.database.url)
            let found = try await withPool(configuration) { try await Self.findings(in: $0) }
            #expect(found["durability"]?.detail.contains("synchronous_commit is off") == true, "\(found)")
        }
    }
}
