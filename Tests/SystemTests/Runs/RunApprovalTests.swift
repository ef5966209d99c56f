import Entitlements
import Postgres
import Queue
import Runs
import TestSupport
import Testing

/// Held demotions and reviewed dry runs: what an operator approves is written, and nothing else.
@Suite struct RunApprovalTests {
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
            // While demotions are paused the review waits, though the planner comes to it every 250 ms.
            try await scene.world.controls.set("demotions", paused: true)
            try await scene.world.working(scene.setup) { try await Task.sleep(for: .milliseconds(600)) }
            #expect(try #require(try await scene.runs.run(first)).state == .applying)
            #expect(try await scene.count("ended", .subscriber) == 6)
            try await scene.world.controls.set("demotions", paused: false)
            #expect(try await scene.followed(first).state == .done)
            #expect(try await scene.count("ended", .free) == 6)
        }
    }
}
