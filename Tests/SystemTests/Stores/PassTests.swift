import Entitlements
import Foundation
import Postgres
import Queue
import Reconciliation
import TestSupport
import Testing
import UserRequests

/// Purchases for once that end after the duration of their product, whichever store tells of them.
@Suite struct PassTests {
    private static func owned(_ purchases: String...) -> [String] {
        ["{id: alice, purchases: [\(purchases.joined(separator: ", "))]}"]
    }

    private static func pass(_ bought: String, product: String = "pass30", more: String = "") -> String {
        "{id: \"p\(bought.filter(\.isNumber))\", state: lifetime, product_id: \(product), purchased_at: \(bought)\(more)}"
    }

    private static func daysLeft(_ world: World) async throws -> Int64 {
        try await world.number(
            """
            SELECT round(extract(epoch FROM max(p.period_ends_at) - now()) / 86400)::bigint
              FROM entitlement_sync.purchase AS p
            """
        )
    }

    @Test func `What RevenueCat lists as owned ends after the product's duration`() async throws {
        for (bought, outcome) in [("-90d", "nothing_to_restore"), ("-20d", "restored")] {
            try await World.with(customers: Self.owned(Self.pass(bought))) { world in
                try await world.add("alice")
                try await world.addProducts()
                let setup = world.asking(world.revenueCat)
                #expect(try await world.restored("alice", proofs: "[]", setup: setup).outcome == outcome)
                #expect(try await Self.daysLeft(world) == (bought == "-20d" ? 10 : -60))
            }
        }
    }

    @Test func `A subscriber by a pass that is over is demoted`() async throws {
        try await World.with(customers: Self.owned(Self.pass("-90d"))) { world in
            try await world.add("alice", .subscriber)
            try await world.addProducts()
            #expect(try await world.reconciled("alice", setup: world.asking(world.revenueCat)).outcome == "demoted")
        }
    }

    @Test func `Overlapping passes of RevenueCat add up`() async throws {
        try await World.with(customers: Self.owned(Self.pass("-20d"), Self.pass("-5d"))) { world in
            try await world.add("alice")
            try await world.addProducts()
            let setup = world.asking(world.revenueCat)
            #expect(try await world.restored("alice", proofs: "[]", setup: setup).outcome == "restored")
            #expect(try await Self.daysLeft(world) == 40)
        }
    }

    @Test func `A duration of RevenueCat's entitlement ends what the store's product has no row for`() async throws {
        let item = Self.pass("-20d", product: "prod_unknown")
        try await World.with(customers: Self.owned(item, Self.pass("-90d", product: "lifetime"))) { world in
            try await world.add("alice")
            try await world.addProducts()
            try await world.pool.query(
                "UPDATE entitlement_sync.product SET duration = interval '30 days' WHERE store = 'revenuecat'"
            )
            let setup = world.asking(world.revenueCat)
            #expect(try await world.restored("alice", proofs: "[]", setup: setup).outcome == "restored")
            let kinds = try await world.pool.query(
                "SELECT p.status, p.period_ends_at IS NULL FROM entitlement_sync.purchase AS p ORDER BY p.status"
            ).map { try $0.decode(String.self, Bool.self) }
            // The store's product without a duration is for life.
            #expect(kinds.map(\.0) == ["active", "owned"] && kinds.map(\.1) == [false, true])
        }
    }

    @Test func `Google Play's one-time product ends after its duration`() async throws {
        for (started, outcome) in [("-90d", "nothing_to_restore"), ("-20d", "restored")] {
            let scenario = GooglePlayRestoreTests.scenario(
                "token: tok-pass, product: pro_pass, kind: one_time, started: \(started)"
            )
            try await World.with(scenario: scenario) { world in
                try await world.add("alice")
                try await world.pool.query(
                    """
                    INSERT INTO entitlement_sync.product (store, product_id, entitlement, duration)
                    VALUES ('google_play', 'pro_pass', 'premium', interval '30 days')
                    """
                )
                let setup = world.asking(world.googlePlay)
                let proof = world.tokenProof("tok-pass")
                #expect(try await world.restored("alice", proofs: proof, setup: setup).outcome == outcome)
            }
        }
    }

    @Test func `Passes that ended long ago still move the end of one that runs`() async throws {
        let bought = ["tok-a": "-116d", "tok-b": "-91d", "tok-c": "-61d", "tok-d": "-31d"]
        let purchases = bought.map { "    - {token: \($0), product: pro_pass, kind: one_time, started: \($1)}\n" }
        try await World.with(scenario: "google_play:\n  purchases:\n" + purchases.joined()) { world in
            try await world.add("alice")
            try await world.pool.query(
                """
                INSERT INTO entitlement_sync.product (store, product_id, entitlement, duration)
                VALUES ('google_play', 'pro_pass', 'premium', interval '30 days')
                """
            )
            let setup = world.asking(world.googlePlay)
            let proofs = bought.keys.map { #"{"store":"google_play","kind":"purchase_token","value":"\#($0)"}"# }
            let status = try await world.restored("alice", proofs: "[\(proofs.joined(separator: ","))]", setup: setup)
            #expect(status.outcome == "restored")
            #expect(try await Self.daysLeft(world) == 4)
            // As each became hers when she bought it.
            try await world.pool.query(
                "UPDATE entitlement_sync.purchase SET owner_key = (SELECT u.user_key FROM entitlement_sync.user_sync AS u)"
            )
            #expect(try await world.reconciled("alice", setup: setup).outcome != "demoted")
            #expect(try await Self.daysLeft(world) == 4)
        }
    }
}
