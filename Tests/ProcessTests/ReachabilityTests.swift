import Foundation
import Postgres
import TestSupport
import Testing

/// Databases that cannot be reached, that do not answer, and tables that somebody holds.
struct ReachabilityTests {
    private static func onServer(_ place: Int) -> [Command] {
        Command.share(place, of: 6) { command, _ in command.need != .nothing }
    }

    @Test(
        "A database that cannot be reached is named with the setting to check",
        arguments: [
            (0, "postgres://app:hunter2@127.0.0.1:PORT/app", 69 as Int32, "check DATABASE_URL"),
            (1, "postgres://app:hunter2@no-such-host.invalid/app", 69, "check DATABASE_URL"),
            (2, "host=/nonexistent", 69, "check DATABASE_URL"),
            (3, "postgres://app:hunter2@[::1/app", 78, "DATABASE_URL"),
            (4, "postgres://app:hunter2@127.0.0.1:PORT/app?sslmode=perhaps", 78, "DATABASE_URL"),
            (5, "host=127.0.0.1 prot=1 password=hunter2", 78, "DATABASE_URL"),
        ]
    )
    func unreachable(place: Int, url: String, code: Int32, text: String) async throws {
        let closed = ClosedPort()
        let settings = Site.settings(url.replacingOccurrences(of: "PORT", with: "\(closed.number)"))
        for command in Self.onServer(place) { try await command.expectFailure(settings, code: code, naming: [text]) }
    }

    @Test("Without DATABASE_URL libpq's own variables hold, and a failure names both")
    func missingURL() async throws {
        var settings = Site.settings("")
        settings["PGHOST"] = "/nonexistent"
        for command in Self.onServer(1) {
            try await command.expectFailure(settings, code: 69, naming: ["DATABASE_URL", "PGHOST"])
        }
    }

    @Test("A server that turns the user or the database down is named with the setting to check")
    func turnedDown() async throws {
        let server = try await PrivatePostgres.shared
        try await server.administer(
            """
            DO $$ BEGIN CREATE ROLE password_required; EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL; END $$;
            DO $$ BEGIN CREATE ROLE process_tests_user LOGIN PASSWORD 'right' IN ROLE password_required;
            EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL; END $$
            """
        )
        let there = "127.0.0.1:\(server.port)"
        let cases: [(String, Int32, String)] = [
            ("postgres://process_tests_user:hunter2@\(there)/postgres", 78, "check user and password in DATABASE_URL"),
            ("postgres://nobody-of-that-name:hunter2@\(there)/postgres", 78, "check user and password in DATABASE_URL"),
            ("postgres://postgres@\(there)/no-such-database", 69, "check the database's name in DATABASE_URL"),
        ]
        for (url, code, text) in cases {
            for command in Self.onServer(2) {
                try await command.expectFailure(Site.settings(url), code: code, naming: [text])
            }
        }
    }

    @Test("A server that takes connections and never says a word is given up within seconds")
    func silentServer() async throws {
        let listener = LoopbackListener()
        defer { listener.close() }
        let settings = Site.settings("postgres://app:hunter2@127.0.0.1:\(listener.port)/app")
        try await Self.together(Self.onServer(3)) { command in
            try await command.expectFailure(settings, code: 69, naming: ["did not answer in time", "DATABASE_URL"])
        }
    }

    /// The wait for a lock runs out in a database that is well: that is a wait that elapsed, not a database that is
    /// unreachable.
    @Test("No command waits for ever for a table that somebody holds, and says how to find who does")
    func lockedSchema() async throws {
        try await Site.with { site in
            try await site.execute("INSERT INTO users (id) VALUES ('user-1')")
            try await Self.holding("entitlement_sync.schema_release", of: site) {
                // Migrations wait for one another, so the fewer the shorter.
                let others = Self.onServer(4).filter { $0.name != "bench" && $0.name != "migrate" }
                let migrations = [Command("migrate"), Command("migrate", "--dry-run", "--output", "json")]
                try await Self.together(others + migrations) { command in
                    try await command.expectFailure(site.settings, code: 75, naming: ["locked", "pg_stat_activity"])
                }
            }
        }
    }

    @Test("A first migration that meets a locked host table stops, and goes on where it stopped when it is free")
    func lockedHost() async throws {
        try await Site.with(.host) { site in
            try await Self.holding("users", of: site) {
                let ending = try await site.run("migrate")
                #expect(ending.code == 75, "\(ending)")
                #expect(ending.out == "")
                #expect(ending.err.contains("the host adapter: a table has been locked"), "\(ending)")
                #expect(ending.err.contains("run entitlement-sync migrate again"), "\(ending)")
                #expect(ending.took < .seconds(20))
            }
            let ending = try await site.run("migrate")
            #expect(ending.code == 0, "\(ending)")
            #expect(try await site.run("worker", "--until-idle").code == 0)
        }
    }

    @Test("A worker whose queue somebody holds waits for it, and works when it is free")
    func lockedQueue() async throws {
        let simulator = try await Simulator(scenario: "customers: [{id: user-1, state: active}]")
        try await Site.with(store: simulator.url) { site in
            try await site.execute(
                "INSERT INTO users (id) VALUES ('user-1'); SELECT entitlement_sync.request_restore('user-1')"
            )
            let worker = Slot<Program>()
            try await Self.holding("entitlement_sync.queue", of: site) {
                let started = try await site.start("worker", "--until-idle")
                worker.value = started
                try await started.find("55P03", within: .seconds(15))
            }
            let ending = try await #require(worker.value).ending()
            #expect(ending.code == 0, "\(ending)")
            #expect(try await site.answer("user-1") == "done restored restored")
        }
    }

    /// Runs a body while another session holds a table.
    private static func holding(_ table: String, of site: Site, _ body: () async throws -> Void) async throws {
        let holder = try PostgresConnection(configuration: .init(connectionString: site.database.url))
        try await holder.open()
        try await run {
            try await holder.execute(script: "BEGIN; LOCK TABLE \(table) IN ACCESS EXCLUSIVE MODE")
            try await body()
        } finally: {
            await holder.close()
        }
    }

    /// Waits are long and cost nothing, so they are spent together.
    private static func together(_ commands: [Command], _ body: @escaping @Sendable (Command) async throws -> Void)
        async throws
    {
        try await withThrowingTaskGroup(of: Void.self) { group in
            for command in commands { group.addTask { try await body(command) } }
            try await group.waitForAll()
        }
    }
}
