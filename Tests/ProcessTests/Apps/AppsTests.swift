import Foundation
import Glibc
import HTTPTypes
import Postgres
import TestSupport
import Testing

/// Several apps in one process: each has its users, records and troubles to itself.
struct AppsTests {
    @Test func `Each app is served under its name, and one called default without`() async throws {
        try await AppsSite.with(["default", "games"]) { site in
            let endpoint = try await site.open()
            try await site.untilAllReady(endpoint)
            let ann = try await site.caller("ann", of: "games", at: endpoint)
            let accepted = try await ann.ask(.post, "/v1/apps/games/restores")
            #expect(accepted.status == 202, "\(accepted)")
            let path = try #require(accepted["Location"])
            #expect(path.hasPrefix("/v1/apps/games/restores/"))
            let ended = try await ann.ask(.get, path + "?wait=25")
            let seen: SeenRestore = try ended.decode()
            #expect(seen.outcome == "restored" && seen.hasEnded)
            let type = PostgresQuery("SELECT type FROM users WHERE id = 'ann'")
            #expect(try await site.record("games").texts(type) == ["subscriber"])
            #expect(try await site.record("default").texts(type) == ["free"])

            let usual = try await site.caller("ann", of: "default", at: endpoint)
            #expect(try await usual.ask(.get, "/v1/entitlement").status == 200)
            #expect(try await usual.ask(.get, "/v1/apps/default/entitlement").status == 200)
            #expect(try await usual.restore().path.hasPrefix("/v1/restores/"))
            for path in ["/v1/apps/golf/entitlement", "/v1/apps/games", "/v1/apps/games/health/ready", "/v1/apps/"] {
                #expect(try await usual.ask(.get, path).status == 404, "\(path)")
            }

            let metrics = try await site.endpoints.transport.ask(.get, "/metrics", at: endpoint.adminPort).text
            let samples = metrics.split(separator: "\n").filter { !$0.hasPrefix("#") }
            #expect(samples.filter { !$0.contains(#"app=""#) && !$0.contains("dropped_series") } == [])
            let restored = #"entitlement_sync_jobs_ended_total{app="games",kind="restore",outcome="restored"} 1"#
            #expect(samples.contains { $0 == restored }, "\(metrics)")
            #expect(try endpoint.log.filter { $0["app"] == nil } == [])
            #expect(try endpoint.log.contains { $0["app"] == "games" && $0["message"] == "working" })
            try await endpoint.close()
        }
    }

    @Test func `A process for one app of several is ready, and knows no other`() async throws {
        try await AppsSite.with(["games", "golf"]) { site in
            let endpoint = try await site.open(settings: ["ENTITLEMENT_SYNC_APP": "golf"])
            try await site.untilReady(endpoint) { $0.status == 200 }
            let ann = try await site.caller("ann", of: "golf", at: endpoint)
            for path in ["/v1/entitlement", "/v1/apps/golf/entitlement"] {
                #expect(try await ann.ask(.get, path).status == 200)
            }
            #expect(try await ann.ask(.get, "/v1/apps/games/entitlement").status == 404)
            try await endpoint.close()
        }
    }

    @Test func `Two apps that take each other's databases are both served, and so is one that is put back`()
        async throws
    {
        try await AppsSite.with(["games", "golf"]) { site in
            let endpoint = try await site.open()
            try await site.untilAllReady(endpoint)
            let (games, golf) = (try site.record("games").database.tcpURL, try site.record("golf").database.tcpURL)
            try site.write("games", changing: ["DATABASE_URL": golf, "MODE": "promote_only"])
            try site.write("golf", changing: ["DATABASE_URL": games, "MODE": "promote_only"])
            try await endpoint.program.find("the swap") { () -> Bool? in
                for name in ["games", "golf"] {
                    let modes = try await site.record(name).texts("SELECT mode FROM entitlement_sync.worker")
                    guard modes == ["promote_only"] else { return nil }
                }
                return true
            }
            try await site.untilAllReady(endpoint)
            try site.remove("golf")
            endpoint.program.signal(SIGHUP)
            try site.write("golf", changing: ["DATABASE_URL": games])
            try await site.untilAllReady(endpoint)
            let ann = try await site.caller("ann", of: "golf", at: endpoint)
            try await endpoint.program.find("the app that was put back") {
                try await ann.ask(.get, "/v1/apps/golf/entitlement").status == 200 ? true : nil
            }
            try site.write("golf", changing: ["DATABASE_URL": games, "CONSOLE_DATABASE_URL": golf])
            try await site.untilReady(endpoint) { $0.text.contains("app golf: its file is not right") }
            try await endpoint.close()
        }
    }

    @Test func `A worker that ends once it is idle says so where an app can't be worked for`() async throws {
        try await AppsSite.with(["games", "golf"]) { site in
            try site.write("golf", changing: ["MODE": "sometimes"])
            try await site.record("games").execute("SELECT entitlement_sync.request_reconcile('ann')")
            let ending = try await site.run("worker", "--until-idle")
            #expect(ending.code == 78, "\(ending)")
            let states = try await site.record("games").texts("SELECT state FROM entitlement_sync.job_status")
            #expect(states == ["done"])
        }
    }

    @Test func `Without an app called default there is none where no app is named`() async throws {
        try await AppsSite.with(["games", "golf"]) { site in
            let endpoint = try await site.open("serve")
            try await site.untilAllReady(endpoint)
            let ann = try await site.caller("ann", of: "games", at: endpoint)
            #expect(try await ann.ask(.get, "/v1/entitlement").status == 404)
            #expect(try await ann.ask(.get, "/v1/apps/games/entitlement").status == 200)
            #expect(try await endpoint.ask(.get, "/openapi.json").status == 200)
            try await endpoint.close()
        }
    }

