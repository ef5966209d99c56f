import Entitlements
import Postgres
import Queue
import TestSupport
import Testing
import UserRequests

/// An item whose access can't be told: it gives nothing and takes nothing, and spoils no other item.
@Suite struct OddItemTests {
    /// A one-time purchase whose status is no word.
    private static let odd = #"{"state":"lifetime","id":"p_odd","status":""}"#
    /// The same, mended.
    private static let sound = #"{"state":"lifetime","id":"p_odd"}"#

    private static func customer(_ subscription: String, purchase: String) -> String {
        #"{"subscriptions":[{"state":"\#(subscription)","id":"sub_a"}],"purchases":[\#(purchase)]}"#
    }

    /// Whether the user is read again by schedule.
    private static func isReadAgain(_ user: String, _ world: World) async throws -> Bool {
        try await world.number(
            """
            SELECT count(*) FROM entitlement_sync.user_sync
             WHERE user_id = \(user) AND next_check_at > now() AND next_check_at < now() + interval '3 days'
            """
        ) == 1
    }

    @Test func `A free user hears at once that the store is unavailable, and is read again`() async throws {
        try await World.with(customers: ["{id: ann, state: none}"]) { world in
            try await world.add("ann")
            try await world.change("ann", Self.customer("expired", purchase: Self.odd))
            let status = try await world.restored("ann")
            #expect(status.state == "done" && status.attempt == 0)
            #expect(status.outcome == "store_unavailable" && status.messageKey == "unavailable")
            #expect(try await world.decisions(about: "ann").map(\.rule) == ["unreadable_item"])
            #expect(try await world.storeRequests(for: "ann") == 2, "one reading")
            #expect(try await world.alarms() == ["unreadable_item"])
            #expect(try await Self.isReadAgain("ann", world))
            // The rest of the reading is on record.
            #expect(try await world.owner(of: "sub_a") == "ann")
            try await world.change("ann", Self.customer("expired", purchase: Self.sound))
            #expect(try await world.reconciled("ann").outcome == "promoted")
        }
    }

    @Test func `A subscriber is deferred, whatever else is over, and is read again`() async throws {
        try await World.with(customers: ["{id: ann, state: none}"]) { world in
            try await world.add("ann")
            try await world.change("ann", Self.customer("active", purchase: Self.sound))
            #expect(try await world.reconciled("ann").outcome == "promoted")
            try await world.change("ann", Self.customer("expired", purchase: Self.odd))
            #expect(try await world.reconciled("ann").outcome == "deferred")
            #expect(try await world.decisions(about: "ann").last?.rule == "unreadable_item")
            #expect(try await world.restored("ann").outcome == "already_subscriber")
            #expect(try await world.type(of: "ann") == "subscriber")
            #expect(try await world.alarms() == ["unreadable_item"])
            #expect(try await Self.isReadAgain("ann", world))
            // It can be read again, and is over.
            try await world.change(
                "ann",
                #"{"subscriptions":[{"state":"expired","id":"sub_a"}],"#
                    + #""purchases":[{"state":"lifetime_refunded","id":"p_odd"}]}"#
            )
            #expect(try await world.reconciled("ann").outcome == "demoted")
        }
    }

    @Test func `An item beside it that gives access decides as always`() async throws {
        try await World.with(customers: ["{id: ann, state: none}"]) { world in
            try await world.add("ann")
            // Without access by a subscription the purchases are listed.
            let paying = #"{"state":"lifetime","id":"p_good"}"#
            try await world.change("ann", Self.customer("expired", purchase: "\(Self.odd),\(paying)"))
            #expect(try await world.restored("ann").outcome == "restored")
            #expect(try await world.reconciled("ann").outcome == "unchanged")
            #expect(try await world.decisions(about: "ann").map(\.rule) == ["store_access", "store_access"])
            #expect(try await world.alarms() == ["unreadable_item"])
        }
    }

    @Test func `A typed id that leads to it is answered as one that leads nowhere, and raises the alarm`() async throws
    {
        let id = "480000000000001"
        try await World.with(customers: ["{id: ann, state: none}", "{id: bob, state: none}"]) { world in
            try await world.add("ann")
            try await world.change(
                "bob",
                #"{"purchases":[{"state":"lifetime","status":"","store_purchase_identifier":"\#(id)"}]}"#
            )
            let typed = world.proof("app_store", "transaction_id", id)
            let status = try await world.restored("ann", proofs: typed, setup: WorkerSetup())
            #expect(status.state == "done" && status.attempt == 0 && status.outcome == "nothing_to_restore")
            #expect(try await world.decisions(about: "ann").map(\.rule) == ["no_access"])
            #expect(try await world.alarms() == ["unreadable_item"])
        }
    }

    @Test func `A purchase that the user shows waits for RevenueCat's word alone where that can't be read`()
        async throws
    {
        let scenario = GooglePlayRestoreTests.scenario(
            "token: tok-a, state: active, order_id: GPA.1111-2222-3333-44444",
            "token: tok-b, state: active, order_id: GPA.5555-2222-3333-44444"
        )
        try await World.with(customers: ["{id: ann, state: none}", "{id: bob, state: none}"], scenario: scenario) {
            world in
            try await world.add("ann")
            try await world.addProducts()
            try await world.change(
                "bob",
                #"{"subscriptions":[{"state":"active","store":"play_store","environment":"","#
                    + #""store_subscription_identifier":"GPA.1111-2222-3333-44444"}]}"#
            )
            let setup = world.asking(world.revenueCat, world.googlePlay)
            let alone = try await world.restored("ann", proofs: world.tokenProof("tok-a"), setup: setup)
            #expect(alone.state == "done" && alone.attempt == 0 && alone.outcome == "store_unavailable")
            #expect(try await world.decisions(about: "ann").map(\.rule) == ["unreadable_item"])
            #expect(try await world.owner(of: "tok-a") == nil, "whose it is, is not known")
            let both = """
                [{"store":"google_play","kind":"purchase_token","value":"tok-a"},
                 {"store":"google_play","kind":"purchase_token","value":"tok-b"}]
                """
            #expect(try await world.restored("ann", proofs: both, setup: setup).outcome == "restored")
            #expect(try await world.owner(of: "tok-b") == "ann")
            #expect(try await world.owner(of: "tok-a") == nil)
        }
    }

    @Test func `A line of the same account whose owner can't be read takes nothing from its subscriber`() async throws {
        let scenario = AppStoreRestoreTests.scenario("original: \"50001\", product: premium_monthly, expires: +20d")
        try await World.with(customers: ["{id: ann, state: none}", "{id: bob, state: none}"], scenario: scenario) {
            world in
            try await world.add("ann")
            try await world.addProducts()
            let setup = try world.asking(world.revenueCat, world.appStore)
            let proof = try world.transactionProof("50001")
            #expect(try await world.restored("ann", proofs: proof, setup: setup).outcome == "restored")
            let lines = "[\(SameAccountTests.over),\(SameAccountTests.open)]"
            try await world.steer("/app-store/customers/alice", #"{"transactions":\#(lines)}"#)
            #expect(try await world.reconciled("ann", setup: setup).outcome == "unchanged")
            try await world.change(
                "bob",
                #"{"subscriptions":[{"state":"active","environment":"","store_subscription_identifier":"50005"}]}"#
            )
            #expect(try await world.reconciled("ann", setup: setup).outcome == "deferred")
            #expect(try await world.decisions(about: "ann").last?.rule == "unreadable_item")
            #expect(try await world.type(of: "ann") == "subscriber")
        }
    }
}
