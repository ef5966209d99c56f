import Entitlements
import Foundation
import Postgres
import Queue
import Runs
import TestSupport
import Testing

/// Reconciliations of all users: which users they read, and what they write.
@Suite struct RunTests {
    /// Everything that a run may write, by table.
    private static func content(_ world: World) async throws -> [String: String] {
        var content: [String: String] = [:]
        for table in [
            "public.users", "public.assets", "purchase", "purchase_identifier", "observation", "decision", "ticket",
            "ticket_event", "queue", "job_history", "outbox", "alarm", "asset_run", "job_request", "dry_run",
        ] {
            let name = table.hasPrefix("public") ? table : "entitlement_sync." + table
            content[table] = try await world.texts(
                PostgresQuery(
                    rawSQL: "SELECT coalesce(string_agg(t::text, ' ' ORDER BY t::text), '') FROM \(name) AS t"
                )
            ).first
        }
        return content
    }

    @Test func `A dry run tells what would change, and changes nothing`() async throws {
        try await RunScene.with { scene in
            let before = try await Self.content(scene.world)
            let run = try await scene.braked(at: 1).run(isDry: true)
            let after = try await Self.content(scene.world)
            for (table, rows) in before { #expect(after[table] == rows, "\(table)") }
            #expect(run.state == .done && run.isDry && run.hash != nil)
            #expect(run.outcomes == ["promoted": 4, "demoted": 6, "unchanged": 8])
            #expect(run.total == 19 && run.ended == 18 && run.skipped == 1, "\(run)")
            let changes = try await scene.runs.changes(of: run.id)
            #expect(changes.count == 10 && changes.allSatisfy { $0.state == "predicted" && !$0.explanation.isEmpty })
            #expect(changes.filter { $0.outcome == "demoted" }.allSatisfy { $0.assets == 2 && $0.typeAfter == "free" })
            var lines: [RunRecords.Line] = []
            var part: Int32 = 1
            while case let more = try await scene.runs.lines(of: run.id, part: part), !more.isEmpty {
                lines += more
                part += 1
            }
            #expect(lines.count == 18 && Set(lines.compactMap(\.userID)).count == 18)
            #expect(lines.allSatisfy { $0.outcome != nil && $0.rule != nil && $0.jobID == nil })
        }
    }

    @Test(arguments: [true, false])
    func `A run counts subscribers at its start: the last count may be minutes old`(isDry: Bool) async throws {
        try await RunScene.with { scene in
            try await scene.world.pool.query(
                "UPDATE entitlement_sync.brake AS b SET subscribers = 9000, counted_at = now() - interval '1 minute'"
            )
            let run = try await scene.run(isDry: isDry)
            let now = Int64(RunScene.ended + RunScene.subscribers)
            #expect(run.subscribers == now || !isDry && run.subscribers == now + Int64(RunScene.payers), "\(run)")
        }
    }

    @Test func `Demotions of a run are held until everybody was read, then written together`() async throws {
        try await RunScene.with { scene in
            let run = try await scene.run()
            #expect(run.state == .done && run.held == 6, "\(run)")
            #expect(try await scene.count("payer", .subscriber) == 4)
            #expect(try await scene.count("ended", .free) == 6)
            #expect(try await scene.count("subscriber", .subscriber) == 5)
            #expect(try await scene.world.number("SELECT count(*) FROM assets WHERE frozen_reasons <> '{}'") == 12)
            for n in 1...6 {
                let rules = try await scene.world.decisions(about: "ended-\(n)").map { "\($0.rule) \($0.outcome)" }
                #expect(rules == ["proposed deferred", "store_ended demoted"])
            }
            let changes = try await scene.runs.changes(of: run.id)
            #expect(changes.count == 10 && changes.allSatisfy { $0.state == "applied" })
            // They were within the limit, and count toward it.
            #expect(try await scene.world.number("SELECT count(*) FROM entitlement_sync.decision WHERE braked") == 6)
        }
    }

    @Test func `Whom only a dry run has met is looked at by nobody, and by a real run as everybody is`() async throws {
        try await RunScene.with { scene in
            _ = try await scene.run(isDry: true)
            // As if the next round began.
            try await scene.world.pool.query(
                "UPDATE entitlement_sync.check_round SET after_key = 0, began_at = 'epoch'"
            )
            let plan = "SELECT entitlement_sync.plan_checks(100, 100, 30 * 86400)"
            #expect(try await scene.world.number(PostgresQuery(rawSQL: plan)) == 0)
            let looks: PostgresQuery = "SELECT count(*) FROM entitlement_sync.user_sync WHERE next_check_at IS NOT NULL"
            #expect(try await scene.world.number(looks) == 0)
            _ = try await scene.run()
            #expect(try await scene.world.number(looks) == 18)
        }
    }

    @Test func `Of one scope one run goes on at a time`() async throws {
        try await RunScene.with { scene in
            let first = try #require(try await scene.runs.ask(.all, isDry: false, by: "test"))
            #expect(try await scene.runs.ask(.all, isDry: false, by: "test") == nil)
            #expect(try await scene.runs.ask(.due, isDry: false, by: "test") != nil)
            #expect(try await scene.runs.ask(.all, isDry: true, by: "test") != nil)
            _ = try await scene.runs.cancel(first)
            #expect(try await scene.runs.ask(.all, isDry: false, by: "test") != nil)
        }
    }

    @Test func `The queue stays short, whoever is due`() async throws {
        try await RunScene.with { scene in
            var scene = scene
            scene.setup.plans = .init()
            scene.setup.plans?.batch = 20
            scene.setup.plans?.jobs = 60
            try await scene.world.pool.query(
                "INSERT INTO users (id) SELECT 'many-' || n FROM generate_series(1, 600) AS n"
            )
            let (world, runs, setup) = (scene.world, scene.runs, scene.setup)
            let id = try #require(try await runs.ask(.all, isDry: false, by: "test"))
            let most = try await withThrowingTaskGroup(of: Int64?.self) { group in
                group.addTask {
                    try await world.working(setup) { try await world.waitUntil(RunScene.hasEnded(id)) }
                    return nil
                }
                group.addTask {
                    var most: Int64 = 0
                    // A sample every few milliseconds, for as long as the run goes on.
                    while try await world.number(RunScene.hasEnded(id)) == 0 {
                        most = max(most, try await world.number("SELECT count(*) FROM entitlement_sync.queue"))
                        try await Task.sleep(for: .milliseconds(3))
                    }
                    return most
                }
                var most: Int64 = 0
                for try await seen in group { most = max(most, seen ?? 0) }
                return most
            }
            #expect(most > 0 && most <= 60, "\(most)")
            let run = try #require(try await runs.run(id))
            #expect(run.ended == 618 && run.total == 619 && run.skipped == 1)
        }
    }

    @Test func `Who is due is read, and who was read since an instant is not`() async throws {
        try await RunScene.with { scene in
            let world = scene.world
            #expect(try await scene.run().state == .done)
            try await world.pool.query(
                """
                UPDATE entitlement_sync.user_sync SET read_at = now() - interval '1 day'
                 WHERE user_id IN ('other-1', 'subscriber-2')
                """
            )
            let since = PostgresTimestamp(Date.now.addingTimeInterval(-3600))
            let looked = try await scene.run(.since, since: since)
            #expect(looked.state == .done && looked.ended == 2, "\(looked)")
            try await world.pool.query(
                """
                UPDATE entitlement_sync.user_sync
                   SET next_check_at = CASE WHEN user_id LIKE 'payer-%' THEN now() - interval '1 minute' * user_key END
                """
            )
            let due = try await scene.run(.due)
            #expect(due.ended == 4 && due.outcomes == ["unchanged": 4], "\(due)")
            #expect(try await scene.run(.due).ended == 0)
        }
    }

    @Test func `Whoever an event or a person speaks of waits for no run`() async throws {
        try await RunScene.with { scene in
            let world = scene.world
            let id = try #require(try await scene.runs.ask(.all, isDry: false, by: "test"))
            let planning = RunPlanning(pool: world.pool, brake: scene.setup.brake)
            let lead = Leadership(pool: world.pool, duty: .planner, holder: "test", duration: .seconds(60))
            let fence = try #require(try await lead.take(nil))
            #expect(try await planning.feed(id, fence: fence, batch: 500) == 19)
            try await world.pool.query(
                """
                SELECT entitlement_sync.enqueue(u.user_key, 1::smallint, 1::smallint, entitlement_sync.new_id())
                  FROM entitlement_sync.user_sync AS u WHERE u.user_id = 'ended-1'
                """
            )
            var setup = scene.setup
            setup.plans = nil
            try await world.working(setup) {
                try await world.waitUntil("SELECT (count(*) = 0)::int FROM entitlement_sync.queue")
            }
            let decisions = try await world.decisions(about: "ended-1").map { "\($0.rule) \($0.outcome)" }
            #expect(try await world.type(of: "ended-1") == "free", "\(decisions)")
            #expect(try await scene.count("ended", .free) == 1)
        }
    }

    @Test func `A run that is ended halfway demotes nobody`() async throws {
        try await RunScene.with { scene in
            var scene = scene
            scene.setup.plans = .init()
            scene.setup.plans?.batch = 5
            scene.setup.plans?.jobs = 10
            for n in 1...RunScene.subscribers {
                try await scene.world.inject(#"{"customer":"subscriber-\#(n)","latency":"1500ms"}"#)
            }
            let id = try #require(try await scene.runs.ask(.all, isDry: false, by: "test"))
            let (world, runs) = (scene.world, scene.runs)
            try await world.working(scene.setup) {
                try await world.waitUntil(
                    "SELECT count(*) FROM entitlement_sync.run_part AS p WHERE p.ended_at IS NOT NULL"
                )
                #expect(try await runs.cancel(id))
                try await world.waitUntil("SELECT (count(*) = 0)::int FROM entitlement_sync.queue")
            }
            #expect(try await scene.count("ended", .subscriber) == 6)
            #expect(try await runs.cancel(id) == false)
            #expect(try #require(try await runs.run(id)).state == .canceled)
        }
    }
}
