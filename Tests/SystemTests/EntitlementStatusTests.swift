import Entitlements
import Foundation
import Postgres
import Queue
import TestSupport
import Testing
import UserRequests

/// The view of what gives each user access, as a worker leaves it.
@Suite struct EntitlementStatusTests {
    private static let view: PostgresQuery = """
        SELECT concat_ws(' ', e.user_id, coalesce(e.entitlement, '-'), coalesce(e.store, e.source), coalesce(e.environment, '-'),
                         CASE WHEN e.ends_at IS NULL THEN 'endless' WHEN e.ends_at > now() THEN 'ends' ELSE 'ended' END,
                         CASE WHEN e.will_renew THEN 'renews' END, CASE WHEN e.at_risk THEN 'at risk' END)
          FROM entitlement_sync.entitlement_status AS e ORDER BY 1
        """

    private static func news(in world: World) async throws -> Int64 {
        try await world.number("SELECT count(*) FROM entitlement_sync.outbox WHERE topic = 'entitlements.changed'")
    }

    private static var publishing: WorkerSetup {
        var setup = WorkerSetup()
        setup.tells = true
        return setup
    }

    @Test func `A grant stands there as long as it is in force, and falls with an erasure`() async throws {
        try await World.with(customers: ["{id: ann, state: none}"]) { world in
            try await world.add("ann")
            let forLife = try await world.controls.grant(
                "ann",
                until: .infinity,
                reason: "kind"
            )
            _ = try await world.controls.grant(
                "ann",
                until: PostgresTimestamp(Date(timeIntervalSinceNow: 86_400)),
                reason: "a day"
            )
            try await world.work(Self.publishing)
            #expect(try await world.texts(Self.view) == ["ann - grant - endless", "ann - grant - ends"])
            #expect(try await world.controls.revoke(forLife))
            try await world.work(Self.publishing)
            #expect(try await world.texts(Self.view) == ["ann - grant - ends"])
            #expect(try await Self.news(in: world) == 2)
            let checks = try await world.number(
                "SELECT count(*) FROM entitlement_sync.user_sync WHERE next_check_at < now() + interval '26 hours'"
            )
            #expect(checks == 1, "its end is a scheduled check")
            _ = try await Erasure(pool: world.pool).erase("ann")
            #expect(try await world.texts(Self.view) == [])
        }
    }

    @Test func `While a demotion is deferred the set stays, and goes with the type`() async throws {
        try await World.with(customers: ["{id: ann, state: active}"]) { world in
            try await world.add("ann")
            _ = try await world.restored("ann", setup: Self.publishing)
            let held = ["ann premium app_store production ends renews"]
            #expect(try await world.texts(Self.view) == held)
            var careful = Self.publishing
            careful.decision.mode = .promoteOnly
            try await world.change("ann", #"{"state": "expired"}"#)
            #expect(try await world.reconciled("ann", setup: careful).outcome == "deferred")
            #expect(try await world.texts(Self.view) == held)
            #expect(try await world.type(of: "ann") == "subscriber")
            #expect(try await Self.news(in: world) == 1)
            #expect(try await world.reconciled("ann", setup: Self.publishing).outcome == "demoted")
            #expect(try await world.texts(Self.view) == [])
            #expect(try await Self.news(in: world) == 2)
        }
    }

    @Test func `A payment that fails is a risk and no news, and who is not eligible holds nothing`() async throws {
        try await World.with(customers: ["{id: ann, subscriptions: [{state: active, ends: 4102444800000}]}"]) { world in
            try await world.add("ann")
            _ = try await world.restored("ann", setup: Self.publishing)
            try await world.change("ann", #"{"subscriptions": [{"state": "grace", "ends": 4102444800000}]}"#)
            _ = try await world.reconciled("ann", setup: Self.publishing)
            #expect(try await world.texts(Self.view) == ["ann premium app_store production ends renews at risk"])
            #expect(try await Self.news(in: world) == 1)
            try await world.pool.query("UPDATE users SET status = 'banned' WHERE id = 'ann'")
            _ = try await world.reconciled("ann", setup: Self.publishing)
            #expect(try await world.texts(Self.view) == [])
            #expect(try await Self.news(in: world) == 2)
        }
    }

    @Test func `What is only observed gives nothing, and is news once it is decided`() async throws {
        try await World.with(customers: ["{id: ann, state: active}"]) { world in
            try await world.add("ann")
            var observing = Self.publishing
            observing.decision.mode = .observe
            _ = try await world.restored("ann", setup: observing)
            #expect(try await world.texts(Self.view) == [])
            _ = try await world.reconciled("ann", setup: Self.publishing)
            #expect(try await world.texts(Self.view).count == 1)
            #expect(try await Self.news(in: world) == 1)
        }
    }

    @Test func `A check reads on where several things give access, or the team tells several apart`() async throws {
        let two = "{id: ben, subscriptions: [{state: active}, {state: active, store: play_store}]}"
        try await World.with(customers: ["{id: ann, state: active}", two]) { world in
            func requests(_ user: String) async throws -> Int {
                let before = try await world.storeRequests(for: user)
                _ = try await world.reconciled(user)
                return try await world.storeRequests(for: user) - before
            }
            for user in ["ann", "ben"] { try await world.add(user) }
            for user in ["ann", "ben"] { #expect(try await requests(user) == 1) }
            #expect(try await world.texts(Self.view).count == 3)
            #expect(try await requests("ann") == 1)
            #expect(try await requests("ben") == 2)
            try await world.pool.query(
                "INSERT INTO entitlement_sync.product (store, product_id, entitlement) VALUES ('revenuecat', 'pro', 'pro')"
            )
            #expect(try await requests("ann") == 2)
        }
    }

    @Test func `The application's own role reads the view, and nothing behind it`() async throws {
        try await World.with { world in
            let rights = try await world.texts(
                """
                SELECT concat_ws(' ', has_table_privilege('entitlement_sync_client', 'entitlement_sync.entitlement_status', 'SELECT'),
                                 has_table_privilege('entitlement_sync_client', 'entitlement_sync.user_sync', 'SELECT'),
                                 has_table_privilege('entitlement_sync_api', 'entitlement_sync.entitlement_status', 'SELECT'))
                """
            )
            #expect(rights == ["t f f"])
        }
    }
}
