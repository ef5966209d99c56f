import Entitlements
import Foundation
import Postgres
import Storage
import SyncWorker
import Testing

/// Who may start and plan runs.
@Suite struct LeadTests {
    private static func lead(_ world: World, _ duty: Leadership.Duty, lasting: Duration) -> Leadership {
        Leadership(pool: world.pool, duty: duty, holder: "test", duration: lasting)
    }

    @Test func `88 One leads; whoever was silent for too long writes nothing more`() async throws {
        try await World.with { world in
            let lead = Self.lead(world, .planner, lasting: .milliseconds(300))
            let old = try #require(try await lead.take(nil))
            #expect(try await lead.take(old) == old, "it is prolonged under its number")
            #expect(try await lead.take(nil) == nil, "somebody else leads")
            let runs = Runs(pool: world.pool)
            let planning = RunPlanning(pool: world.pool, brake: DemotionBrake(percent: 1, minimum: 1))
            try await world.add("user")
            let run = try #require(try await runs.ask(.all, isDry: false, by: "test"))
            try await Task.sleep(for: .milliseconds(400))
            // Over before anybody else leads.
            #expect(try await planning.feed(run, fence: old, batch: 10) == nil)
            let new = try #require(try await Self.lead(world, .planner, lasting: .seconds(60)).take(nil))
            #expect(new > old)
            #expect(try await planning.feed(run, fence: old, batch: 10) == nil)
            #expect(try await lead.take(old) == nil)
            #expect(try await world.number("SELECT count(*) FROM entitlement_sync.run_part") == 0)
            #expect(try await planning.feed(run, fence: new, batch: 10) == 1)
            // Whoever leads no more gives nothing up.
            try await lead.stepDown(old)
            #expect(try await planning.feed(run, fence: new, batch: 10) == 0)
            try await world.working {
                try await world.until("SELECT (count(*) = 0)::int FROM entitlement_sync.queue")
            }
            try await planning.predict(run, fence: old, endIn: 60)
            #expect(try await planning.count(run, fence: old) == false)
            #expect(try await planning.closeParts(fence: old) == 0)
            #expect(try await planning.settle(run, fence: old) == nil)
            var record = try #require(try await runs.run(run))
            #expect(record.total == nil && record.predictedEnd == nil && record.ended == 0 && record.state == .reading)
            // All of which there was to do.
            try await planning.predict(run, fence: new, endIn: 60)
            #expect(try await runs.run(run)?.predictedEnd != nil)
            while try await planning.count(run, fence: new) {}
            #expect(try await planning.closeParts(fence: new) == 1)
            record = try #require(try await runs.run(run))
            #expect(record.total == 1 && record.ended == 1)
            #expect(try await planning.settle(run, fence: new) == .done)
            try await lead.stepDown(new)
            #expect(try await planning.feed(run, fence: new, batch: 10) == nil)
        }
    }

    @Test func `A schedule's slots are started once, and of those that were missed the newest`() async throws {
        try await World.with { world in
            let store = ScheduleStore(pool: world.pool)
            let lead = Self.lead(world, .scheduler, lasting: .seconds(60))
            let fence = try #require(try await lead.take(nil))
            let scheduler = Scheduler(lead: lead, store: store, logger: .quiet)
            try await store.set(.init(name: "often", cron: "* * * * *", zone: "UTC", scope: .all, isDry: true))
            _ = try await scheduler.step(fence)
            #expect(try await Runs(pool: world.pool).list().isEmpty, "slots count from when it was set")
            try await world.pool.query(
                "UPDATE entitlement_sync.schedule SET slot_at = now() - interval '3 hours'"
            )
            _ = try await scheduler.step(fence)
            _ = try await scheduler.step(fence)
            let runs = try await Runs(pool: world.pool).list()
            #expect(runs.count == 1 && runs[0].schedule == "often" && runs[0].isDry)
            // The next slot waits for this run's end.
            try await world.pool.query(
                "UPDATE entitlement_sync.schedule SET slot_at = now() - interval '10 minutes'"
            )
            _ = try await scheduler.step(fence)
            #expect(try await Runs(pool: world.pool).list().count == 1)
            #expect(try await store.all().schedules.first?.lateSince != nil)
            _ = try await Runs(pool: world.pool).cancel(runs[0].id)
            _ = try await scheduler.step(fence - 1)
            #expect(try await Runs(pool: world.pool).list().count == 1, "whoever leads no more starts nothing")
            _ = try await scheduler.step(fence)
            #expect(try await Runs(pool: world.pool).list().count == 2)
            #expect(try await store.all().schedules.first?.lateSince == nil)
            #expect(try await store.remove("often"))
            #expect(try await store.remove("often") == false)
        }
    }
}
