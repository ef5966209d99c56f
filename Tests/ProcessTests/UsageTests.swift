import Foundation
import Postgres
import TestSupport
import Testing

/// What people mistype: flags, arguments, settings and data.
struct UsageTests {
    /// With an unknown flag, or with a malformed configuration.
    private static func commands(_ place: Int) -> [Command] {
        Command.share(place, of: 2) { command, place in place == 0 || command.need != .nothing }
    }

    @Test("An unknown flag is a usage error that names the flag", arguments: commands(0))
    func unknownFlag(command: Command) async throws {
        var command = command
        command.words.append("--no-such-flag")
        let ending = try await Site.run(command.words, settings: [:])
        #expect(ending.code == 64, "\(ending)")
        #expect(ending.out == "")
        #expect(ending.err.hasPrefix("entitlement-sync: Unknown option '--no-such-flag'\nUsage: "), "\(ending)")
    }

    @Test(
        "A missing or malformed argument is a usage error that names it",
        arguments: [
            ("restore", "<user>"), ("reconcile", "name at least one user"), ("explain", "<user>"),
            ("explain user-1 --reply tlh", "--reply: give one of de, en, es, fr, it, pt"),
            ("explain user-1 --reply --at 2026-11-23", "leave out --at"),
            ("replay", "name at least one user, or --all"), ("replay user-1 --all", "name at least one user, or --all"),
            ("replay --all --limit -1", "--limit"), ("shadow --limit=-1", "--limit: give 0 or more"),
            ("grant add", "<user>"), ("grant add user-1 --reason r", "--until"),
            ("grant add user-1 --until 2099-01-01", "--reason"), ("grant revoke", "<id>"),
            ("grant revoke first", "'first' is invalid for '<id>'"), ("adopt", "--file"), ("sandbox allow", "<user>"),
            ("sandbox allow user-1", "--until"), ("pause", "<what>"),
            ("resume everything", "'demotions', 'transfers' or 'all'"),
            ("queue retry", "name a job, or an error"), ("queue cancel", "<job>"),
            ("queue dead --limit 0", "--limit: give 1 to"),
            ("simulate", "--scenario"), ("simulate --scenario x --port 70000", "--port: give 0 to 65535"),
            ("bench --jobs 1", "--jobs: give 1000"), ("restore user-1 --wait soon", "'soon' is invalid for '--wait"),
            ("restore user-1 --wait 86401", "--wait: give seconds"),
            ("restore user-1 --output xml", "'text' and 'json'"),
            ("migrate --adapter", "--adapter"), ("no-such-command", "no-such-command"),
            ("queue no-such-command", "no-such-command"), ("reconcil user-1", "did you mean reconcile?"),
            ("runs sow 1", "no command runs sow; did you mean show?"), ("uninstall", "--dry-run: give it"),
            ("completion tcsh", "'bash', 'zsh' or 'fish'"),
        ]
    )
    func missingArgument(line: String, text: String) async throws {
        let ending = try await Site.run(line.split(separator: " ").map(String.init), settings: [:])
        #expect(ending.code == 64, "\(ending)")
        #expect(ending.out == "")
        #expect(ending.err.hasPrefix("entitlement-sync: ") && ending.err.contains(text), "\(ending)")
    }

    @Test("Every fault of the configuration is listed at once", arguments: commands(1))
    func malformedConfiguration(command: Command) async throws {
        let settings = [
            "DATABASE_URL": "hunter2", "WORKER_BATCH": "0", "LOG_LEVEL": "loud", "REVENUECAT_API_KEY": "sk_hunter2",
            "MODE": "sometimes", "REVENUECAT_BASE_URL": "http://example.com/v2",
        ]
        let ending = try await Site.run(command.words, settings: settings)
        #expect(ending.code == 78, "\(ending)")
        #expect(ending.out == "")
        let lines = ending.err.split(separator: "\n").map(String.init)
        #expect(lines.first == "entitlement-sync: The configuration has 6 faults:", "\(ending)")
        for name in [
            "DATABASE_URL", "WORKER_BATCH", "LOG_LEVEL", "REVENUECAT_PROJECT_ID", "MODE", "REVENUECAT_BASE_URL",
        ] {
            #expect(lines.count { $0.hasPrefix("  \(name): ") && $0.contains(". Set ") } == 1, "\(name): \(ending)")
        }
        #expect(!ending.err.contains("hunter2"), "\(ending)")
    }

    @Test("What only a store's client can't use is listed at once too, before anything is asked for")
    func unusableStores() async throws {
        let settings = [
            "DATABASE_URL": "postgres://nobody@127.0.0.1:1/nowhere", "GOOGLE_PLAY_PACKAGE_NAME": "hunter2",
            "GOOGLE_PLAY_SERVICE_ACCOUNT": #"{"private_key":"hunter2"}"#, "APP_STORE_BUNDLE_ID": "com.example.app",
            "APP_STORE_ISSUER_ID": "hunter2/", "APP_STORE_KEY_ID": "KEY",
            "APP_STORE_PRIVATE_KEY": "-----BEGIN PRIVATE KEY-----hunter2", "APP_STORE_ROOT_CERTIFICATES": "/dev/null",
            "ONSIDE_MERCHANT_ID": "hunter2\"", "ONSIDE_MERCHANT_SECRET": "s", "ONSIDE_SECRET_KEY_ID": "k",
            "ONSIDE_BUNDLE_ID": "com.example.app",
        ]
        let ending = try await Site.run(["worker", "--until-idle"], settings: settings)
        #expect(ending.code == 78 && ending.out == "", "\(ending)")
        let lines = ending.err.split(separator: "\n").map(String.init)
        #expect(lines.first == "entitlement-sync: The configuration has 6 faults:", "\(ending)")
        for name in [
            "APP_STORE_ROOT_CERTIFICATES", "APP_STORE_ISSUER_ID", "APP_STORE_PRIVATE_KEY", "GOOGLE_PLAY_PACKAGE_NAME",
            "GOOGLE_PLAY_SERVICE_ACCOUNT", "ONSIDE_MERCHANT_ID",
        ] {
            #expect(lines.count { $0.hasPrefix("  \(name): ") && $0.contains(". Set ") } == 1, "\(name): \(ending)")
        }
        #expect(!ending.err.contains("hunter2"), "\(ending)")
    }

