import Diagnostics
import Entitlements
import Foundation
import HTTPTypes
import Postgres
import Queue
import StoreSimulator
import TestSupport
import Testing
import UserRequests

/// Several witnesses of one purchase, and whose it is by all that is known.
@Suite struct WitnessTests {
    static let appStore = AppStoreRestoreTests.scenario(
        "original: \"2000000100000001\", transaction: \"2000000100000009\", product: premium_monthly, expires: +20d"
    )

    static func holding(_ customer: String, state: String = "active", more: String = "") -> String {
        "{id: \"\(customer)\", \(more)subscriptions: [{state: \(state),"
            + " store_subscription_identifier: \"2000000100000009\"}]}"
    }

    @Test func `Two witnesses of one purchase are one row with all its names`() async throws {
        try await World.with(customers: [Self.holding("alice", state: "expired")], scenario: Self.appStore) { world in
            try await world.add("alice")
            try await world.addProducts()
            let setup = try world.asking(world.revenueCat, world.appStore)
            let proof = try world.transactionProof("2000000100000009")
            // RevenueCat has not heard of the renewal yet.
            #expect(try await world.restored("alice", proofs: proof, setup: setup).outcome == "restored")
            #expect(try await world.reconciled("alice", setup: setup).outcome == "unchanged")
            let rows = try await world.number(
                "SELECT count(*) FROM entitlement_sync.purchase WHERE merged_into IS NULL"
            )
            #expect(rows == 1)
            let names = try await world.number("SELECT count(*) FROM entitlement_sync.purchase_identifier")
            #expect(names == 3, "RevenueCat's id, the first and the latest transaction")
        }
    }

