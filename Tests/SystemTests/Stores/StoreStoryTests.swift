import Entitlements
import Foundation
import HTTPTypes
import Postgres
import Queue
import StoreSimulator
import TestSupport
import Testing
import UserRequests

/// What happens to people over some days, told by the stores alone.
@Suite struct StoreStoryTests {
    @Test func `44: an upgrade is the same line with another product, and nobody is demoted between`() async throws {
        let line = #"original: "2000000100000001", product"#
        let before = "\(line): premium_monthly, transaction: \"2000000100000009\", expires: +2d"
        try await World.with(
            scenario: "app_store:\n  customers:\n    - {id: alice, transactions: [{\(before)}]}\n"
        ) { world in
            try await world.add("alice")
            try await world.addProducts()
            try await world.pool.query(
                """
                INSERT INTO entitlement_sync.product (store, product_id, entitlement, grants_access)
                VALUES ('app_store', 'premium_yearly', 'premium', true)
                """
            )
            let setup = try world.asking(world.appStore)
            let proof = try world.transactionProof("2000000100000009")
            #expect(try await world.restored("alice", proofs: proof, setup: setup).outcome == "restored")
            try await world.steer(
                "/app-store/customers/alice",
                #"""
                {"transactions":[{"original":"2000000100000001","transaction":"2000000100000010",
                "product":"premium_yearly","expires":"+365d"}]}
                """#
            )
            #expect(try await world.reconciled("alice", setup: setup).outcome == "unchanged")
            #expect(try await world.type(of: "alice") == "subscriber")
            let purchases = try await world.number(
                "SELECT count(*) FROM entitlement_sync.purchase WHERE merged_into IS NULL"
            )
            #expect(purchases == 1)
            #expect(try await world.owner(of: "2000000100000001") == "alice")
        }
    }

    @Test func `63: a family share that is withdrawn takes it from that member alone`() async throws {
        let scenario = """
            app_store:
              customers:
                - {id: one, transactions: [{original: "2000000100000001", product: premium_monthly, expires: +20d}]}
                - {id: two, transactions: [{original: "2000000100000002", product: premium_monthly, expires: +20d, ownership: FAMILY_SHARED}]}
            """
        try await World.with(scenario: scenario) { world in
            for user in ["ann", "bob"] { try await world.add(user) }
            try await world.addProducts()
            let setup = try world.asking(world.appStore)
            for (user, id) in [("ann", "2000000100000001"), ("bob", "2000000100000002")] {
                let proof = try world.transactionProof(id)
                #expect(try await world.restored(user, proofs: proof, setup: setup).outcome == "restored")
            }
            try await world.steer(
                "/app-store/customers/two",
                #"""
                {"transactions":[{"original":"2000000100000002","product":"premium_monthly","expires":"+20d",
                "ownership":"FAMILY_SHARED","state":"revoked"}]}
                """#
            )
            #expect(try await world.reconciled("bob", setup: setup).outcome == "demoted")
            #expect(try await world.reconciled("ann", setup: setup).outcome == "unchanged")
            #expect(try await world.type(of: "bob") == "free")
            #expect(try await world.type(of: "ann") == "subscriber")
        }
    }

    @Test func `40: a new token without a link is a line of its own, whose owner the account id names`() async throws {
        let scenario = "google_play:\n  purchases: [{token: tok-old, state: active}]\n"
        try await World.with(scenario: scenario) { world in
            for user in ["ann", "bob"] { try await world.add(user) }
            try await world.addProducts()
            let setup = world.asking(world.googlePlay)
            let old = world.tokenProof("tok-old")
            #expect(try await world.restored("ann", proofs: old, setup: setup).outcome == "restored")
            try await world.steer("/google-play/purchases/tok-old", #"{"state":"expired"}"#)
            try await world.steer("/google-play/purchases/tok-new", #"{"state":"active","account":"bob"}"#)
            // That the first was hers makes the second nobody's but whose the store says.
            let new = world.tokenProof("tok-new")
            #expect(try await world.restored("ann", proofs: new, setup: setup).outcome == "store_account_mismatch")
            #expect(try await world.restored("bob", proofs: new, setup: setup).outcome == "already_subscriber")
            #expect(try await world.owner(of: "tok-new") == "bob")
            #expect(try await world.owner(of: "tok-old") == "ann")
        }
    }

    @Test(arguments: [
        ("login_discarded", "store_unavailable", "sign_in_needed", []),
        ("app_not_registered", "store_unavailable", "unavailable", ["app_not_registered"]),
        ("cancelled", "nothing_to_restore", "nothing", []),
    ])
    func `174 to 176: an error of the device is answered from what the server reads itself`(
        error: String,
        outcome: String,
        key: String,
        alarms: [String]
    ) async throws {
        let order = "{order: 5b0d6f1e-2c77-4c1b-8f9a-0e6a7c1d2b33, account: bob, expires: +20d}"
        try await World.with(scenario: "onside:\n  orders: [\(order)]\n") { world in
            for user in ["ann", "bob"] { try await world.add(user) }
            try await world.addProducts()
            let setup = world.asking(world.onside)
            let status = try await world.restored("ann", proofs: "[]", clientError: error, setup: setup)
            #expect(status.outcome == outcome && status.messageKey == key && status.state == "done", "\(status)")
            #expect(try await world.tickets(of: "ann").isEmpty)
            #expect(try await world.alarms() == alarms)
            // Whoever has access hears of it, whatever the device said.
            let shown = try world.historyProof("bob")
            let other = try await world.restored("bob", proofs: shown, clientError: error, setup: setup)
            #expect(other.outcome == "restored")
        }
    }

    @Test(arguments: ["cancelled", "connection_error", "service_unavailable", "internal_error"])
    func `175: a store that only the device can show counts as unread, and one that the server reads does not`(
        _ error: String
    ) async throws {
        try await World.with(customers: ["{id: ann, state: none}"]) { world in
            for user in ["ann", "bob"] { try await world.add(user) }
            let setup = world.asking(world.revenueCat) { $0.retry.maxAttempts = 2 }
            let onside = world.proof("onside", "onside_order_id", "5b0d6f1e-2c77-4c1b-8f9a-0e6a7c1d2b33")
            let unread = try await world.restored("ann", proofs: onside, clientError: error, setup: setup)
            #expect(unread.state == "dead" && unread.outcome == "store_unavailable" && unread.attempt == 2)
            let apple = world.proof("app_store", "transaction_id", "2000000100000009")
            let read = try await world.restored("bob", proofs: apple, clientError: error, setup: setup)
            #expect(read.state == "done" && read.outcome == "nothing_to_restore" && read.attempt == 0)
            for user in ["ann", "bob"] { #expect(try await world.tickets(of: user).isEmpty) }
        }
    }
}
