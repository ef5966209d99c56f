import Entitlements
import Foundation
import Postgres
import Queue
import Runs
@testable import StoreEvents
import TestSupport
import Testing

/// Who may write down what was listed, and for how long a run waits for it.
@Suite struct ListingTurnTests {
    private struct Scene {
        let world: World
        let listings: Listings
        let planning: RunPlanning
        let fence: Int64
        let run: Int64

        init(_ world: World, sinceHours hours: Double = 240) async throws {
            self.world = world
            listings = Listings(pool: world.pool)
            planning = RunPlanning(pool: world.pool, brake: DemotionBrake(percent: 1, minimum: 1))
            let lead = Leadership(pool: world.pool, duty: .planner, holder: "test", duration: .seconds(60))
            fence = try #require(try await lead.take(nil))
            let since = PostgresTimestamp(Date.now.addingTimeInterval(-hours * 3600))
            run = try #require(
                try await RunRecords(pool: world.pool).ask(.since, isDry: false, since: since, by: "test")
            )
        }

        func worker(_ lists: [String], lasting: Duration = .seconds(60)) async throws {
            _ = try await Leases(pool: world.pool, duration: lasting)
                .register(.init(host: "test", pid: 1, version: "test", lists: lists))
        }

        func take() async throws -> Listings.Taken? {
            try await listings.take("app_store", reach: .seconds(86_400))
        }

        func record() async throws -> RunRecord { try #require(try await RunRecords(pool: world.pool).run(run)) }
    }

    private static func page(_ ids: String..., refused: Int = 0) -> Listings.Page {
        let events = ids.map { id in
            Inbox.Event(
                id: id,
                kind: "DID_RENEW",
                occurredAt: nil,
                announcesAccess: false,
                about: #"{"purchases":[{"store":"app_store","value":"\#(id)"}]}"#,
                body: []
            )
        }
        return Listings.Page(events: events, refused: refused)
    }

    @Test func `88: who plans no more begins no list, and who lists no more keeps nothing`() async throws {
        try await World.with { world in
            let scene = try await Scene(world)
            try await scene.worker(["app_store"])
            _ = try await scene.planning.planListings(of: scene.run, fence: scene.fence - 1)
            #expect(try await scene.record().listed.isEmpty)
            #expect(try await scene.planning.planListings(of: scene.run, fence: scene.fence))
            let first = try #require(try await scene.take())
            #expect(try await scene.take() == nil, "it is somebody's")
            #expect(try await scene.listings.keep(Self.page("a", "b"), from: .appStore, isOwned: false, of: first))
            // Its minute is over, and it goes on all the same.
            try await world.pool.query("UPDATE entitlement_sync.run_backfill SET due = now()")
            let second = try #require(try await scene.take())
            #expect(try await scene.listings.keep(Self.page("c"), from: .appStore, isOwned: false, of: first) == false)
            #expect(try await scene.listings.move(first, to: first.until) == false)
            try await scene.listings.postpone(first, for: .seconds(600), code: "late", failures: 9)
            #expect(try await world.number("SELECT count(*) FROM entitlement_sync.inbox_log") == 2)
            #expect(try await scene.record().listed["app_store"]?.error == nil)
            // What the dead turn listed of the window is listed again, and counted once.
            let page = Self.page("a", "b", "c", refused: 1)
            #expect(try await scene.listings.keep(page, from: .appStore, isOwned: false, of: second))
            #expect(try await scene.listings.move(second, to: second.until))
            let run = try await scene.record()
            let listed = try #require(run.listed["app_store"])
            #expect(listed.listed == 4 && listed.new == 3 && listed.refused == 1 && listed.complete, "\(listed)")
            #expect(run.errors == ["listing.app_store.refused": 1] && !run.isListed)
            #expect(try await scene.take() == nil, "it is over")
        }
    }

    @Test func `No store is asked about more than it remembers, and nobody about a list that they can't read`()
        async throws
    {
        try await World.with { world in
            let scene = try await Scene(world)
            try await scene.worker(["app_store", "google_play"])
            #expect(try await scene.planning.planListings(of: scene.run, fence: scene.fence))
            let taken = try #require(try await scene.take())
            #expect(taken.list == "app_store")
            let back = Double(taken.until.microseconds - taken.reached.microseconds) / 1_000_000
            #expect(abs(back - 86_400) < 60, "\(back)")
            let from = try #require(try await scene.record().listed["app_store"]).from
            #expect(abs(from.timeIntervalSinceNow + 86_400) < 60, "\(from)")
            #expect(try await scene.take() == nil)
        }
    }

    @Test func `A dry run and a run of everybody have nothing listed`() async throws {
        try await World.with { world in
            let scene = try await Scene(world)
            try await scene.worker(["app_store"])
            let since = PostgresTimestamp(Date.now.addingTimeInterval(-3600))
            let runs = RunRecords(pool: world.pool)
            for (scope, isDry) in [(RunRecord.Scope.since, true), (.all, false), (.due, false)] {
                let id = try #require(try await runs.ask(scope, isDry: isDry, since: since, by: "test"))
                #expect(try await scene.planning.planListings(of: id, fence: scene.fence) == false)
                #expect(try #require(try await runs.run(id)).listed.isEmpty)
            }
            #expect(try await world.number("SELECT count(*) FROM entitlement_sync.run_backfill") == 0)
        }
    }

    @Test func `A run's end waits for a list that goes on, and not for one that fails or is silent`() async throws {
        try await World.with { world in
            let scene = try await Scene(world)
            func waits() async throws -> Bool {
                try await scene.planning.planListings(of: scene.run, fence: scene.fence)
            }
            #expect(try await waits(), "no worker lives that could say what it can list")
            try await scene.worker([], lasting: .seconds(60))
            #expect(try await waits() == false, "no store is on that lists")
            try await scene.worker(["app_store"])
            #expect(try await waits())
            let first = try #require(try await scene.take())
            try await scene.listings.postpone(first, for: .zero, code: "unavailable", failures: 2)
            #expect(try await waits())
            let second = try #require(try await scene.take())
            #expect(second.failures == 2)
            try await scene.listings.postpone(second, for: .zero, code: "unavailable", failures: 3)
            #expect(try await waits() == false)
            #expect(try await scene.record().errors == ["listing.app_store": 1])
            // It is tried again for as long as the run goes on.
            let third = try #require(try await scene.take())
            #expect(try await scene.listings.move(third, to: third.reached + .seconds(3600)))
            #expect(try await waits())
            #expect(try await scene.record().errors.isEmpty)
            try await world.pool.query(
                """
                UPDATE entitlement_sync.run_backfill
                   SET moved_at = now() - interval '6 minutes', due = now() + interval '1 minute'
                """
            )
            #expect(try await waits(), "a store that has asked for a wait is not silent")
            try await world.pool.query("UPDATE entitlement_sync.run_backfill SET due = now() - interval '6 minutes'")
            #expect(try await waits() == false)
            #expect(try await scene.record().listed["app_store"]?.error == "silent")
            _ = try await RunRecords(pool: world.pool).cancel(scene.run)
            #expect(try await scene.listings.keep(Self.page("a"), from: .appStore, isOwned: false, of: third) == false)
            #expect(try await world.number("SELECT count(*) FROM entitlement_sync.inbox_log") == 0)
        }
    }
}
