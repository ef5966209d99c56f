import Foundation
import Glibc
import Postgres
import TestSupport
import Testing

/// Runs of everybody and the schedules that start them, as operators use them.
@Suite struct RunsTests {
    private static let scenario = """
        customers:
          - {id: payer, subscriptions: [{state: active}]}
          - {id: ended-1, subscriptions: [{state: expired}]}
          - {id: ended-2, subscriptions: [{state: expired}]}
          - {id: other, state: none}
        """

    private static let users = """
        INSERT INTO users (id, type)
        VALUES ('payer', 'free'), ('ended-1', 'subscriber'), ('ended-2', 'subscriber'), ('other', 'free');
        """

    private struct Line: Decodable {
        struct Summary: Decodable {
            var run: Int64
            var state: String
            var hash: String?
            var users: Int64
            var outcomes: [String: Int64]
        }
        var user_id: String?
        var outcome: String?
        var rule: String?
        var explanation: String?
        var job_id: String?
        var dry_run: Bool?
        var summary: Summary?
    }

    private static func lines(_ ending: Program.Ending) throws -> [Line] {
        try ending.out.split(separator: "\n").map { try JSONDecoder().decode(Line.self, from: Data($0.utf8)) }
    }

    @Test func `A dry run, its report, and its changes written after a look at them`() async throws {
        let simulator = try await Simulator(scenario: Self.scenario)
        try await Site.with(store: simulator.url) { site in
            try await site.execute(Self.users)
            let worker = try await site.start("worker")
            let dry = try await site.run("reconcile", "--all", "--dry-run", "--output", "json")
            #expect(dry.code == 0, "\(dry)")
            let said = try Self.lines(dry)
            #expect(said.dropLast().allSatisfy { $0.dry_run == true && $0.job_id == nil && $0.rule != nil })
            #expect(Set(said.compactMap(\.user_id)) == ["payer", "ended-1", "ended-2", "other"] && said.count == 5)
            let summary = try #require(said.last?.summary)
            #expect(summary.outcomes == ["promoted": 1, "demoted": 2, "unchanged": 1] && summary.state == "done")
            #expect(try await site.number("SELECT count(*) FROM entitlement_sync.decision") == 0)
            let hash = try #require(summary.hash)

            let shown = try await site.run("runs", "show", "\(summary.run)")
            #expect(shown.code == 0 && shown.out.contains("ended-1") && shown.out.contains(hash), "\(shown)")
            let csv = try await site.run("runs", "show", "\(summary.run)", "--csv")
            #expect(
                csv.out.split(separator: "\r\n").count == 4 && csv.out.contains("ended-2,demoted,store_ended"),
                "\(csv)"
            )
            let folder = try Files.makeTemporaryDirectory()
            defer { try? FileManager.default.removeItem(atPath: folder) }
            let page = folder + "/run.html"
            #expect(try await site.run("runs", "report", "\(summary.run)", "--html", page).code == 0)
            let html = try String(contentsOfFile: page, encoding: .utf8)
            #expect(html.contains("ended-1") && html.contains("runs release \(summary.run) --hash \(hash)"))
            let again = try await site.run("runs", "report", "\(summary.run)", "--html", page)
            #expect(again.code == 65 && again.err.contains("--html"), "a file is never overwritten: \(again)")
            let json = try await site.run("runs", "report", "\(summary.run)")
            #expect(json.code == 0 && json.out.contains("\"demotions\":2"), "\(json)")

            let wrong = try await site.run(
                "runs",
                "release",
                "\(summary.run)",
                "--hash",
                String(repeating: "0", count: 64)
            )
            #expect(wrong.code == 65 && wrong.err.contains("--hash"), "\(wrong)")
            let released = try await site.run("runs", "release", "\(summary.run)", "--hash", hash)
            #expect(released.code == 0, "\(released)")
            try await site.waitUntil(
                "SELECT count(*) FROM entitlement_sync.run AS r WHERE r.scope = 'diff' AND r.state = 'done'"
            )
            #expect(
                try await site.texts("SELECT u.id || ' ' || u.type FROM users AS u ORDER BY 1") == [
                    "ended-1 free", "ended-2 free", "other free", "payer subscriber",
                ]
            )
            try await worker.stop()
        }
    }

    @Test func `A run names who was not read, and says on stderr that it goes on without its command`() async throws {
        let simulator = try await Simulator(
            scenario: Self.scenario + "\nfaults: [{customer: other, status: 503}, {customer: payer, latency: 3s}]"
        )
        try await Site.with(store: simulator.url, settings: ["JOB_MAX_ATTEMPTS": "1"]) { site in
            try await site.execute(Self.users)
            let worker = try await site.start("worker")
            let run = try await site.run("reconcile", "--all")
            #expect(run.code == 69 && run.err.hasPrefix("entitlement-sync: run 1 has read "), "\(run)")
            #expect(run.err.contains("it goes on without this command, see entitlement-sync runs show 1\n"), "\(run)")
            #expect(run.out.contains("not read\terror\nother\tunavailable\n"), "\(run)")
            let shown = try await site.run("runs", "show", "1", "--output", "json")
            #expect(shown.out.contains(#""unread":[{"error":"unavailable","user_id":"other"}]"#), "\(shown)")
            try await worker.stop()
        }
    }

    @Test func `A run that is only observed says that nothing was written`() async throws {
        let simulator = try await Simulator(scenario: Self.scenario)
        try await Site.with(store: simulator.url, settings: ["MODE": "observe"]) { site in
            try await site.execute(Self.users)
            let worker = try await site.start("worker")
            let run = try await site.run("reconcile", "--all")
            #expect(
                run.code == 0
                    && run.out.contains(
                        "The run is done, and nothing was written, for it was only observed: of 4 users, 1 would become a"
                            + " subscriber and 2 would lose access."
                    ),
                "\(run)"
            )
            #expect(run.out.contains("entitlement-sync shadow") && run.out.contains("run, only observed"), "\(run)")
            let json = try await site.run("runs", "report", "1")
            for word in [#""observed":true"#, #""applied":0"#, #""demotions":2"#, #""announced_demotions":0"#] {
                #expect(json.out.contains(word), "\(word) in \(json)")
            }
            let shown = try await site.run("runs", "show", "1", "--output", "json")
            #expect(shown.out.contains(#""demoted":{"predicted":2}"#), "\(shown)")
            #expect(
                !run.out.contains("Count toward the limit") && run.out.contains("Demotions, only observed"),
                "\(run)"
            )
            try await worker.stop()
        }
    }

    @Test func `A run beyond its limit says what to do; a worker until idle carries a run to its end`() async throws {
        let simulator = try await Simulator(scenario: Self.scenario)
        try await Site.with(store: simulator.url) { site in
            try await site.execute(Self.users)
            let asked = try await site.run("reconcile", "--all", "--max-demotions", "1", "--wait", "0")
            #expect(asked.code == 75, "\(asked)")
            let second = try await site.run("reconcile", "--all", "--wait", "0")
            #expect(second.code == 65 && second.err.contains("runs cancel"), "\(second)")
            #expect(try await site.run("worker", "--until-idle").code == 0)
            let list = try await site.run("runs")
            #expect(list.out.contains("stopped"), "\(list)")
            let shown = try await site.run("runs", "show", "1")
            #expect(
                shown.out.contains("2 demotions exceed the limit of 1") && shown.out.contains("runs release 1 --hash")
            )
            #expect(
                try await site.texts("SELECT DISTINCT u.type FROM users AS u WHERE u.id LIKE 'ended%'") == [
                    "subscriber"
                ]
            )
            // An end that was announced is written whatever the limit is, and the report says so.
            try await site.execute(
                """
                INSERT INTO entitlement_sync.run_change (run_id, user_key, epoch, state, outcome, rule, announced, type_before,
                                                         type_after, explanation)
                SELECT 1, entitlement_sync.user_key_of('other'), 0, 'applied', 'demoted', 'store_ended', true, 'subscriber', 'free', '-'
                """
            )
            let partly = try await site.run("runs", "show", "1")
            #expect(partly.out.contains("2 demotions are held: they exceed the limit of 1."), "\(partly)")
            let counted = try await site.run("runs", "report", "1")
            #expect(counted.out.contains(#""applied":2"#), "\(counted)")
            #expect(counted.out.contains(#""announced_demotions":1"#), "\(counted)")
            #expect(try await site.run("runs", "report", "1", "--masked").code == 64)
            #expect(try await site.run("runs", "cancel", "1").code == 0)
            #expect(try await site.run("runs", "cancel", "1").code == 65)
        }
    }

    @Test(arguments: [
        (["reconcile"], 64, "name at least one user"), (["reconcile", "--all", "--due"], 64, "one of"),
        (["reconcile", "somebody", "--all"], 64, "one of"),
        (["reconcile", "somebody", "--max-demotions", "1"], 64, "of a run"),
        (["reconcile", "--all", "--listed-only"], 64, "with --since"),
        (["reconcile", "--since", "2026-01-01T00:00:00Z", "--listed-only", "--dry-run"], 64, "without --dry-run"),
        (["reconcile", "--since", "yesterday"], 65, "--since"), (["runs", "show", "7"], 65, "no run"),
        (["runs", "release", "7", "--hash", "abc"], 65, "first 12 hexadecimal digits"),
        (["schedule", "set", "x", "--cron", "61 * * * *"], 65, "--cron: minute"),
        (["schedule", "set", "x", "--cron", "@daily", "--zone", "Mars"], 65, "--zone"),
        (["schedule", "set", "X y", "--cron", "@daily"], 65, "NAME"),
        (["schedule", "set", "x", "--cron", "@daily", "--scope", "some"], 65, "--scope"),
        (["schedule", "set", "x", "--cron", "@daily", "--scope", "listed"], 65, "--days"),
        (["schedule", "set", "x", "--cron", "@daily", "--scope", "listed", "--days", "181"], 65, "--days"),
        (["schedule", "set", "x", "--cron", "@daily", "--days", "3"], 65, "--days"),
        (["schedule", "set", "x", "--cron", "@daily", "--scope", "listed", "--days", "3", "--dry-run"], 65, "--scope"),
        (["schedule", "remove", "x"], 65, "no schedule"),
    ])
    func `What can't be done is told with its name`(words: [String], code: Int32, said: String) async throws {
        try await Site.with { site in
            let ending = try await Site.run(words, settings: site.settings)
            #expect(ending.code == code && ending.err.contains(said), "\(ending)")
        }
    }

    @Test func `Of two schedulers one that stood still writes nothing more`() async throws {
        try await Site.with(settings: ["JOB_LEASE_SECONDS": "2"]) { site in
            let set = try await site.run(
                "schedule",
                "set",
                "often",
                "--cron",
                "@yearly",
                "--scope",
                "all",
                "--dry-run"
            )
            #expect(set.code == 0, "\(set)")
            let listed = try await site.run("schedule", "list", "--output", "json")
            #expect(listed.out.contains("\"name\":\"often\"") && listed.out.contains("\"next\":\"20"), "\(listed)")
            let first = try await site.start("schedule")
            try await site.waitUntil(
                """
                SELECT count(*) FROM entitlement_sync.leader AS l
                 WHERE l.name = 'scheduler' AND l.expires_at > clock_timestamp()
                """
            )
            let second = try await site.start("schedule")
            let fence = try await Self.fence(site)
            #expect(try await Self.holder(site) == first.pid)
            first.signal(SIGSTOP)
            try await site.waitUntil(
                "SELECT (l.fence > \(fence))::int::bigint FROM entitlement_sync.leader AS l WHERE l.name = 'scheduler'"
            )
            #expect(try await Self.holder(site) == second.pid)
            try await site.execute("UPDATE entitlement_sync.schedule SET slot_at = now() - interval '5 years'")
            try await site.waitUntil("SELECT count(*) FROM entitlement_sync.run")
            let newFence = try await Self.fence(site)
            first.signal(SIGCONT)
            // Longer than a lease, so that it has tried to lead again.
            try await Task.sleep(for: .seconds(3))
            #expect(try await Self.fence(site) == newFence, "it does not take the lead from whoever has it")
            #expect(try await Self.holder(site) == second.pid)
            #expect(try await site.number("SELECT count(*) FROM entitlement_sync.run WHERE state <> 'canceled'") == 1)
            for process in [first, second] { process.signal(SIGTERM) }
            for process in [first, second] { #expect(try await process.ending().code == 0) }
            #expect(
                try await site.number(
                    "SELECT count(*) FROM entitlement_sync.leader AS l WHERE l.expires_at > clock_timestamp()"
                ) == 0,
                "the lead is given back"
            )
        }
    }

    private static let missed = """
        app_store:
          customers: [{id: alice, transactions: [{original: "2000000100000001", product: premium_monthly, expires: +20d}]}]
          notifications:
            - {uuid: 00000000-0000-4000-8000-000000000001, type: DID_RENEW, transaction: "2000000100000001", at: -50h}
            - {uuid: 00000000-0000-4000-8000-000000000002, type: DID_RENEW, transaction: "2000000100000001", at: -26h}
            - {uuid: 00000000-0000-4000-8000-000000000003, type: DID_RENEW, transaction: "2000000100000001", at: -2h}
        """

    @Test func `166: a worker that is killed over a store's list loses nothing of it; what failed is told`()
        async throws
    {
        try await StoreSite.with(scenario: Self.missed) { stores in
            let site = stores.site
            let port = stores.simulator.port
            let since = Date.now.addingTimeInterval(-60 * 3600).formatted(.iso8601)
            func inject(_ fault: String) async throws {
                _ = try await fetch("POST", "/control/faults", body: fault, from: port)
            }
            // Whichever of the store's two lists is asked for first: a window is listed, and the next one is being asked for.
            try await inject(#"{"endpoint":"app_store.notifications","latency":"5s"}"#)
            let victim = try await site.start("worker")
            #expect(try await site.run("reconcile", "--since", since, "--wait", "0").code == 75)
            try await site.waitUntil(
                "SELECT count(*) FROM entitlement_sync.run_backfill AS y WHERE y.list = 'app_store' AND y.reached > y.since"
            )
            try await victim.kill()
            try await stores.simulator.heal()
            // Its minute is over.
            try await site.execute("UPDATE entitlement_sync.run_backfill SET due = now() WHERE ended_at IS NULL")
            #expect(try await site.run("worker", "--until-idle").code == 0)
            let shown = try await site.run("runs", "show", "1")
            #expect(
                shown.out.contains("app_store: 3 listed from ") && shown.out.contains(", 3 of them new"),
                "\(shown)"
            )
            let json = try await site.run("runs", "show", "1", "--output", "json")
            struct Shown: Decodable {
                struct List: Decodable {
                    var from: String
                    var listed: Int
                    var new: Int
                    var complete: Bool
                }
                struct Summary: Decodable {
                    var listed: [String: List]
                    var errors: [String: Int]
                }
                var summary: Summary
            }
            let summary = try JSONDecoder().decode(Shown.self, from: Data(json.out.utf8)).summary
            let listed = try #require(summary.listed["app_store"])
            #expect(listed.listed == 3 && listed.new == 3 && listed.complete && summary.errors.isEmpty, "\(json)")
            #expect(Set(summary.listed.keys) == ["app_store", "app_store_sandbox", "google_play"], "\(json)")
            #expect(try await site.number("SELECT count(*) FROM entitlement_sync.inbox_log") == 3)

            try await inject(#"{"endpoint":"google_play.voided","status":503}"#)
            let worker = try await site.start("worker")
            let failed = try await site.run("reconcile", "--since", since)
            #expect(failed.code == 69 && failed.out.contains("google_play: 0 listed from "), "\(failed)")
            #expect(
                failed.out.contains("not to its end, only up to ") && failed.out.contains("(unavailable)"),
                "\(failed)"
            )
            let lists = try await site.run("reconcile", "--since", since, "--listed-only")
            #expect(lists.code == 69 && lists.out.contains("app_store: 3 listed from "), "\(lists)")
            let dry = try await site.run("reconcile", "--since", since, "--dry-run")
            #expect(dry.code == 0 && dry.out.contains("no store was asked to list what it sent"), "\(dry)")
            try await worker.stop()
        }
    }

    private static func fence(_ site: Site) async throws -> Int64 {
        try await site.number("SELECT l.fence FROM entitlement_sync.leader AS l WHERE l.name = 'scheduler'")
    }

    /// Which process leads.
    private static func holder(_ site: Site) async throws -> Int32? {
        let text = try await site.texts("SELECT l.holder FROM entitlement_sync.leader AS l WHERE l.name = 'scheduler'")
            .first
        return text.flatMap { $0.split(separator: " ").last }.flatMap { Int32($0) }
    }
}
