import Foundation
import Postgres
import TestSupport
import Testing

/// Setting up: what a slip does, and who tells of it.
struct SetupTests {
    private static let roles = ["api", "auditor", "client", "support", "worker"].map { "entitlement_sync_\($0)" }

    @Test func `serve starts for the console alone where the console has an address of its own`() async throws {
        try await Site.with { site in
            let bare = try await site.run("serve")
            #expect(bare.code == 78 && bare.err.contains("for the console alone CONSOLE_PORT"), "\(bare)")
            var settings = site.settings
            settings.merge(["HTTP_PORT": "0", "ADMIN_PORT": "0", "CONSOLE_PORT": "0"]) { $1 }
            let serve = try await Program([Paths.program, "serve"], environment: Site.environment(settings))
            try await eventually("the console is not served") { serve.err.contains("serving the console") }
            #expect(try await serve.stop().code == 0)
        }
    }

    @Test("Roles that a migration may not make are named with the SQL for them, and one made later gets its privileges")
    func lateRoles() async throws {
        let server = try await PrivatePostgres.start()
        try await Site.with(.empty, on: server, at: \.tcpURL) { site in
            try await site.execute(
                """
                CREATE ROLE company LOGIN;
                CREATE ROLE syncworker LOGIN;
                ALTER DATABASE "\(site.database.name)" OWNER TO company;
                GRANT ALL ON SCHEMA public TO company;
                """
            )
            let owner = try Self.settings(of: site, on: server, as: "company")
            let host = PostgresConnection(configuration: .init(connectionString: owner["DATABASE_URL"]))
            try await host.open()
            try await host.execute(script: try Paths.text(Paths.sql + "/host/schema.sql"))
            await host.close()
            let tried = try await Site.run(["migrate", "--dry-run"], settings: owner)
            for role in Self.roles { #expect(tried.err.contains("CREATE ROLE \(role) NOLOGIN;"), "\(tried)") }
            let first = try await Site.run(["migrate"], settings: owner)
            #expect(first.code == 0, "\(first)")
            for role in Self.roles { #expect(first.err.contains("CREATE ROLE \(role) NOLOGIN;"), "\(first)") }
            // As a superuser, word by word.
            let lines = first.err.split(separator: "\n").filter { $0.contains("CREATE ROLE") }.joined(separator: "\n")
            try await site.execute(lines)
            try await site.execute("GRANT entitlement_sync_worker TO syncworker")
            let lacking = try await Site.run(["doctor"], settings: owner)
            #expect(lacking.out.contains("!!  privileges: roles lack"), "\(lacking)")
            let second = try await Site.run(["migrate"], settings: owner)
            #expect(second.code == 0 && second.err == "", "\(second)")
            let worker = try Self.settings(of: site, on: server, as: "syncworker")
            let doctor = try await Site.run(["doctor"], settings: worker)
            #expect(doctor.out.contains("ok  privileges: every role that exists has its privileges"), "\(doctor)")
            #expect(!doctor.out.contains("could not be"), "\(doctor)")
            let work = try await Site.run(["worker", "--until-idle"], settings: worker)
            #expect(work.code == 0, "\(work)")
        }
        try await server.stop()
    }

    private static func settings(of site: Site, on server: PrivatePostgres, as user: String) throws -> [String: String]
    {
        var settings = site.settings
        settings["DATABASE_URL"] = try server.url(database: site.database.name, overTCP: true, user: user)
        return settings
    }

    @Test("An adapter that passes the host's own words on is refused with function, value and what is allowed")
    func foreignWords() async throws {
        let fitting = try Paths.text(Paths.fixtures + "/other_adapter.sql")
        try await Site.with(.empty) { site in
            try await site.execute(Paths.text(Paths.fixtures + "/other_host.sql"))
            try await site.execute(
                "INSERT INTO shop.accounts (uid, plan, state) VALUES ('payer', 'premium', 1), ('new', 'basic', 0), ('odd', 'basic', 9)"
            )
            for words in [["migrate", "--dry-run"], ["migrate"]] {
                let odd = try await Site.run(
                    words + ["--adapter", Paths.fixtures + "/other_adapter.sql"],
                    settings: site.settings
                )
                #expect(odd.code == 78 && odd.err.contains("gave status NULL"), "\(odd)")
            }
            try await site.execute("DELETE FROM shop.accounts WHERE uid = 'odd'")
            let invoker = fitting.replacingOccurrences(of: "SECURITY DEFINER", with: "")
            try Self.refused(try await Self.migrate(invoker, site), naming: ["lock_users", "are not SECURITY DEFINER"])
            let tried = try await Self.migrate(fitting, site, "--dry-run")
            #expect(tried.code == 0, "\(tried)")
            #expect(
                try await site.number("SELECT count(*) FROM pg_namespace WHERE nspname = 'entitlement_sync_host'") == 0
            )
            #expect(try await Self.migrate(fitting, site).code == 0)
        }
    }

    private static func migrate(_ adapter: String, _ site: Site, _ more: String...) async throws -> Program.Ending {
        let file = try Paths.temporary(adapter, suffix: ".sql")
        defer { try? FileManager.default.removeItem(atPath: file) }
        return try await Site.run(["migrate", "--adapter", file] + more, settings: site.settings)
    }

    private static func refused(_ ending: Program.Ending, naming texts: [String]) throws {
        #expect(ending.code == 78, "\(ending)")
        for text in texts { #expect(ending.err.contains(text), "\(ending)") }
    }

    @Test("An adapter file that is not there is said not to be there")
    func missingFile() async throws {
        try await Site.with { site in
            let ending = try await site.run("migrate", "--adapter", "/nonexistent/adapter.sql")
            #expect(ending.code == 78 && ending.err.contains("there is no adapter file"), "\(ending)")
        }
    }

    @Test("One line at the start names version, mode, stores and products, and slips are named there and by doctor")
    func startLine() async throws {
        try await Site.with(settings: ["MODE": "observe", "MOOD": "full", "REVENUECAT_REQUESTS_PER_MINUT": "hunter2"]) {
            site in
            try await site.execute("DELETE FROM entitlement_sync.product")
            let ending = try await site.run("worker", "--until-idle")
            #expect(ending.code == 0, "\(ending)")
            let line = try #require(ending.err.split(separator: "\n").first { $0.contains("starting") }, "\(ending)")
            for word in ["mode=observe", "stores=revenuecat", "products=0", "outbox=off", "version=", "roles=worker"] {
                #expect(line.contains(word), "\(line)")
            }
            for text in ["MOOD", "REVENUECAT_REQUESTS_PER_MINUT", "no product of the store is mapped"] {
                #expect(ending.err.contains(text), "\(ending)")
            }
            let doctor = try await site.run("doctor")
            for text in [
                "!!  products: the table product is empty", "!!  variables:", "MOOD (MODE?)",
            ] { #expect(doctor.out.contains(text), "\(doctor)") }
            #expect(!doctor.out.contains("hunter2") && !ending.err.contains("hunter2"))
        }
    }

    @Test("Workers of different modes are a finding")
    func modes() async throws {
        try await Site.with { site in
            try await site.execute(
                """
                INSERT INTO entitlement_sync.worker (epoch, host, pid, version, mode, expires_at)
                VALUES (1000001, 'a', 1, '0.1.0', 'observe', now() + interval '1 hour'),
                       (1000002, 'b', 1, '0.1.0', 'full', now() + interval '1 hour')
                """
            )
            let doctor = try await site.run("doctor")
            #expect(doctor.out.contains("!!  worker_modes: workers that are alive:"), "\(doctor)")
            #expect(doctor.out.contains("mode observe") && doctor.out.contains("mode full"), "\(doctor)")
        }
    }

    @Test("Workers that ask different stores are a finding")
    func stores() async throws {
        try await Site.with { site in
            try await site.execute(
                """
                INSERT INTO entitlement_sync.worker (epoch, host, pid, version, mode, stores, expires_at)
                VALUES (1000001, 'a', 1, '0.1.0', 'full', '{app_store,revenuecat}', now() + interval '1 hour'),
                       (1000002, 'b', 1, '0.1.0', 'full', '{}', now() + interval '1 hour')
                """
            )
            let doctor = try await site.run("doctor")
            #expect(doctor.out.contains("!!  worker_modes: workers that are alive:"), "\(doctor)")
            #expect(doctor.out.contains("the stores app_store, revenuecat") && doctor.out.contains("the stores none"))
        }
    }

    @Test("Releasing or canceling a run that there is not says that there is none")
    func noRun() async throws {
        try await Site.with { site in
            let hash = String(repeating: "0", count: 64)
            for words in [["runs", "release", "99", "--hash", hash], ["runs", "cancel", "99"]] {
                let ending = try await Site.run(words, settings: site.settings)
                #expect(ending.code == 65 && ending.err.contains("there is no run of this number"), "\(ending)")
            }
        }
    }
}
