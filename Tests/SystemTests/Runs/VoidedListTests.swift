import Entitlements
import Foundation
import Postgres
import Storage
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
            #expect(try await scene.run().listed["google_play"]?.new == 0)
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
                try await scene.world.until(
                    """
                    SELECT count(*) FROM entitlement_sync.run_listing AS y
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