    @Test("A worker without a store says which settings it lacks")
    func noStore() async throws {
        let ending = try await Site.run(["worker"], settings: ["DATABASE_URL": "host=127.0.0.1 port=1"])
        #expect(ending.code == 78)
        #expect(ending.out == "")
        #expect(ending.err.contains("set REVENUECAT_API_KEY and REVENUECAT_PROJECT_ID"), "\(ending)")
    }

    @Test("A program without its SQL files says where it looked", arguments: ["migrate", "bench"])
    func noSQL(command: String) async throws {
        try await Site.with(.host, settings: ["ENTITLEMENT_SYNC_SQL_DIR": "/nonexistent"]) { site in
            let ending = try await site.run(command)
            #expect(ending.code == 78)
            #expect(ending.out == "")
            #expect(ending.err.contains("set ENTITLEMENT_SYNC_SQL_DIR"), "\(ending)")
        }
    }

    @Test("Bad input data is refused by name, and nothing of it is written")
    func badData() async throws {
        let twoRows = try Paths.temporary(
            "user_id,until,reason\nuser-1,2099-01-01,r\nnobody,2099-01-01,r\n",
            suffix: ".csv"
        )
        let noHead = try Paths.temporary("user-1,2099-01-01,r\n", suffix: ".csv")
        let scenario = try Paths.temporary("customers: [{id: x, colour: red}]\n", suffix: ".yaml")
        defer { for file in [twoRows, noHead, scenario] { try? FileManager.default.removeItem(atPath: file) } }
        let calls: [([String], String)] = [
            (["restore", "nobody", "--output", "json"], "user_id: no such user"),
            (["restore", "user-1", "--proof", "transaction_id"], "--proof 1"),
            (["restore", "user-1", "--proof", "order_id=1", "--proof", "dream=1"], "--proof 2: unknown kind"),
            (["restore", "user-1", "--proof", "corner_shop:order_id=1"], "proofs[0].store: unknown store"),
            (["restore", "user-1", "--proof", "app_receipt=@/nonexistent"], "--proof 1: the file can't be read"),
            (
                ["restore", "user-1", "--client-error", String(repeating: "x", count: 501)],
                "client_error: longer than 500"
            ),
            (["reconcile", "user-1", "nobody", "noone"], "user_id: no such user: nobody, noone."),
            (["explain", "nobody", "--output", "json"], "no such user"),
            (["explain", "user-1", "--at", "noon"], "--at: write"),
            (["grant", "add", "nobody", "--until", "2099-01-01", "--reason", "r"], "user_id: no such user"),
            (["grant", "add", "user-1", "--until", "soon", "--reason", "r"], "--until: write an instant"),
            (["grant", "revoke", "77"], "no grant 77 is in force"), (["adopt", "--file", "/nonexistent"], "--file"),
            (["adopt", "--file", noHead], "line 1"), (["adopt", "--file", twoRows], "line 3: user_id: no such user"),
            (["sandbox", "allow", "nobody", "--until", "2099-01-01"], "user_id: no such user"),
            (["queue", "retry", "soon"], "JOB: give a reference such as R-7K3Q-92"),
            (["queue", "retry", Command.job], "JOB: it is not dead"),
            (["queue", "cancel", Command.job], "no queued or running job"),
            (["simulate", "--scenario", "/nonexistent"], "/nonexistent cannot be read"),
            (
                ["simulate", "--scenario", Command.scenario, "--keys", "/dev/null/keys"],
                "--keys: /dev/null/keys can't be made"
            ),
            (["simulate", "--scenario", scenario], "customers[0].colour is no known key"),
        ]
        try await Site.with { site in
            try await site.execute("INSERT INTO users (id) VALUES ('user-1')")
            let before = try await site.content()
            for (words, text) in calls {
                try await Self.command(words).expectFailure(site.settings, code: 65, naming: [text])
            }
            #expect(try await site.content() == before)
        }
    }

    @Test func `What an operator did is told as it stands then`() async throws {
        try await Site.with { site in
            try await site.execute("INSERT INTO users (id) VALUES ('user-1')")
            let words: [([String], String)] = [
                (["pause", "all"], "all paused"), (["pause", "demotions"], "demotions paused"),
                (["resume", "all"], "all resumed; still paused: demotions\n"),
                (["resume", "demotions"], "demotions resumed\n"),
                (
                    ["grant", "add", "user-1", "--until", "2020-01-01", "--reason", "r"],
                    "is over already and gives no access"
                ),
                (["grant", "add", "user-1", "--until", "never", "--reason", "r"], "the user will be checked"),
                (["grant", "list"], "infinity"), (["doctor", "--quiet"], "All is well.\n"),
                (
                    ["sandbox", "allow", "user-1", "--until", "2020-01-01"],
                    "do not count: 2020-01-01T00:00:00Z is over"
                ),
            ]
            for (command, text) in words {
                let ending = try await Site.run(command, settings: site.settings)
                #expect(ending.code == 0 && ending.out.contains(text), "\(ending)")
            }
        }
    }

    private static func command(_ words: [String]) -> Command {
        var command = Command()
        command.words = words
        return command
    }
}
