import Entitlements
import Foundation
import Postgres
import Queue
import Runs
import TestSupport
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
            let runs = RunRecords(pool: world.pool)
            let planning = RunPlanning(pool: world.pool, brake: DemotionBrake(percent: 1, minimum: 1))
            try await world.add("user")
            let run = try #require(try await runs.ask(.all, isDry: false, by: "test"))
            // Longer than the lead lasts.
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
                try await world.waitUntil("SELECT (count(*) = 0)::int FROM entitlement_sync.queue")
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
            #expect(try await RunRecords(pool: world.pool).list().isEmpty, "slots count from when it was set")
            try await world.pool.query(
                "UPDATE entitlement_sync.schedule SET slot_at = now() - interval '3 hours'"
            )
            _ = try await scheduler.step(fence)
            _ = try await scheduler.step(fence)
            let runs = try await RunRecords(pool: world.pool).list()
            #expect(runs.count == 1 && runs[0].schedule == "often" && runs[0].isDry)
            // The next slot waits for this run's end.
            try await world.pool.query(
                "UPDATE entitlement_sync.schedule SET slot_at = now() - interval '10 minutes'"
            )
            _ = try await scheduler.step(fence)
            #expect(try await RunRecords(pool: world.pool).list().count == 1)
            #expect(try await store.all().schedules.first?.lateSince != nil)
            _ = try await RunRecords(pool: world.pool).cancel(runs[0].id)
            _ = try await scheduler.step(fence - 1)
            #expect(
                try await RunRecords(pool: world.pool).list().count == 1,
                "a process that leads no more starts nothing"
            )
            _ = try await scheduler.step(fence)
            #expect(try await RunRecords(pool: world.pool).list().count == 2)
            #expect(try await store.all().schedules.first?.lateSince == nil)
            #expect(try await store.remove("often"))
            #expect(try await store.remove("often") == false)
        }
    }

    @Test func `166: a schedule of lists leaves nothing out: each list begins where it was read to`() async throws {
        try await World.with { world in
            let store = ScheduleStore(pool: world.pool)
            let runs = RunRecords(pool: world.pool)
            let lead = Self.lead(world, .scheduler, lasting: .seconds(600))
            let fence = try #require(try await lead.take(nil))
            let planner = try #require(try await Self.lead(world, .planner, lasting: .seconds(600)).take(nil))
            let scheduler = Scheduler(lead: lead, store: store, logger: .quiet)
            let planning = RunPlanning(pool: world.pool, brake: DemotionBrake(percent: 1, minimum: 1))
            try await store.set(
                .init(name: "lists", cron: "* * * * *", zone: "UTC", scope: .since, isDry: false, days: 3)
            )
            #expect(try await store.all().schedules.map(\.scopeName) == ["listed"])
            /// How many days back each list begins in the schedule's next run, which ends as it is told.
            func begins(_ lists: [String], read: [String] = []) async throws -> [String: Int] {
                try await world.pool.query("DELETE FROM entitlement_sync.worker")
                try await world.pool.query(
                    """
                    INSERT INTO entitlement_sync.worker (epoch, expires_at, host, pid, version, backfills)
                    VALUES (1, now() + interval '1 hour', 'host', 1, '1', \(lists))
                    """
                )
                try await world.pool.query(
                    "UPDATE entitlement_sync.schedule SET slot_at = now() - interval '3 minutes'"
                )
                _ = try await scheduler.step(fence)
                let run = try #require(try await runs.list().first)
                #expect(run.state == .reading && run.scopeName == "listed" && run.total == 0 && run.isFed, "\(run)")
                #expect(try await planning.planListings(of: run.id, fence: planner))
                let listed = try #require(try await runs.run(run.id)).listed
                // Some are read to their end, of the others nothing.
                try await world.pool.query(
                    """
                    UPDATE entitlement_sync.run_backfill SET reached = until, ended_at = now()
                     WHERE run_id = \(run.id) AND list = ANY (\(read))
                    """
                )
                try await world.pool.query("SELECT entitlement_sync.note_backfills(\(run.id))")
                try await world.pool.query("UPDATE entitlement_sync.run SET state = 'done' WHERE id = \(run.id)")
                return listed.mapValues { Int((Date.now.timeIntervalSince($0.from) / 86_400).rounded(.down)) }
            }
            /// Puts all runs some days into the past.
            func pass(days: Int32) async throws {
                try await world.pool.query(
                    """
                    UPDATE entitlement_sync.run AS r
                       SET listed = (SELECT jsonb_object_agg(l.key, l.value || jsonb_build_object(
                                                'until', (l.value ->> 'until')::timestamptz - \(days) * interval '1 day'))
                                       FROM jsonb_each(r.listed) AS l)
                    """
                )
            }
            let both = ["app_store", "google_play"]
            #expect(
                try await begins(both, read: ["app_store"]) == ["app_store": 30, "google_play": 30],
                "a month at first"
            )
            #expect(
                try await begins(both, read: ["app_store"]) == ["app_store": 3, "google_play": 30],
                "one alone fails"
            )
            try await pass(days: 10)
            #expect(try await begins(["app_store"]) == ["app_store": 10], "nobody looked for ten days")
            #expect(try await begins(both, read: both) == ["app_store": 10, "google_play": 40], "it is made up for")
            #expect(try await begins(both, read: both) == ["app_store": 3, "google_play": 3])
            // Other schedules' runs, and those that people ask for, stand for nothing.
            try await pass(days: 5)
            try await world.pool.query("UPDATE entitlement_sync.run SET schedule = 'other'")
            #expect(try await begins(both) == ["app_store": 30, "google_play": 30])
        }
    }

    @Test func `164: a run of lists takes nothing from what an earlier run has left to people`() async throws {
        try await World.with { world in
            let runs = RunRecords(pool: world.pool)
            let planning = RunPlanning(pool: world.pool, brake: DemotionBrake(percent: 1, minimum: 1))
            let fence = try #require(try await Self.lead(world, .planner, lasting: .seconds(600)).take(nil))
            try await world.add("user")
            let key = try await world.number("SELECT entitlement_sync.user_key_of('user')")
            let since = PostgresTimestamp(Date.now.addingTimeInterval(-3600))
            let stopped = try #require(try await runs.ask(.since, isDry: false, since: since, by: "test"))
            try await world.pool.query("UPDATE entitlement_sync.run SET state = 'stopped' WHERE id = \(stopped)")
            try await world.pool.query(
                """
                INSERT INTO entitlement_sync.run_change (run_id, user_key, epoch, state, outcome, rule, explanation)
                SELECT \(stopped), u.user_key, u.epoch, 'held', 'demoted', 'store_ended', '-' FROM entitlement_sync.user_sync AS u
                 WHERE u.user_key = \(key)
                """
            )
            let lists = try #require(try await runs.askLists(since: since, by: "test"))
            // Somebody else had the user read meanwhile.
            try await world.pool.query("UPDATE entitlement_sync.user_sync SET read_at = clock_timestamp()")
            #expect(try await planning.settle(lists, fence: fence) == .done)
            #expect(try await runs.run(stopped)?.state == .stopped, "a person still has to look")
        }
    }
}
