import Foundation
import Postgres
import TestSupport
import Testing

/// Sandbox purchases of testers, by `SANDBOX`.
@Suite struct SandboxTests {
    private static let scenario = "customers: [{id: tess, state: sandbox}, {id: other, state: sandbox}]\n"

    private static func work(_ site: Site, sandbox: String) async throws {
        var site = site
        site.settings["SANDBOX"] = sandbox
        let ending = try await site.run("worker", "--until-idle")
        try #require(ending.code == 0, "\(ending)")
    }

    @Test("158: SANDBOX=off gives a listed tester nothing, and listed gives it back")
    func off() async throws {
        let simulator = try await Simulator(scenario: Self.scenario)
        try await Site.with(store: simulator.url, settings: ["ABSENCE_MARGIN_SECONDS": "0"]) { site in
            try await site.execute("INSERT INTO users (id) VALUES ('tess'), ('other');")
            var off = site
            off.settings["SANDBOX"] = "off"
            let allowed = try await off.run("sandbox", "allow", "tess", "--until", "2099-01-01")
            #expect(allowed.code == 0 && allowed.out.contains("SANDBOX=off"), "\(allowed)")
            for user in ["tess", "other"] { _ = try await site.run("restore", user) }
            try await Self.work(site, sandbox: "off")
            #expect(try await site.answer("tess") == "done nothing_to_restore nothing.sandbox")
            #expect(try await site.answer("other") == "done nothing_to_restore nothing.sandbox")
            #expect(try await site.texts("SELECT type FROM users ORDER BY 1") == ["free", "free"])

            // The change alone has the listed users checked.
            try await Self.work(site, sandbox: "listed")
            #expect(try await site.texts("SELECT id FROM users WHERE type = 'subscriber'") == ["tess"])
            let until =
                "SELECT coalesce(e.until, '-') FROM entitlement_sync.entitlement_answer('tess') AS e" as PostgresQuery
            #expect(try await site.texts(until) != ["-"])

            try await Self.work(site, sandbox: "off")
            #expect(try await site.texts(until) == ["-"], "the app's answer knows it at once")
            _ = try await site.run("reconcile", "tess", "--wait", "0")
            try await Self.work(site, sandbox: "off")
            #expect(try await site.texts("SELECT type FROM users ORDER BY 1") == ["free", "free"])
        }
    }

    @Test func `SANDBOX=off holds for as long as one live worker says so`() async throws {
        let simulator = try await Simulator(scenario: Self.scenario)
        try await Site.with(store: simulator.url, settings: ["ABSENCE_MARGIN_SECONDS": "0"]) { site in
            try await site.execute("INSERT INTO users (id) VALUES ('tess');")
            _ = try await site.run("sandbox", "allow", "tess", "--until", "2099-01-01")
            var off = site
            off.settings["SANDBOX"] = "off"
            let first = try await off.start("worker")
            try await site.waitUntil("SELECT count(*) FROM entitlement_sync.worker AS w WHERE w.sandbox = 'off'")
            let second = try await site.start("worker")
            try await site.waitUntil("SELECT count(*) FROM entitlement_sync.worker AS w WHERE w.sandbox = 'listed'")
            try await site.waitUntil("SELECT (count(*) = 0)::integer::bigint FROM entitlement_sync.queue")
            let mode = "SELECT m.mode FROM entitlement_sync.sandbox_mode AS m" as PostgresQuery
            #expect(try await site.texts(mode) == ["off"])
            #expect(try await site.texts("SELECT type FROM users") == ["free"])
            // Its end has the listed users checked.
            try await first.stop()
            try await site.waitUntil("SELECT count(*) FROM users AS u WHERE u.type = 'subscriber'")
            #expect(try await site.texts(mode) == ["listed"])
            try await second.stop()
            #expect(try await site.texts(mode) == ["listed"], "without workers the record holds")
        }
    }

    @Test func `An unknown SANDBOX stops the start`() async throws {
        try await Site.with(settings: ["SANDBOX": "everyone"]) { site in
            let ending = try await site.run("worker", "--until-idle")
            #expect(
                ending.code == 78 && ending.err.contains("SANDBOX") && ending.err.contains("off, listed"),
                "\(ending)"
            )
        }
    }
}