    @Test func `A file that is added, mended, changed or removed has effect while the process goes on`() async throws {
        try await AppsSite.with(["games", "golf"]) { site in
            try site.write("golf", changing: ["MODE": "sometimes"])
            let endpoint = try await site.open()
            try await site.untilReady(endpoint) {
                $0.status == 200 && $0.text.contains("app golf: its file is not right\n")
            }
            let ann = try await site.caller("ann", of: "golf", at: endpoint)
            let down = try await ann.ask(.get, "/v1/apps/golf/entitlement")
            #expect(down.status == 503 && down["Retry-After"] != nil, "\(down)")
            let other = try await site.caller("ann", of: "games", at: endpoint)
            #expect(try await other.ask(.get, "/v1/apps/games/entitlement").status == 200)
            let doctor = try await site.run("doctor")
            #expect(doctor.out.contains("golf.configuration: the app is not served: MODE: "), "\(doctor)")
            #expect(doctor.out.contains("games.schema: "))

            try site.write("golf")
            endpoint.program.signal(SIGHUP)
            try await site.untilAllReady(endpoint)
            #expect(try await ann.ask(.get, "/v1/apps/golf/entitlement").status == 200)

            // Found without a signal.
            try site.write("golf", changing: ["FIREBASE_PROJECT_ID": "another"])
            try await endpoint.program.find("the other project") {
                try await ann.ask(.get, "/v1/apps/golf/entitlement").status == 401 ? true : nil
            }
            try site.remove("golf")
            try await endpoint.program.find("no app") {
                try await ann.ask(.get, "/v1/apps/golf/entitlement").status == 404 ? true : nil
            }
            try site.put("", in: "Bad_Name.env")
            try await endpoint.program.find("it is not known which apps there are; all go on as they are")
            #expect(try await other.ask(.get, "/v1/apps/games/entitlement").status == 200)
            try await endpoint.close()
        }
    }

    @Test func `An app whose database is away or another's keeps no other from being served`() async throws {
        try await AppsSite.with(["games", "golf", "poker"]) { site in
            let games = try site.record("games").database.tcpURL
            try site.write("golf", changing: ["DATABASE_URL": games])
            try site.write("poker", changing: ["DATABASE_URL": "host=127.0.0.1 port=1 dbname=poker"])
            let endpoint = try await site.open()
            try await site.untilReady(endpoint) { answer in
                answer.status == 200 && answer.text.contains("app poker: its database can't be reached\n")
                    && ["games", "golf"].contains { answer.text.contains("app \($0): its database is another app's\n") }
            }
            let alarms = try await site.record("games").texts("SELECT name FROM entitlement_sync.alarm")
            #expect(alarms == ["database_shared"])
            try site.write("golf")
            try site.write("poker")
            try await site.untilAllReady(endpoint)
            try await endpoint.close()
        }
    }

    @Test func `A command is for the app that it names, and asks for a name where there are several`() async throws {
        try await AppsSite.with(["games", "golf"]) { site in
            let restore = try await site.run("restore", "ann", "--app", "golf", "--output", "json")
            #expect(restore.code == 0, "\(restore)")
            let count = PostgresQuery("SELECT count(*) FROM entitlement_sync.job_status")
            #expect(try await site.record("golf").number(count) == 1)
            #expect(try await site.record("games").number(count) == 0)
            let named = try await site.run("queue", "stats", settings: ["ENTITLEMENT_SYNC_APP": "golf"])
            #expect(named.code == 0, "\(named)")
            let unnamed = try await site.run("queue", "stats")
            #expect(unnamed.code == 64 && unnamed.err.contains("name one of games, golf"), "\(unnamed)")
            let unknown = try await site.run("queue", "stats", "--app", "chess")
            #expect(unknown.code == 65 && unknown.err.contains("name one of games, golf"), "\(unknown)")
            let worked = try await site.run("worker", "--until-idle")
            #expect(worked.code == 0, "\(worked)")
            #expect(try await site.record("golf").texts("SELECT state FROM entitlement_sync.job_status") == ["done"])
            let alone = try await Site.run(
                ["queue", "stats", "--app", "golf"],
                settings: try site.record("golf").settings
            )
            #expect(alone.code == 78, "\(alone)")
        }
    }

    @Test(arguments: [
        ("nothing", "there is no app in the folder"), ("Games.env", "\"Games.env\" is no app's file"),
        ("DATABASE_URL", "DATABASE_URL: is set, and APPS_DIR is set too"),
        ("REVENUECAT_API_KEY", "REVENUECAT_API_KEY: is set, and APPS_DIR is set too"),
        ("folder", "the folder can't be read"),
    ])
    func `A folder that says not which apps there are stops the start`(_ what: String, _ problem: String) async throws {
        let folder = try Files.makeTemporaryDirectory()
        defer { try? FileManager.default.removeItem(atPath: folder) }
        var settings = ["APPS_DIR": what == "folder" ? folder + "/none" : folder]
        if what.hasSuffix(".env") { try Data().write(to: URL(fileURLWithPath: "\(folder)/\(what)")) }
        if what.hasSuffix("_URL") || what.hasSuffix("_KEY") {
            try Data("X=1\n".utf8).write(to: URL(fileURLWithPath: "\(folder)/games.env"))
            settings[what] = "postgres://nobody@localhost/none"
        }
        for command in [["run"], ["worker", "--until-idle"], ["queue", "stats"]] {
            let ending = try await Site.run(command, settings: settings)
            #expect(ending.code == 78 && ending.err.contains(problem), "\(command): \(ending)")
        }
    }
}
