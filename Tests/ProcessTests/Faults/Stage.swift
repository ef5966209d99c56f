import Foundation
import Postgres
import TestSupport
import Testing

/// A site whose ways to the database and to the store can be broken, with a crew at work.
struct Stage: Sendable {
    /// Where the database is.
    enum Ground: Sendable {
        /// On the server that all tests share.
        case shared
        /// On a server of its own.
        case own
        /// On a server of its own with a standby that confirms every commit.
        case replicated
        /// On a server of its own whose tables are on a small disk.
        case smallTables
        /// On a server of its own whose log is on a small disk.
        case smallLog
    }

    let site: Site
    let crew: Crew
    let server: PrivatePostgres
    let standby: PrivatePostgres?
    /// The small disk, where there is one.
    let disk: SmallDisk?
    /// The workers' way to the database.
    let database: Relay
    /// The workers' way to the store.
    let store: Relay

    /// Few jobs at once before a slow store, so that there is work all the time.
    private static let settings = FaultRuns.settings.merging(["WORKER_CONCURRENCY": "16", "WORKER_BATCH": "16"]) { $1 }

    /// Sets a stage up, lets two workers begin, and takes it down.
    ///
    /// - Parameters:
    ///   - ground: where the database is.
    ///   - crowd: whose restores there are to do.
    ///   - settings: the workers' further settings.
    ///   - seed: what random choices follow.
    ///   - body: what happens while they work.
    /// - Throws: what the body threw, or why there is no such stage.
    static func with(
        _ ground: Ground,
        crowd: Crowd,
        settings: [String: String] = [:],
        seed: UInt64,
        _ body: @Sendable (Stage) async throws -> Void
    ) async throws {
        let disk = ground.hasSmallDisk ? try SmallDisk(megabytes: ground == .smallLog ? 64 : 96) : nil
        defer { disk?.remove() }
        let server = try await ground.server(on: disk)
        let standby = ground == .replicated ? try await server.standby() : nil
        if standby != nil {
            for setting in ["synchronous_standby_names = 'standby'", "synchronous_commit = on"] {
                try await server.administer("ALTER SYSTEM SET \(setting)")
            }
            try await server.administer("SELECT pg_reload_conf()")
        }
        if ground == .smallTables, let disk {
            try await server.administer("CREATE TABLESPACE small LOCATION '\(disk.folder)'")
        }
        let simulator = try await Simulator(scenario: crowd.scenario)
        let toDatabase = Relay(to: server.port)
        let toStore = Relay(to: UInt16(simulator.port))
        try await Site.with(
            on: ground == .shared ? nil : server,
            at: { address(of: $0, standby) },
            store: "http://127.0.0.1:\(toStore.port)/v2",
            settings: Self.settings.merging(settings) { $1 }
        ) { site in
            if ground == .smallTables {
                // Nobody has connected yet.
                try await server.administer("ALTER DATABASE \(site.database.name) SET TABLESPACE small")
            }
            var site = site
            if standby == nil {
                site.settings["DATABASE_URL"] = try site.database.tcpURL.replacing(
                    "port=\(server.port)",
                    with: "port=\(toDatabase.port)"
                )
            }
            try await site.execute(crowd.load)
            try await site.execute(Self.holdBack)
            let crew = try await Crew(2, of: site, seed: seed)
            try await body(
                Stage(
                    site: site,
                    crew: crew,
                    server: server,
                    standby: standby,
                    disk: disk,
                    database: toDatabase,
                    store: toStore
                )
            )
        }
        toDatabase.end()
        toStore.end()
        if ground != .shared { try? await server.stop(immediately: true) }
        try await standby?.stop(immediately: true)
    }

    private static func address(of database: TestDatabase, _ standby: PrivatePostgres?) -> String {
        guard let standby else { return database.tcpURL }
        return "host=127.0.0.1,127.0.0.1 port=\(database.server.port),\(standby.port) user=postgres"
            + " dbname=\(database.name) target_session_attrs=read-write"
    }

    /// Puts half of the jobs off, so that there is work whenever a test wants it, however fast or slow the machine is.
    private static let holdBack = """
        UPDATE entitlement_sync.queue AS q SET due = 'infinity', restore_due = 'infinity' WHERE q.user_key % 10 < 5
        """

    /// Lets the workers do some of what was put off.
    ///
    /// - Parameter tenths: which of the five tenths that were put off.
    /// - Throws: `PostgresError` while the database is away.
    func letGo(_ tenths: Range<Int64>) async throws {
        try await site.pool.query(
            """
            UPDATE entitlement_sync.queue AS q SET due = now(), restore_due = now()
             WHERE q.due = 'infinity' AND q.user_key % 10 >= \(tenths.lowerBound)
               AND q.user_key % 10 < \(tenths.upperBound)
            """
        )
    }

    /// How many jobs are put off.
    func putOff() async throws -> Int64 {
        try await site.number("SELECT count(*) FROM entitlement_sync.queue AS q WHERE q.due = 'infinity'")
    }

    /// Whether workers have taken up what was let go first; on a machine that stalls they may be done with it.
    func isTakenUp() async throws -> Bool {
        try await site.number(
            """
            SELECT (count(*) = 0 OR bool_or(q.owner IS NOT NULL))::integer::bigint FROM entitlement_sync.queue AS q
             WHERE q.user_key % 10 BETWEEN 1 AND 4
            """
        ) > 0
    }

    /// How many jobs have ended.
    func ended() async throws -> Int64 {
        try await site.number("SELECT count(*) FROM entitlement_sync.job_history")
    }

    /// Waits until so many jobs have ended.
    func untilEnded(_ goal: Int64) async throws {
        try await eventually("\(goal) jobs never ended", within: .seconds(120)) {
            try await ended() >= goal
        } saying: {
            await said
        }
    }

    /// The last that the workers said.
    var said: String {
        get async { String(await crew.log.suffix(3000)) }
    }
}

extension Stage.Ground {
    var hasSmallDisk: Bool { self == .smallTables || self == .smallLog }

    fileprivate func server(on disk: SmallDisk?) async throws -> PrivatePostgres {
        switch self {
        case .shared: return try await .shared
        case .own, .smallTables: return try await .start()
        case .replicated: return try await .start(settings: ["max_wal_senders": "4", "wal_keep_size": "'256MB'"])
        case .smallLog:
            return try await .start(
                settings: ["min_wal_size": "'2MB'", "max_wal_size": "'16MB'", "wal_recycle": "off"],
                options: ["--wal-segsize=1", "--waldir=\(disk?.folder ?? "")/wal"]
            )
        }
    }
}
