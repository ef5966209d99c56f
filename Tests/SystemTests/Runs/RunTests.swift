import Entitlements
import Foundation
import Postgres
import Queue
import Runs
import Testing

/// Reconciliations of everybody: what they write, and what they hold back.
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

    @Test(arguments: [(5, Int32?.none), (100, 5)])
    func `164 A run that would demote more than its limit demotes nobody, and a human is told`(
        brake: Int,
        maxDemotions: Int32?
    ) async throws {
        try await RunScene.with { scene in
            let scene = scene.braked(at: brake)
            let stopped = try await scene.run(maxDemotions: maxDemotions)
            #expect(stopped.state == .stopped && stopped.held == 6 && stopped.demotionLimit == 5, "\(stopped)")
            #expect(try await scene.count("ended", .subscriber) == 6)
            #expect(try await scene.count("payer", .subscriber) == 4, "what is good for people is written")
            #expect(try await scene.world.number("SELECT count(*) FROM assets WHERE frozen_reasons <> '{}'") == 0)
            #expect(try await scene.world.alarms().contains("run_stopped"))
            // Nothing more happens by itself, and nobody is demoted by another look either.
            for n in 1...6 { _ = try await scene.world.reconcile("ended-\(n)") }
            try await scene.world.work(scene.setup)
            #expect(try await scene.count("ended", .subscriber) == 6)

            // A person has looked at it, at all of it.
            let hash = try #require(stopped.hash)
            let wrong = String(hash.reversed())
            await #expect(throws: RunRecords.Refusal.otherHash) {
                try await scene.runs.release(stopped.id, hash: wrong, by: "ann")
            }
            #expect(try await scene.runs.release(stopped.id, hash: hash, by: "ann") == stopped.id)
            let done = try await scene.followed(stopped.id)
            #expect(done.state == .done && done.confirmedBy == "ann", "\(done)")
            #expect(try await scene.count("ended", .free) == 6)
            #expect(try await scene.world.number("SELECT count(*) FROM assets WHERE frozen_reasons <> '{}'") == 12)
            // What was confirmed takes nothing from what the day allows.
            #expect(try await scene.world.number("SELECT count(*) FROM entitlement_sync.decision WHERE braked") == 0)
            #expect(try await scene.world.alarms().contains("run_stopped") == false)
            await #expect(throws: RunRecords.Refusal.nothingToRelease) {
                try await scene.runs.release(stopped.id, hash: hash, by: "ann")
            }
        }
    }

    @Test func `164 A run that waits outlasts one that could find nothing; one that finds the same has its limit`()
        async throws
    {
        try await RunScene.with { scene in
            let first = try await scene.run(maxDemotions: 0)
            #expect(first.state == .stopped && first.held == 6)
            try await scene.world.controls.set("demotions", paused: true)
            let paused = try await scene.run()
            #expect(paused.state == .done && paused.held == 0, "\(paused)")
            #expect(try await scene.runs.run(first.id)?.state == .stopped, "nothing was decided about them")
            #expect(try await scene.world.alarms().contains("run_stopped"))
            try await scene.world.controls.set("demotions", paused: false)
            let second = try await scene.run()
            #expect(second.state == .stopped && second.held == 6 && second.demotionLimit == 0, "\(second)")
            #expect(try await scene.runs.run(first.id)?.state == .canceled, "the later one stands for it")
            let third = try await scene.run(maxDemotions: 100)
            #expect(third.state == .stopped && third.demotionLimit == 0, "whoever asked with more care is heard")
            #expect(try await scene.count("ended", .subscriber) == 6)
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

    @Test
    func `160 161 A product that gives no access by mistake: dry runs show it, the forecast stops it, repair heals it`()
        async throws
    {
        try await RunScene.with { scene in
            // Everybody is as they should be.
            let first = try await scene.run()
            #expect(first.state == .done)
            let before = try await scene.world.texts("SELECT u.id || u.type FROM users AS u ORDER BY 1")
            var scene = scene.braked(at: 6)
            try await scene.world.pool.query("UPDATE entitlement_sync.product SET grants_access = false")
            // At first nobody would lose anything yet; who will is shown all the same.
            let early = try await scene.run(isDry: true)
            let threatened = try await scene.runs.changes(of: early.id)
            #expect(threatened.count == 9 && threatened.allSatisfy { $0.rule == "first_absence" }, "\(early)")
            #expect(try await scene.run().outcomes == ["deferred": 9, "unchanged": 9])
            scene.setup.decision.absenceMargin = .zero
            let dry = try await scene.run(isDry: true)
            #expect(dry.outcomes["demoted"] == 9, "\(dry)")
            let real = try await scene.run()
            #expect(real.state == .stopped && real.held == 9, "\(real)")
            #expect(try await scene.world.texts("SELECT u.id || u.type FROM users AS u ORDER BY 1") == before)
            try await scene.world.pool.query("UPDATE entitlement_sync.product SET grants_access = true")
            // Should somebody release it all the same, everybody is read anew.
            _ = try await scene.runs.release(real.id, hash: try #require(real.hash), by: "ann")
            let released = try await scene.followed(real.id)
            #expect(released.state == .done)
            #expect(try await scene.world.texts("SELECT u.id || u.type FROM users AS u ORDER BY 1") == before)
            #expect(try await scene.runs.changes(of: real.id).allSatisfy { $0.state == "void" })
            // Whoever was read twice is told of once, with what came of it in the end.
            var lines: [RunRecords.Line] = []
            for part in 1...released.parts { lines += try await scene.runs.lines(of: real.id, part: part) }
            #expect(Set(lines.map(\.userID)).count == lines.count && lines.count == 18)
            #expect(!lines.contains { $0.rule == "proposed" }, "\(lines)")
        }
    }

    @Test func `A reviewed dry run is written as it was seen, and nobody beside it`() async throws {
        try await RunScene.with { scene in
            let dry = try await scene.run(isDry: true)
            let world = scene.world
            // Meanwhile one has paid again, one was changed by somebody, and one more has ended.
            try await world.change("ended-1", #"{"state":"active"}"#)
            try await world.pool.query(
                "UPDATE entitlement_sync.user_sync SET epoch = epoch + 1 WHERE user_id = 'ended-2'"
            )
            try await world.change("subscriber-1", #"{"state":"expired"}"#)
            let id = try await scene.runs.release(dry.id, hash: try #require(dry.hash), by: "ann")
            #expect(id != dry.id)
            let run = try await scene.braked(at: 1).followed(id)
            #expect(run.scope == .diff && run.ofRun == dry.id && run.state == .done, "\(run)")
            #expect(run.ended == 10)
            #expect(try await scene.count("payer", .subscriber) == 4)
            #expect(try await world.type(of: "ended-1") == "subscriber")
            #expect(try await world.type(of: "ended-2") == "subscriber")
            #expect(try await world.type(of: "subscriber-1") == "subscriber")
            #expect(try await scene.count("ended", .free) == 4)
            let states = Dictionary(
                try await scene.runs.changes(of: id).map { ($0.userID ?? "", $0.state) },
                uniquingKeysWith: { first, _ in first }
            )
            #expect(states["ended-1"] == "void" && states["ended-2"] == "void" && states["ended-3"] == "applied")
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
                try await world.until("SELECT (count(*) = 0)::int FROM entitlement_sync.queue")
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
                try await world.until(
                    "SELECT count(*) FROM entitlement_sync.run_part AS p WHERE p.ended_at IS NOT NULL"
                )
                #expect(try await runs.cancel(id))
                try await world.until("SELECT (count(*) = 0)::int FROM entitlement_sync.queue")
            }
            #expect(try await scene.count("ended", .subscriber) == 6)
            #expect(try await runs.cancel(id) == false)
            #expect(try #require(try await runs.run(id)).state == .canceled)
        }
    }

    @Test func `What was reviewed is written once, and not days later`() async throws {
        try await RunScene.with { scene in
            let dry = try await scene.run(isDry: true)
            let hash = try #require(dry.hash)
            try await scene.world.pool.query(
                "UPDATE entitlement_sync.run SET settled_at = now() - interval '73 hours' WHERE id = \(dry.id)"
            )
            await #expect(throws: RunRecords.Refusal.tooOld) {
                try await scene.runs.release(dry.id, hash: hash, by: "ann")
            }
            try await scene.world.pool.query("UPDATE entitlement_sync.run SET settled_at = now() WHERE id = \(dry.id)")
            let first = try await scene.runs.release(dry.id, hash: hash, by: "ann")
            await #expect(throws: RunRecords.Refusal.nothingToRelease) {
                try await scene.runs.release(dry.id, hash: hash, by: "ann")
            }
            // While demotions are paused the review waits.
            try await scene.world.controls.set("demotions", paused: true)
            try await scene.world.working(scene.setup) { try await Task.sleep(for: .milliseconds(600)) }
            #expect(try #require(try await scene.runs.run(first)).state == .applying)
            #expect(try await scene.count("ended", .subscriber) == 6)
            try await scene.world.controls.set("demotions", paused: false)
            #expect(try await scene.followed(first).state == .done)
            #expect(try await scene.count("ended", .free) == 6)
        }
    }

    @Test func `Whom no store could be asked about has another turn; all others are written meanwhile`() async throws {
        try await RunScene.with { scene in
            var scene = scene
            scene.setup.retry.maxAttempts = 2
            let world = scene.world
            let dry = try await scene.run(isDry: true)
            try await world.inject(#"{"customer":"ended-1","status":503}"#)
            // Fewer at a time than there are, so that the first part ends before the last is planned.
            scene.setup.plans?.batch = 3
            scene.setup.plans?.jobs = 3
            let id = try await scene.runs.release(dry.id, hash: try #require(dry.hash), by: "ann")
            try await world.working(scene.setup) {
                try await world.until(
                    "SELECT (count(*) = 5)::int FROM users AS u WHERE u.id LIKE 'ended-%' AND u.type = 'free'"
                )
                try await world.until(
                    "SELECT (r.late <> '{}' AND r.ended >= 9)::int FROM entitlement_sync.run AS r WHERE r.id = \(id)"
                )
            }
            let waiting = try #require(try await scene.runs.run(id))
            #expect(waiting.state == .applying && waiting.ended == 9, "\(waiting)")
            try await world.heal()
            try await world.pool.query("UPDATE entitlement_sync.run SET late_due = now() WHERE id = \(id)")
            let done = try await scene.followed(id)
            #expect(done.state == .done && done.ended == 10 && done.outcomes["demoted"] == 6, "\(done)")
            #expect(try await scene.count("ended", .free) == 6)
        }
    }

    @Test func `Whoever a transaction of the host holds has another turn in the same run`() async throws {
        try await RunScene.with { scene in
            let world = scene.world
            let id = try #require(try await scene.runs.ask(.all, isDry: false, by: "test"))
            for n in 1...6 { _ = try await world.number("SELECT entitlement_sync.user_key_of(\("ended-\(n)"))") }
            try await world.pool.withConnection { host in
                try await host.query("BEGIN")
                for n in 1...6 { try await host.query("SELECT entitlement_sync.request_restore(\("ended-\(n)"))") }
                try await world.working(scene.setup) {
                    try await world.until(
                        "SELECT count(*) FROM entitlement_sync.run AS r WHERE r.id = \(id) AND r.is_paged AND r.late <> '{}'"
                    )
                    try await host.query("COMMIT")
                    try await world.until(RunScene.hasEnded(id))
                }
            }
            let run = try #require(try await scene.runs.run(id))
            #expect(run.state == .done && run.ended == 18, "\(run)")
            #expect(try await scene.count("ended", .free) == 6)
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
                    try await world.working(setup) { try await world.until(RunScene.hasEnded(id)) }
                    return nil
                }
                group.addTask {
                    var most: Int64 = 0
                    while !Task.isCancelled {
                        most = max(most, try await world.number("SELECT count(*) FROM entitlement_sync.queue"))
                        try? await Task.sleep(for: .milliseconds(3))
                    }
                    return most
                }
                var most: Int64 = 0
                for try await seen in group {
                    most = max(most, seen ?? 0)
                    group.cancelAll()
                }
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

    @Test
    func
        `75 91 92 173 An outage in the middle of a run, then a flood of events: nobody is demoted wrongly, all are read`()
        async throws
    {
        try await RunScene.with { scene in
            var scene = scene
            scene.setup.plans?.batch = 40
            scene.setup.plans?.jobs = 200
            // As many tries as six hours of it take, at the pace of this test.
            scene.setup.retry.maxAttempts = 1000
            let (world, runs) = (scene.world, scene.runs)
            try await world.pool.query(
                "INSERT INTO users (id, type) SELECT 'many-' || n, 'free' FROM generate_series(1, 600) AS n"
            )
            let id = try #require(try await runs.ask(.all, isDry: false, by: "test"))
            try await world.working(scene.setup) {
                try await world.until(
                    "SELECT count(*) FROM entitlement_sync.run_part AS p WHERE p.ended_at IS NOT NULL"
                )
                try await world.inject(#"{"status":503}"#)
                // Everything that was planned waits for another try, and no more is planned.
                try await world.until(
                    "SELECT (count(*) FILTER (WHERE q.reconcile_error IS NOT NULL) >= 100)::int FROM entitlement_sync.queue AS q"
                )
                let waiting = try await world.number("SELECT count(*) FROM entitlement_sync.queue")
                #expect(waiting <= 200, "\(waiting)")
                let demoted = try await world.number(
                    "SELECT count(*) FROM entitlement_sync.decision AS d WHERE d.outcome = 'demoted'"
                )
                #expect(demoted == 0)
                try await world.heal()
                try await world.pool.query(
                    """
                    SELECT entitlement_sync.enqueue(u.user_key, 1::smallint, 1::smallint, entitlement_sync.new_id())
                      FROM entitlement_sync.user_sync AS u WHERE u.user_id LIKE 'subscriber-%' OR u.user_id LIKE 'many-1%'
                    """
                )
                try await world.until(RunScene.hasEnded(id), comment: "the run does not end")
            }
            let run = try #require(try await runs.run(id))
            #expect(run.state == .done && run.ended == 618 && run.outcomes["store_unavailable"] == nil, "\(run)")
            #expect(try await scene.count("subscriber", .subscriber) == 5)
            #expect(try await scene.count("payer", .subscriber) == 4)
            #expect(try await scene.count("ended", .free) == 6)
        }
    }

    @Test func `A store's outage during a run is nobody's end`() async throws {
        try await RunScene.with { scene in
            for n in 1...RunScene.ended { try await scene.world.inject(#"{"customer":"ended-\#(n)","status":503}"#) }
            var scene = scene
            scene.setup.retry.maxAttempts = 3
            let dry = try await scene.run(isDry: true)
            #expect(dry.outcomes["store_unavailable"] == 6 && dry.outcomes["demoted"] == nil, "\(dry)")
            #expect(dry.errors.values.reduce(0, +) == 6)
            let run = try await scene.run()
            #expect(run.state == .done && run.outcomes["store_unavailable"] == 6, "\(run)")
            #expect(run.errors.values.reduce(0, +) == 6)
            #expect(try await scene.count("ended", .subscriber) == 6)
        }
    }
}
