import Diagnostics
import Entitlements
import Foundation
import Postgres
import Runs
import StoreClients
@testable import StoreEvents
import StoreSimulator
import Synchronization
import TestSupport
import Testing

/// What the App Store sent while nobody heard it, found by its list.
@Suite struct ListingTests {
    private static func uuid(_ number: Int) -> String {
        "00000000-0000-4000-8000-" + String(repeating: "0", count: 12 - "\(number)".count) + "\(number)"
    }

    private static func notification(_ number: Int, _ rest: String) -> String {
        "uuid: \(uuid(number)), transaction: \"2000000100000009\", delivered: false, \(rest)"
    }

    private static let expired = #"""
        {"transactions":[{"original":"2000000100000001","transaction":"2000000100000009",
        "product":"premium_monthly","state":"expired","expires":"-1m"}]}
        """#

    @Test
    func `72: what was missed while nobody heard the stores is found by its list, and what arrived is not repeated`()
        async throws
    {
        let missed = Self.notification(1, "type: EXPIRED, subtype: VOLUNTARY, at: -10m")
        let arrived = Self.notification(2, "type: DID_CHANGE_RENEWAL_STATUS, at: -20m")
        let old = Self.notification(3, "type: SUBSCRIBED, at: -2h")
        try await ListingScene.withAppStore([old, arrived, missed]) { scene in
            let world = scene.world
            let body = Array("{}".utf8)
            let delivered = StoreEvent(source: .appStore, id: Self.uuid(2), kind: "DID_CHANGE_RENEWAL_STATUS")
            #expect(try await world.inbox.accept([try Inbox.Event(delivered, body: body)], from: .appStore) == 1)
            try await world.steer("/app-store/customers/alice", Self.expired)
            let run = try await scene.run()
            #expect(run.state == .done && run.errors.isEmpty && run.isListed, "\(run)")
            // She was read after the instant, so that no sweep reads her: the list has her read.
            #expect(run.fed == 0)
            let listed = try #require(run.listed["app_store"])
            #expect(listed.complete && listed.listed == 2 && listed.new == 1, "\(listed)")
            #expect(abs(listed.from.timeIntervalSince(try #require(run.since))) < 0.01)
            let sandbox = try #require(run.listed["app_store_sandbox"])
            #expect(sandbox.complete && sandbox.listed == 0 && sandbox.new == 0)
            #expect(try await world.decisions(about: "ann").map(\.outcome) == ["restored", "demoted"])
            #expect(try await world.type(of: "ann") == "free")
            #expect(try await world.state(ofEvent: Self.uuid(1)) == "done")
            #expect(try await world.state(ofEvent: Self.uuid(3)) == nil)

            let again = try await scene.run()
            #expect(again.listed["app_store"]?.listed == 2 && again.listed["app_store"]?.new == 0, "\(again)")
            #expect(try await world.decisions(about: "ann").count == 2, "it is one effect")
        }
    }

    @Test(arguments: [true, false])
    func `164: a run's limit holds for whom its own lists speak of`(isReadBefore: Bool) async throws {
        try await ListingScene.withAppStore([Self.notification(1, "type: EXPIRED, subtype: VOLUNTARY, at: -10m")]) {
            scene in
            let world = scene.world
            try await world.steer("/app-store/customers/alice", Self.expired)
            // Either she is still to be read when the list is, or the run has her read already.
            try await world.pool.query("UPDATE entitlement_sync.user_sync SET read_at = now() - interval '2 hours'")
            var setup = scene.setup
            if isReadBefore { try await world.inject(#"{"endpoint":"app_store.notifications","latency":"1s"}"#) }
            setup.retry.maxAttempts = 1
            let since = PostgresTimestamp(Date.now.addingTimeInterval(-3600))
            let id = try #require(
                try await scene.runs.ask(.since, isDry: false, since: since, maxDemotions: 0, by: "test")
            )
            try await world.working(setup) {
                try await world.waitUntil(RunScene.hasEnded(id))
                // Whatever follows from what was listed, which may have been left to the run.
                try await world.makeEventsDue()
                try await world.waitUntil(
                    """
                    SELECT (NOT EXISTS (SELECT 1 FROM entitlement_sync.inbox AS i WHERE i.state IN ('received', 'waiting'))
                            AND NOT EXISTS (SELECT 1 FROM entitlement_sync.queue))::int
                    """
                )
            }
            let run = try #require(try await scene.runs.run(id))
            #expect(run.state == .stopped && run.held == 1 && run.listed["app_store"]?.new == 1, "\(run)")
            #expect(try await world.type(of: "ann") == "subscriber")
            #expect(
                try await world.number("SELECT count(*) FROM entitlement_sync.decision WHERE outcome = 'demoted'") == 0
            )
        }
    }

    @Test func `72: what was listed and left to a run that ended before is not forgotten`() async throws {
        try await ListingScene.withAppStore([Self.notification(1, "type: EXPIRED, subtype: VOLUNTARY, at: -10m")]) {
            scene in
            let world = scene.world
            try await world.steer("/app-store/customers/alice", Self.expired)
            try await world.pool.query("UPDATE entitlement_sync.user_sync SET read_at = now() - interval '2 hours'")
            let id = try await scene.ask()
            // The planner has not come to her yet.
            try await world.pool.query("UPDATE entitlement_sync.run SET cursor_key = 0")
            let event = try Inbox.Event(
                StoreEvent(source: .appStore, id: "listed", kind: "EXPIRED", occurredAt: nil, users: ["ann"])
            )
            try await world.inbox.accept([event], from: .appStore)
            try await world.pool.query("UPDATE entitlement_sync.inbox SET is_backfilled = true")
            func drain() async throws {
                try await world.makeEventsDue()
                try await world.pool.query("SELECT entitlement_sync.drain_inbox()")
            }
            for _ in 1...8 { try await drain() }
            #expect(try await world.state(ofEvent: "listed") == "waiting", "as long as the run may read her")
            #expect(try await world.number("SELECT count(*) FROM entitlement_sync.queue") == 0)
            #expect(try await scene.runs.cancel(id))
            try await drain()
            #expect(try await world.state(ofEvent: "listed") == "done")
            #expect(try await world.number("SELECT count(*) FROM entitlement_sync.queue") == 1)
        }
    }

    @Test func `A listed notification is kept as one that was delivered`() async throws {
        let scenario = [Self.notification(1, "type: DID_RENEW, at: -10m")]
        try await ListingScene.withAppStore(scenario) { scene in
            let world = scene.world
            _ = try await scene.run()
            let rows = try await world.pool.query(
                """
                SELECT i.kind, i.occurred_at, i.is_access_event, i.is_backfilled, b.body
                  FROM entitlement_sync.inbox AS i JOIN entitlement_sync.inbox_body AS b ON b.id = i.id
                 WHERE i.source = 'app_store' AND i.event_id = \(Self.uuid(1))
                """
            )
            let row = try #require(rows.first)
            let (kind, at, promises, isListed, body) = try row.decode(
                String.self,
                PostgresTimestamp?.self,
                Bool.self,
                Bool.self,
                PostgresBytes.self
            )
            let proofs = AppStoreProofs(
                roots: [try StoreSimulator.appStoreRoot],
                expected: .init(bundleID: "com.example.app")
            )
            let sender = AppStoreNotifications(proofs: proofs, bundleID: "com.example.app", appID: nil)
            let event = try await sender.event(body.bytes)
            #expect(event.id == Self.uuid(1) && kind == event.kind && promises == event.announcesAccess && isListed)
            #expect(at?.microsecondsSinceUnixEpoch == event.occurredAt?.microseconds)
            #expect(!event.purchases.isEmpty)
            // That it was listed does not say that webhooks come.
            func isHeardOf() async -> Bool {
                await Doctor(pool: world.pool).checks().contains { $0.name == "events.app_store" }
            }
            #expect(await isHeardOf() == false)
            let delivered = StoreEvent(source: .appStore, id: Self.uuid(2), kind: "DID_RENEW")
            #expect(try await world.inbox.accept([try Inbox.Event(delivered, body: body.bytes)], from: .appStore) == 1)
            #expect(await isHeardOf())
        }
    }

    @Test func `75: every page of every day is read, in the lane of sweeps; many events of one user are few looks`()
        async throws
    {
        let days = [("-50h", 45), ("-26h", 21), ("-2h", 1)]
        var scenario: [String] = []
        for (at, count) in days {
            for _ in 0..<count { scenario.append(Self.notification(scenario.count, "type: DID_RENEW, at: \(at)")) }
        }
        try await ListingScene.withAppStore(scenario) { scene in
            let run = try await scene.run(sinceHours: 60)
            let listed = try #require(run.listed["app_store"])
            #expect(listed.complete && listed.listed == 67 && listed.new == 67, "\(listed)")
            #expect(scene.listings(ListingScene.history) == 6, "three pages, two, and one")
            #expect(try await scene.world.number("SELECT count(*) FROM entitlement_sync.inbox_log") == 67)
            let looks = try await scene.world.decisions(about: "ann").count - 1
            #expect((1...5).contains(looks), "\(looks)")

            let lanes = Mutex<[Lane]>([])
            let gate = RequestPermit(admit: { lane in lanes.withLock { $0.append(lane) } }, report: { _ in })
            let now = Instant(microseconds: Int64(Date.now.timeIntervalSince1970 * 1_000_000))
            for (bundleID, refused) in [("com.example.app", 0), ("com.example.other", 22)] {
                var events = 0
                var refusals = 0
                try await scene.appStoreList(gate, bundleID: bundleID).read(now + .seconds(-30 * 3600), now) { page in
                    events += page.events.count
                    refusals += page.refused
                }
                #expect(events == 22 - refused && refusals == refused, "what is not the store's is not kept")
            }
            #expect(lanes.withLock { $0 } == [.sweep, .sweep, .sweep, .sweep])
        }
    }

    @Test func `A list that fails does not stop the run, and is told; once it is read, it is not`() async throws {
        let scenario = [Self.notification(1, "type: DID_RENEW, at: -10m")]
        let customers = ["{id: payer, subscriptions: [{state: active}]}", "{id: ann, state: none}"]
        try await ListingScene.withAppStore(scenario, customers: customers) { scene in
            let world = scene.world
            try await world.add("payer")
            try await world.meet("payer")
            try await world.inject(#"{"endpoint":"app_store.notifications","status":503}"#)
            let failed = try await scene.run()
            #expect(failed.state == .done && failed.ended == 1 && failed.outcomes == ["promoted": 1], "\(failed)")
            #expect(failed.errors == ["listing.app_store": 1, "listing.app_store_sandbox": 1] && !failed.isListed)
            let listed = try #require(failed.listed["app_store"])
            #expect(!listed.complete && listed.listed == 0 && listed.error != nil, "\(listed)")
            #expect(try await world.type(of: "payer") == "subscriber")
            #expect(try await world.number("SELECT count(*) FROM entitlement_sync.inbox_log") == 0)

            try await world.heal()
            try await world.inject(#"{"endpoint":"app_store.notifications","status":500,"times":2}"#)
            let mended = try await scene.run()
            #expect(mended.errors.isEmpty && mended.isListed, "\(mended)")
            #expect(mended.listed["app_store"]?.new == 1 && mended.listed["app_store"]?.error == nil)
        }
    }

    @Test func `A store that refuses our credentials where it lists is an alarm, as where it is read`() async throws {
        try await ListingScene.withAppStore([Self.notification(1, "type: DID_RENEW, at: -10m")]) { scene in
            let world = scene.world
            try await world.inject(#"{"endpoint":"app_store.notifications","status":401}"#)
            let run = try await scene.run()
            #expect(run.listed["app_store"]?.error == "unauthorized", "\(run)")
            #expect(try await world.alarms() == ["credentials.app_store"])
        }
    }

    @Test func `A dry run lists nothing, and writes nothing into the inbox`() async throws {
        try await ListingScene.withAppStore([Self.notification(1, "type: EXPIRED, at: -10m")]) { scene in
            try await scene.world.steer("/app-store/customers/alice", Self.expired)
            let run = try await scene.run(isDry: true)
            #expect(run.state == .done && run.listed.isEmpty && run.errors.isEmpty)
            #expect(scene.listings("/notifications/history") == 0)
            #expect(try await scene.world.number("SELECT count(*) FROM entitlement_sync.inbox_log") == 0)
            #expect(try await scene.world.type(of: "ann") == "subscriber")
        }
    }

    @Test func `Whoever goes gives a list back at once`() async throws {
        try await ListingScene.withAppStore([Self.notification(1, "type: DID_RENEW, at: -10m")]) { scene in
            let world = scene.world
            try await world.inject(#"{"endpoint":"app_store.notifications","latency":"1h"}"#)
            let id = try await scene.ask()
            try await world.working(scene.setup) {
                try await world.waitUntil(
                    "SELECT count(*) FROM entitlement_sync.run_backfill AS y WHERE y.due > now() + interval '30 seconds'"
                )
            }
            let held: PostgresQuery = "SELECT count(*) FROM entitlement_sync.run_backfill AS y WHERE y.due > now()"
            #expect(try await world.number(held) == 0)
            let run = try #require(try await scene.runs.run(id))
            #expect(run.state == .reading && run.errors.isEmpty, "our own going is nobody's failure: \(run)")
            try await world.heal()
            try await world.work(scene.setup)
            #expect(try #require(try await scene.runs.run(id)).listed["app_store"]?.new == 1)
        }
    }

    @Test func `166: whoever dies over a list has it taken up by others, who go on behind what was listed`()
        async throws
    {
        let scenario = (0..<4).map { Self.notification($0, "type: DID_RENEW, at: -\(10 + $0 * 24)h") }
        try await ListingScene.withAppStore(scenario) { scene in
            let world = scene.world
            try await world.inject(#"{"endpoint":"app_store.notifications","skip":2,"latency":"1h"}"#)
            let id = try await scene.ask(sinceHours: 96)
            // The fault counts requests of both lists: this one is over before it begins.
            try await world.pool.query(
                """
                INSERT INTO entitlement_sync.run_backfill (run_id, list, since, until, reached, ended_at)
                VALUES (\(id), 'app_store_sandbox', now(), now(), now(), now())
                """
            )
            // The first life ends while a day is being listed.
            try await world.working(scene.setup) {
                try await world.waitUntil(
                    """
                    SELECT count(*) FROM entitlement_sync.run_backfill AS y
                     WHERE y.list = 'app_store' AND y.reached > y.since
                    """
                )
                // As after a kill: nothing of its end reaches the records.
                try await world.pool.query(
                    "UPDATE entitlement_sync.run_backfill SET tries = tries + 1, due = 'infinity'"
                )
            }
            let left = try #require(try await scene.runs.run(id))
            #expect(left.state == .reading && left.listed["app_store"]?.complete == false, "\(left)")
            try await world.heal()
            try await world.pool.query("UPDATE entitlement_sync.run_backfill SET due = now()")
            try await world.work(scene.setup)
            let run = try #require(try await scene.runs.run(id))
            let listed = try #require(run.listed["app_store"])
            #expect(run.state == .done && listed.complete && listed.listed == 4 && listed.new == 4, "\(listed)")
            #expect(try await world.number("SELECT count(*) FROM entitlement_sync.inbox_log") == 4)
        }
    }
}