    @Test func `Two witnesses who speak of a purchase for the first time, in one reading, make one row`() async throws {
        let customer = "{id: alice, purchases: [{state: lifetime, store_purchase_identifier: \"2000000100000030\"}]}"
        let line =
            "original: \"2000000100000030\", transaction: \"2000000100000030\", product: lifetime, type: non_consumable"
        try await World.with(customers: [customer], scenario: AppStoreRestoreTests.scenario(line)) { world in
            try await world.add("alice")
            try await world.addProducts()
            let setup = try world.asking(world.revenueCat, world.appStore)
            let proof = try world.transactionProof("2000000100000030")
            #expect(try await world.restored("alice", proofs: proof, setup: setup).outcome == "restored")
            #expect(try await world.number("SELECT count(*) FROM entitlement_sync.purchase") == 1)
            #expect(
                try await world.number(
                    "SELECT count(*) FROM entitlement_sync.purchase WHERE source = 'app_store' AND lookup_id IS NOT NULL"
                ) == 1,
                "the store's own word stands"
            )
            #expect(try await world.number("SELECT count(DISTINCT purchase_id) FROM entitlement_sync.observation") == 1)
            try await world.steer(
                "/app-store/customers/alice",
                #"""
                {"transactions":[{"original":"2000000100000030","transaction":"2000000100000030",
                "product":"lifetime","type":"non_consumable","state":"revoked"}]}
                """#
            )
            try await world.change(
                "alice",
                #"{"purchases":[{"state":"lifetime_refunded","store_purchase_identifier":"2000000100000030"}]}"#
            )
            #expect(try await world.reconciled("alice", setup: setup).outcome == "demoted")
        }
    }

    @Test func `What its store has called over does not come back by what RevenueCat has not heard of`() async throws {
        let customers = [Self.holding("alice")]
        try await World.with(customers: customers, scenario: Self.appStore) { world in
            try await world.add("alice")
            try await world.addProducts()
            let setup = try world.asking(world.revenueCat, world.appStore)
            let proof = try world.transactionProof("2000000100000009")
            #expect(try await world.restored("alice", proofs: proof, setup: setup).outcome == "restored")
            try await world.steer(
                "/app-store/customers/alice",
                #"""
                {"transactions":[{"original":"2000000100000001","transaction":"2000000100000009",
                "product":"premium_monthly","state":"revoked","expires":"+30d"}]}
                """#
            )
            let shown = try await world.restored("alice", proofs: proof, setup: setup)
            #expect(shown.outcome == "nothing_to_restore")
            _ = try await world.reconciled("alice", setup: setup)
            #expect(try await world.decisions(about: "alice").map(\.outcome).contains("demoted"))
            #expect(try await world.restored("alice", setup: setup).outcome == "nothing_to_restore")
            // What the store can't be asked about again it has said before; a later period it has not.
            try await world.steer("/faults", #"{"endpoint":"app_store.statuses","status":500}"#, method: .post)
            let failing = try world.asking(world.revenueCat, world.appStore) { $0.retry.maxAttempts = 2 }
            for (days, outcome) in [(60, "store_unavailable"), (-60, "restored")] {
                try await world.pool.query(
                    "UPDATE entitlement_sync.purchase SET period_ends_at = now() + \(days) * interval '1 day'"
                )
                #expect(try await world.restored("alice", setup: failing).outcome == outcome)
            }
        }
    }

    @Test func `107: while RevenueCat is down the store itself speaks for what our records hold`() async throws {
        try await World.with(customers: ["{id: alice, state: none}"], scenario: Self.appStore) { world in
            try await world.add("alice")
            try await world.add("bob")
            try await world.addProducts()
            let setup = try world.asking(world.revenueCat, world.appStore) { $0.retry.maxAttempts = 2 }
            let proof = try world.transactionProof("2000000100000009")
            #expect(try await world.restored("alice", proofs: proof, setup: setup).outcome == "restored")
            try await world.pool.query("UPDATE users SET type = 'free'")
            try await world.steer("/faults", #"{"endpoint":"subscriptions","status":503}"#, method: .post)
            #expect(try await world.restored("alice", setup: setup).outcome == "restored")
            #expect(try await world.restored("bob", setup: setup).outcome == "store_unavailable")
        }
    }

    @Test func `95: that RevenueCat does not know somebody is nothing only once every other store was read`()
        async throws
    {
        let scenario = AppStoreRestoreTests.scenario(
            "original: \"2000000100000001\", transaction: \"2000000100000009\", product: premium_monthly,"
                + " state: expired, expires: -9d"
        )
        try await World.with(scenario: scenario) { world in
            try await world.add("alice")
            try await world.addProducts()
            let setup = try world.asking(world.revenueCat, world.appStore) { $0.retry.maxAttempts = 2 }
            let proof = try world.transactionProof("2000000100000009")
            try await world.steer("/faults", #"{"endpoint":"app_store.statuses","status":500}"#, method: .post)
            #expect(try await world.restored("alice", proofs: proof, setup: setup).outcome == "store_unavailable")
            try await world.steer("/faults", "", method: .delete)
            let answered = try await world.restored("alice", proofs: proof, setup: setup)
            #expect(answered.outcome == "nothing_to_restore" && answered.messageKey == "nothing.expired")
            let alone = try await world.restored("alice", setup: world.asking(world.revenueCat))
            #expect(alone.outcome == "nothing_to_restore")
        }
    }

    @Test func `64: two family members, two accounts: two purchases`() async throws {
        let scenario = """
            app_store:
              customers:
                - {id: one, transactions: [{original: "2000000100000001", transaction: "2000000100000001", product: premium_monthly, expires: +20d}]}
                - {id: two, transactions: [{original: "2000000100000002", transaction: "2000000100000002", product: premium_monthly, expires: +20d, ownership: FAMILY_SHARED}]}
            """
        try await World.with(scenario: scenario) { world in
            try await world.addProducts()
            let setup = try world.asking(world.appStore)
            for (user, transaction) in [("one", "2000000100000001"), ("two", "2000000100000002")] {
                try await world.add(user)
                let proof = try world.transactionProof(transaction)
                #expect(try await world.restored(user, proofs: proof, setup: setup).outcome == "restored")
            }
            #expect(try await world.number("SELECT count(*) FROM entitlement_sync.ticket") == 0)
        }
    }

    @Test func `Demotion needs every store that knew the user`() async throws {
        try await World.with(customers: ["{id: alice, state: none}"], scenario: Self.appStore) { world in
            try await world.add("alice")
            try await world.addProducts()
            let both = try world.asking(world.revenueCat, world.appStore)
            let proof = try world.transactionProof("2000000100000009")
            #expect(try await world.restored("alice", proofs: proof, setup: both).outcome == "restored")
            let alone = world.asking(world.revenueCat) { $0.decision.absenceMargin = .zero }
            for _ in 1...3 { #expect(try await world.reconciled("alice", setup: alone).outcome == "deferred") }
            #expect(try await world.decisions(about: "alice").last?.rule == "store_not_asked")
            try await world.steer("/faults", #"{"endpoint":"app_store.statuses","status":500}"#, method: .post)
            let failing = try world.asking(world.revenueCat, world.appStore) {
                $0.decision.absenceMargin = .zero
                $0.retry.maxAttempts = 2
            }
            #expect(try await world.reconciled("alice", setup: failing).outcome == "store_unavailable")
            #expect(try await world.type(of: "alice") == "subscriber")
        }
    }

    @Test func `An answer that the store gave before it gave the one we hold is no answer`() async throws {
        try await World.with(scenario: Self.appStore) { world in
            try await world.add("alice")
            try await world.addProducts()
            let setup = try world.asking(world.appStore) { $0.retry.maxAttempts = 2 }
            let proof = try world.transactionProof("2000000100000009")
            #expect(try await world.restored("alice", proofs: proof, setup: setup).outcome == "restored")
            world.simulator.shiftClock(byMilliseconds: -86_400_000)
            try await world.steer(
                "/app-store/customers/alice",
                #"""
                {"transactions":[{"original":"2000000100000001","transaction":"2000000100000009",
                "product":"premium_monthly","state":"expired","expires":"-1d"}]}
                """#
            )
            #expect(try await world.reconciled("alice", setup: setup).outcome == "store_unavailable")
            #expect(try await world.type(of: "alice") == "subscriber")
        }
    }

    @Test func `L3: gems that RevenueCat listed are not asked about, however many`() async throws {
        let gems = Array(repeating: "consumable", count: 30).joined(separator: ", ")
        try await World.with(customers: ["{id: alice, purchases: [\(gems)]}"], scenario: Self.appStore) { world in
            try await world.add("alice")
            try await world.addProducts()
            let setup = try world.asking(world.revenueCat, world.appStore)
            for _ in 1...2 { #expect(try await world.restored("alice", setup: setup).messageKey == "nothing") }
            #expect(world.simulator.requestReport().byPath.keys.allSatisfy { !$0.contains("inApps") })
        }
    }

    @Test func `Money that nobody claims is a finding, by age`() async throws {
        // The account's second line was bought by somebody who has not shown it.
        let scenario = AppStoreRestoreTests.scenario(
            "original: \"2000000100000001\", transaction: \"2000000100000009\", product: premium_monthly, expires: +20d",
            "original: \"2000000200000001\", transaction: \"2000000200000009\", product: premium_monthly, expires: +20d,"
                + " account_token: 11111111-4f89-41d3-9a0c-0305e82c3301"
        )
        try await World.with(scenario: scenario) { world in
            try await world.add("alice")
            try await world.addProducts()
            let setup = try world.asking(world.appStore)
            let proof = try world.transactionProof("2000000100000009")
            #expect(try await world.restored("alice", proofs: proof, setup: setup).outcome == "restored")
            try await world.pool.query(
                """
                UPDATE entitlement_sync.purchase SET owner_key = NULL
                 WHERE id = (SELECT purchase_id FROM entitlement_sync.purchase_identifier WHERE value = '2000000200000001')
                """
            )
            let check = await Doctor(pool: world.pool).checks().first { $0.name == "unclaimed_purchases" }
            #expect(check?.ok == false)
            #expect(check?.detail.contains("1 active purchases belong to no user: 1 seen within a day") == true)
            #expect(check?.detail.contains("2000000200000001") == true)
        }
    }
}
