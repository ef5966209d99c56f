import Foundation
import Postgres
import TestSupport
import Testing

/// Databases that are not as they should be.
struct DatabaseFaultTests {
    /// One way in which a database is wrong.
    struct Condition: Sendable, CustomTestStringConvertible {
        var testDescription: String
        var template = DatabaseTemplate.selling
        /// What is done to a good database.
        var script = ""
        /// The role that connects.
        var user = "postgres"
        var code: Int32
        var texts: [String]
        /// The commands that are wrong here.
        var concerns: @Sendable (Command) -> Bool = { $0.need == .schema }
    }

    private static let conditions = [
        Condition(
            testDescription: "was never migrated",
            template: .host,
            code: 78,
            texts: ["run entitlement-sync migrate"]
        ),
        Condition(
            testDescription: "is behind this build",
            script: "UPDATE entitlement_sync.schema_release SET release = 0",
            code: 78,
            texts: ["at release 0", "run entitlement-sync migrate"]
        ),
        Condition(
            testDescription: "is ahead of this build and no longer fits it",
            script: "INSERT INTO entitlement_sync.schema_release VALUES (99, '', 99)",
            code: 78,
            texts: ["at release 99", "use the newer build"],
            concerns: { $0.need == .schema || $0.name == "migrate" }
        ),
        Condition(
            testDescription: "has lost its adapter",
            script: "DROP SCHEMA entitlement_sync_host CASCADE",
            code: 78,
            texts: ["the host adapter is not installed; run entitlement-sync migrate"]
        ),
        Condition(
            testDescription: "gives this user no rights",
            script: """
                DO $$ BEGIN CREATE ROLE process_tests_stranger LOGIN; EXCEPTION WHEN duplicate_object THEN NULL; END $$
                """,
            user: "process_tests_stranger",
            code: 77,
            texts: [],
            concerns: { $0.need != .nothing }
        ),
    ]

    @Test(
        "Every command refuses a database that is wrong, says why, and writes nothing",
        arguments: conditions.enumerated().map { ($0.offset, $0.element) }
    )
    func wrongDatabase(place: Int, condition: Condition) async throws {
        try await Site.with(condition.template) { site in
            try await site.execute("INSERT INTO users (id) VALUES ('user-1');" + condition.script)
            let before = try await site.content()
            var settings = site.settings
            settings["DATABASE_URL"] = try site.database.server.url(
                database: site.database.name,
                overTCP: true,
                user: condition.user
            )
            let commands = Command.share(place, of: Self.conditions.count) { Self.conditions[$1].concerns($0) }
            for command in commands {
                try await command.expectFailure(settings, code: condition.code, naming: condition.texts)
            }
            #expect(try await site.content() == before)
        }
    }

    @Test("What a user without rights is told depends on what they wanted to do")
    func whichRights() async throws {
        try await Site.with { site in
            try await site.execute(
                "DO $$ BEGIN CREATE ROLE process_tests_visitor LOGIN; EXCEPTION WHEN duplicate_object THEN NULL; END $$"
            )
            var settings = site.settings
            settings["DATABASE_URL"] = try site.database.server.url(
                database: site.database.name,
                overTCP: true,
                user: "process_tests_visitor"
            )
            let advice = [
                "migrate": "migrate as the owner of the host's tables",
                "worker": "grant it the role entitlement_sync_worker",
                "bench": "as a user with CREATEDB",
            ]
            for command in Command.all {
                guard let text = advice[command.name] else { continue }
                try await command.expectFailure(settings, code: 77, naming: [text])
            }
        }
    }

    @Test("171: a schema that is ahead of this build but still fits it serves every command except migrate")
    func aheadButCompatible() async throws {
        try await Site.with { site in
            try await site.execute(
                """
                INSERT INTO users (id) VALUES ('user-1');
                SELECT entitlement_sync.user_key_of('user-1');
                INSERT INTO entitlement_sync.schema_release VALUES (99, '', 1);
                """
            )
            // Others than those that wait for a worker.
            let right = Command.all.filter {
                $0.need == .schema && $0.name != "worker" && !["reconcile", "restore"].contains($0.name)
                    && !$0.words.starts(with: ["import", "--file"])
                    && !["retry", "cancel", "revoke"].contains($0.words[1...].first)
            }
            for command in right {
                let ending = try await Site.run(command.words, settings: site.settings)
                #expect(ending.code == 0, "\(command): \(ending)")
            }
            // An old worker goes on, and each decision tells by which version of the rules it was made.
            let simulator = try await Simulator(scenario: "customers: [{id: user-1, state: active}]")
            var working = site.settings
            working["REVENUECAT_BASE_URL"] = simulator.url
            try await site.execute("SELECT entitlement_sync.request_restore('user-1')")
            let worker = try await Site.run(["worker", "--until-idle"], settings: working)
            #expect(worker.code == 0, "\(worker)")
            #expect(try await site.answer("user-1") == "done restored restored")
            #expect(
                try await site.texts("SELECT DISTINCT d.version::text FROM entitlement_sync.decision AS d") == ["1"]
            )
            let migrate = try await site.run("migrate")
            #expect(migrate.code == 78)
            #expect(migrate.err.contains("use the newer build"), "\(migrate)")
        }
    }

    @Test("A migration that was edited after it was applied is refused by its name")
    func editedMigration() async throws {
        let copy = FileManager.default.temporaryDirectory.appendingPathComponent("process-tests-\(UUID().uuidString)")
        try FileManager.default.copyItem(at: URL(fileURLWithPath: Paths.sql), to: copy)
        defer { try? FileManager.default.removeItem(at: copy) }
        let name = try #require(
            FileManager.default.contentsOfDirectory(atPath: copy.path + "/migrations").sorted().first
        )
        let file = copy.appendingPathComponent("migrations/\(name)")
        try Data((Paths.text(file.path) + "-- one more line\n").utf8).write(to: file)
        try await Site.with(settings: ["ENTITLEMENT_SYNC_SQL_DIR": copy.path]) { site in
            let before = try await site.content()
            for words in [["migrate"], ["migrate", "--dry-run"]] {
                let ending = try await Site.run(words, settings: site.settings)
                #expect(ending.code == 78, "\(ending)")
                #expect(ending.out == "")
                #expect(ending.err.contains(name.dropLast(4)) && ending.err.contains("restore the file"), "\(ending)")
            }
            #expect(try await site.content() == before)
        }
    }
}
