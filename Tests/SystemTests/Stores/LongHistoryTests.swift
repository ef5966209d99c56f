import Entitlements
import Foundation
import Postgres
import Queue
import StoreSimulator
import TestSupport
import Testing
import UserRequests

/// Users with long histories: what ended long ago is neither counted nor asked about.
@Suite struct LongHistoryTests {
    /// Puts purchases on record that ended some days ago.
    static func record(_ count: Int, endedDays days: Int, of user: String, in world: World) async throws {
        let key = try await world.meet(user)
        try await world.pool.query(
            """
            INSERT INTO entitlement_sync.purchase (id, owner_key, observed_at, period_ends_at, gives_access, source, store,
                   environment, kind, status, ownership, owner_rule, entitlements, lookup_id)
            SELECT 900000 + n, \(key), now() - interval '1 day', now() - \(Int32(days)) * interval '1 day', false, 'app_store',
                   'app_store', 'production', 'subscription', 'expired', 'purchased', 'first_proof',
                   '{app_store:premium_monthly}', (3000000 + n)::text
              FROM generate_series(1, \(Int32(count))) AS n
            """
        )
        try await world.pool.query(
            """
            INSERT INTO entitlement_sync.purchase_identifier (value, store, environment, kind, purchase_id)
            SELECT (3000000 + n)::text, 'app_store', 'production', 'store_id', 900000 + n
              FROM generate_series(1, \(Int32(count))) AS n
            """
        )
    }

    @Test func `More old purchases than are asked about leave no reading partial: a tap is answered, a lapse is seen`()
        async throws
    {
        let scenario = AppStoreRestoreTests.scenario(
            "original: \"2000000100000001\", product: premium_monthly, expires: +20d"
        )
        try await World.with(scenario: scenario) { world in
            try await world.add("ann")
            try await world.addProducts()
            let setup = try world.asking(world.appStore)
            let proof = try world.transactionProof("2000000100000001")
            #expect(try await world.restored("ann", proofs: proof, setup: setup).outcome == "restored")
            try await Self.record(300, endedDays: 90, of: "ann", in: world)
            try await world.steer(
                "/app-store/customers/alice",
                #"""
                {"transactions":[{"original":"2000000100000001","product":"premium_monthly","state":"expired",
                "expires":"-2d"}]}
                """#
            )
            let before = world.simulator.requestReport().byPath.values.reduce(0, +)
            #expect(try await world.reconciled("ann", setup: setup).outcome == "demoted")
            #expect(world.simulator.requestReport().byPath.values.reduce(0, +) - before <= 2)
            for _ in 1...2 {
                let answer = try await world.restored("ann", setup: setup)
                #expect(answer.outcome == "nothing_to_restore" && answer.state == "done")
            }
            #expect(try await world.alarms().isEmpty)
        }
    }

    @Test func `A limit that is met raises an alarm, and nobody hears that there is nothing`() async throws {
        try await World.with(scenario: AppStoreRestoreTests.scenario()) { world in
            try await world.add("ann")
            try await world.addProducts()
            try await Self.record(201, endedDays: 5, of: "ann", in: world)
            let setup = try world.asking(world.appStore) { $0.retry.maxAttempts = 2 }
            let answer = try await world.restored("ann", setup: setup)
            #expect(answer.state == "dead" && answer.outcome == "store_unavailable")
            #expect(answer.lastError == "incomplete")
            #expect(try await world.alarms() == ["read_limit"])
        }
    }

    @Test func `Fifty old subscriptions take two requests on a full read`() async throws {
        let old = (1...50).map {
            """
            {state: expired, id: sub_\($0), store_subscription_identifier: "\(4_000_000 + $0)",
            ends: -\(70 + $0)d, current_period_starts_at: -\(110 + $0)d}
            """.replacing("\n", with: " ")
        }
        try await World.with(customers: ["{id: ann, subscriptions: [\(old.joined(separator: ", "))]}"]) { world in
            try await world.add("ann")
            try await world.addProducts()
            let setup = world.asking(world.revenueCat, try world.appStore, world.googlePlay)
            #expect(try await world.reconciled("ann", setup: setup).outcome == "unchanged")
            let before = world.simulator.requestReport().byPath
            #expect(try await world.reconciled("ann", setup: setup).outcome == "unchanged")
            let after = world.simulator.requestReport().byPath
            let asked = after.mapValues { $0 }.merging(before) { $0 - $1 }.filter { $0.value > 0 }
            #expect(asked.values.reduce(0, +) <= 2, "\(asked)")
            let rows = try await world.number("SELECT count(*) FROM entitlement_sync.purchase")
            #expect(rows == 50)
        }
    }
}
