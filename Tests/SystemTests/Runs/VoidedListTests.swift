import Entitlements
import Foundation
import Postgres
import Runs
import TestSupport
import Testing

/// What Google Play lists as voided, and whom it leads to.
@Suite struct VoidedListTests {
    private static func withGooglePlay(
        _ purchases: [String],
        _ body: @Sendable (ListingScene) async throws -> Void
    ) async throws {
        let scenario = "google_play:\n  purchases:\n" + purchases.map { "    - {\($0)}\n" }.joined()
        try await ListingScene.with(scenario) {
            $0.googlePlay
        } proof: {
            $0.tokenProof("tok-a")
        } _: {
            try await body($0)
        }
    }

    @Test func `60: a chargeback that is listed as voided has its owner read again, and the store's own word demotes`()
        async throws
    {
        let purchases = ["token: tok-a, state: active", "token: tok-z, state: expired, voided: -5m"]
        try await Self.withGooglePlay(purchases) { scene in
            let world = scene.world
            try await world.steer(
                "/google-play/purchases/tok-a",
                #"{"state":"expired","voided":"-1m","voided_reason":7}"#
            )
            let run = try await scene.run()
            #expect(run.state == .done && run.errors.isEmpty && run.fed == 0, "\(run)")
            let listed = try #require(run.listed["google_play"])
            #expect(listed.complete && listed.listed == 2 && listed.new == 1 && listed.unknown == 1, "\(listed)")
            #expect(try await world.decisions(about: "ann").map(\.outcome) == ["restored", "demoted"])
            #expect(try await world.type(of: "ann") == "free")
            // Of whom nobody knows nothing is kept.
            #expect(try await world.number("SELECT count(*) FROM entitlement_sync.inbox_log") == 1)
            #expect(
                try await world.texts("SELECT event_id FROM entitlement_sync.inbox_log").first?.contains("tok") == false
            )
            let mark = try await world.number(
                """
                SELECT count(*) FROM entitlement_sync.chargeback AS c JOIN entitlement_sync.purchase AS p ON p.id = c.purchase_id
                 WHERE c.at BETWEEN now() - interval '10 minutes' AND now()
                """
            )
            #expect(mark == 1, "its lineage is marked")
            #expect(try await scene.run().listed["google_play"]?.new == 0)
        }
    }

    @Test func `72: a run may have stores list what they sent, and read nobody but whom that leads to`() async throws {
        try await Self.withGooglePlay(["token: tok-a, state: active"]) { scene in
            let world = scene.world
            try await world.add("ben")
            _ = try await scene.run()
            try await world.pool.query("UPDATE entitlement_sync.user_sync SET read_at = now() - interval '2 hours'")
            try await world.steer(
                "/google-play/purchases/tok-a",
                #"{"state":"expired","voided":"-1m","voided_reason":7}"#
            )
            let since = PostgresTimestamp(Date.now.addingTimeInterval(-3600))
            let id = try #require(try await scene.runs.askLists(since: since, by: "test"))
            #expect(try await scene.runs.askLists(since: since, by: "test") == nil, "one goes on")
            #expect(try await scene.runs.ask(.since, isDry: false, since: since, by: "test") == nil)
            try await world.work(scene.setup)
            let run = try #require(try await scene.runs.run(id))
            #expect(run.state == .done && run.scopeName == "listed" && run.fed == 0 && run.total == 0, "\(run)")
            #expect(run.listed["google_play"]?.new == 1 && run.endedAt != nil, "\(run)")
            #expect(try await world.type(of: "ann") == "free", "the list led to her")
            let read = try await world.texts(
                "SELECT u.user_id FROM entitlement_sync.user_sync AS u WHERE u.read_at > now() - interval '1 hour'"
            )
            #expect(read == ["ann"], "nobody else was read")
        }
    }

    @Test(arguments: [(0, false), (1, false), (4, false), (5, true), (6, true), (7, true), (8, false)])
    func `60: what was voided for a reason that is no fraud marks nobody`(reason: Int, isFraud: Bool) async throws {
        try await Self.withGooglePlay(["token: tok-a, state: active"]) { scene in
            let world = scene.world
            try await world.steer(
                "/google-play/purchases/tok-a",
                #"{"state":"active","voided":"-1m","voided_reason":\#(reason)}"#
            )
            _ = try await scene.run()
            #expect(try await world.number("SELECT count(*) FROM entitlement_sync.chargeback") == (isFraud ? 1 : 0))
            #expect(try await world.type(of: "ann") == "subscriber")
        }
    }

    @Test func `60: whoever owns it, or nobody, and however often it was listed: what was charged back is marked`()
        async throws
    {
        try await Self.withGooglePlay(["token: tok-a, state: active"]) { scene in
            let world = scene.world
            try await world.pool.query("UPDATE entitlement_sync.purchase SET owner_key = NULL")
            try await world.steer(
                "/google-play/purchases/tok-a",
                #"{"state":"active","voided":"-1m","voided_reason":7}"#
            )
            #expect(try await scene.run().listed["google_play"]?.unknown == 1)
            #expect(try await world.number("SELECT count(*) FROM entitlement_sync.chargeback") == 1)
            try await world.pool.query("DELETE FROM entitlement_sync.chargeback")
            _ = try await scene.run()
            #expect(try await world.number("SELECT count(*) FROM entitlement_sync.chargeback") == 1)
        }
    }

    @Test func `56: what is listed as voided and gives access all the same takes nothing away`() async throws {
        try await Self.withGooglePlay(["token: tok-a, state: active"]) { scene in
            let world = scene.world
            try await world.steer("/google-play/purchases/tok-a", #"{"state":"active","voided":"-1m"}"#)
            let run = try await scene.run()
            #expect(run.listed["google_play"]?.new == 1, "\(run)")
            #expect(try await world.decisions(about: "ann").map(\.outcome) == ["restored", "unchanged"])
            #expect(try await world.type(of: "ann") == "subscriber")
        }
    }

    @Test func `No store's list waits for another's`() async throws {
        let scenario = "google_play:\n  purchases:\n    - {token: tok-a, state: active}\n"
        try await ListingScene.with(scenario) {
            try $0.googlePlay.merging($0.appStore) { first, _ in first }
        } proof: {
            $0.tokenProof("tok-a")
        } _: { scene in
            try await scene.world.inject(#"{"endpoint":"app_store.notifications","latency":"1h"}"#)
            let id = try await scene.ask()
            try await scene.world.working(scene.setup) {
                try await scene.world.waitUntil(
                    """
                    SELECT count(*) FROM entitlement_sync.run_backfill AS y
                     WHERE y.list = 'google_play' AND y.ended_at IS NOT NULL
                    """
                )
            }
            let run = try #require(try await scene.runs.run(id))
            #expect(run.state == .reading, "its end waits for the App Store's")
            #expect(run.listed["google_play"]?.complete == true && run.listed["app_store"]?.complete == false, "\(run)")
        }
    }

    @Test func `61: what was voided longer ago than the list reaches is found by the sweep of status`() async throws {
        try await Self.withGooglePlay(["token: tok-a, state: active"]) { scene in
            let world = scene.world
            try await world.steer("/google-play/purchases/tok-a", #"{"state":"expired","voided":"-40d"}"#)
            try await world.pool.query(
                "UPDATE entitlement_sync.user_sync SET read_at = now() - interval '61 days' WHERE user_id = 'ann'"
            )
            let run = try await scene.run(sinceHours: 60 * 24)
            let listed = try #require(run.listed["google_play"])
            #expect(listed.complete && listed.listed == 0, "\(listed)")
            #expect(abs(listed.from.timeIntervalSinceNow + 30 * 86_400) < 600, "no earlier than it remembers")
            #expect(run.ended == 1 && run.outcomes["demoted"] == 1, "\(run)")
            #expect(try await world.type(of: "ann") == "free")
        }
    }
}
