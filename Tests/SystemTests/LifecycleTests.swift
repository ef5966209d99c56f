import Entitlements
import Postgres
import Queue
import TestSupport
import Testing
import UserRequests

struct LifecycleTests {
    @Test(arguments: [
        ("1", "active"), ("24", "trial"), ("25", "cancelled"), ("27", "grace"), ("30", "pause_scheduled"),
        ("46", "price_increase"), ("44, 45", "product_change"), ("47", "unknown"), ("62", "family_shared"),
        ("65", "promotional"), ("68", "lifetime"),
    ])
    func `24, 25, 27, 30, 46, 47, 62, 65, 68: what gives access restores`(
        _ number: String,
        _ state: String
    ) async throws {
        try await World.with(customers: ["{id: ann, state: \(state)}"]) { world in
            try await world.add("ann")
            #expect(try await world.restored("ann").outcome == "restored", "\(number)")
            #expect(try await world.type(of: "ann") == "subscriber")
        }
    }

    @Test(arguments: [
        ("28", "billing_retry", "nothing.billing_retry"), ("31", "paused", "nothing.paused"),
        ("39", "expired", "nothing.expired"), ("49", "incomplete", "nothing.pending_payment"),
        ("55", "refunded", "nothing.refunded"), ("69", "lifetime_refunded", "nothing.refunded"),
        ("71", "consumable", "nothing"), ("157", "sandbox", "nothing.sandbox"),
    ])
    func `28, 31, 49, 55, 69, 71, 157: what gives no access is nothing to restore, and says why`(
        _ number: String,
        _ state: String,
        _ key: String
    ) async throws {
        try await World.with(customers: ["{id: ann, state: \(state)}"]) { world in
            try await world.add("ann")
            let job = try await world.restored("ann")
            #expect(job.outcome == "nothing_to_restore", "\(number)")
            // RevenueCat spells a refunded subscription as one that expired before its time.
            if state == "refunded" {
                #expect(["nothing.refunded", "nothing.expired"].contains(job.messageKey))
            } else {
                #expect(job.messageKey == key)
            }
            #expect(try await world.type(of: "ann") == "free")
            #expect(try await world.number("SELECT count(*) FROM entitlement_sync.observation") > 0)
        }
    }

    @Test(arguments: [("28", "billing_retry"), ("31", "paused"), ("55", "expired"), ("61, 69", "refunded")])
    func `28, 31, 55, 61, 69: the store's word demotes and freezes; on recovery all comes back`(
        _ number: String,
        _ state: String
    ) async throws {
        try await World.with(customers: ["{id: ann, state: active}"]) { world in
            try await world.add("ann")
            try await world.addAssets(3, of: "ann", frozenFor: [])
            try await world.addAssets(1, of: "ann", frozenFor: ["moderation"])
            #expect(try await world.reconciled("ann").outcome == "promoted")
            try await world.change("ann", #"{"state":"\#(state)"}"#)
            #expect(try await world.reconciled("ann").outcome == "demoted", "\(number)")
            #expect(try await world.type(of: "ann") == "free")
            #expect(try await world.assets(of: "ann", frozenFor: ["subscription_lapsed"]) == 3)
            #expect(
                try await world.number(
                    """
                    SELECT count(*) FROM assets
                     WHERE frozen_reasons @> '{moderation}' AND frozen_at IS NOT NULL
                    """
                ) == 1
            )
            try await world.change("ann", #"{"state":"active"}"#)
            #expect(try await world.reconciled("ann").outcome == "promoted")
            #expect(try await world.type(of: "ann") == "subscriber")
            #expect(try await world.assets(of: "ann", frozenFor: []) == 3)
            #expect(try await world.assets(of: "ann", frozenFor: ["moderation"]) == 1)
        }
    }

    @Test(arguments: ["cancelled", "grace", "price_increase", "unknown", "pause_scheduled"])
    func `25, 27, 30, 46, 47: while access is given a reconcile keeps a subscriber`(_ state: String) async throws {
        try await World.with(customers: ["{id: ann, state: active}"]) { world in
            try await world.add("ann")
            #expect(try await world.reconciled("ann").outcome == "promoted")
            try await world.change("ann", #"{"state":"\#(state)"}"#)
            #expect(try await world.reconciled("ann").outcome == "unchanged")
            #expect(try await world.type(of: "ann") == "subscriber")
            let marked = try await world.decisions(about: "ann").last?.explanation.contains("at risk")
            #expect(marked == (state == "grace"))
        }
    }

    @Test func `34: shortly after the period's end, with renewal still expected, a subscriber is kept`() async throws {
        try await World.with(customers: ["{id: ann, state: active}"]) { world in
            try await world.add("ann")
            #expect(try await world.reconciled("ann").outcome == "promoted")
            try await world.change(
                "ann",
                #"{"subscriptions":[{"state":"active","ends":"-30s","gives_access":false}]}"#
            )
            let job = try await world.reconciled("ann")
            #expect(job.outcome == "deferred")
            #expect(try await world.decisions(about: "ann").last?.rule == "soft_window")
            #expect(try await world.type(of: "ann") == "subscriber")
        }
    }

    @Test func `35: on Google Play the soft window is twice as long`() async throws {
        try await World.with(customers: ["{id: ann, state: active}"]) { world in
            try await world.add("ann")
            #expect(try await world.reconciled("ann").outcome == "promoted")
            try await world.endPeriods()
            for (ends, rule) in [("-30h", "soft_window"), ("-49h", "absence_margin")] {
                try await world.change(
                    "ann",
                    #"{"subscriptions":[{"state":"active","store":"play_store","ends":"\#(ends)","gives_access":false}]}"#
                )
                #expect(try await world.reconciled("ann").outcome == "deferred")
                #expect(try await world.decisions(about: "ann").last?.rule == rule)
            }
            #expect(try await world.type(of: "ann") == "subscriber")
        }
    }

    @Test func `56, 58: after a refund without revocation the store's word on access counts`() async throws {
        let refunded = #"{"subscriptions":[{"state":"active","auto_renewal_status":"will_renew","gross":0}]}"#
        try await World.with(customers: ["{id: ann, state: active}"]) { world in
            try await world.add("ann")
            #expect(try await world.reconciled("ann").outcome == "promoted")
            try await world.change("ann", refunded)
            #expect(try await world.reconciled("ann").outcome == "unchanged")
        }
    }

    @Test func `67: a promotional grant changes the type; what moderation froze stays frozen`() async throws {
        try await World.with(customers: ["{id: ann, state: promotional}"]) { world in
            try await world.add("ann")
            try await world.addAssets(2, of: "ann", frozenFor: ["moderation"])
            #expect(try await world.restored("ann").outcome == "restored")
            #expect(try await world.type(of: "ann") == "subscriber")
            #expect(try await world.assets(of: "ann", frozenFor: ["moderation"]) == 2)
        }
    }

    @Test func `51, 52: a temporary grant is replaced by the purchase it stood for, and nothing happens twice`()
        async throws
    {
        @Sendable func temporary(_ user: String, isOver: Bool = false) -> String {
            let state = isOver ? #""expired","store":"promotional","ends":"-1m""# : #""promotional","ends":"+20h""#
            return #"{"id":"sub_of_\#(user)","state":\#(state)}"#
        }
        let real = #"{"state":"active","id":"sub_real","store_subscription_identifier":"200000070000001"}"#
        try await World.with(customers: ["{id: ann, state: none}", "{id: bob, state: none}"]) { world in
            for user in ["ann", "bob"] {
                try await world.add(user)
                try await world.addAssets(2, of: user, frozenFor: ["subscription_lapsed"])
                try await world.change(user, #"{"subscriptions":[\#(temporary(user))]}"#)
                #expect(try await world.reconciled(user).outcome == "promoted")
            }
            // Ann's purchase is validated under ids of its own while the grant runs; bob's never is.
            for isOver in [false, true] {
                let grant = temporary("ann", isOver: isOver)
                try await world.change("ann", #"{"subscriptions":[\#(grant),\#(real)]}"#)
                #expect(try await world.reconciled("ann").outcome == "unchanged")
            }
            let access = try await world.texts(
                """
                SELECT p.store FROM entitlement_sync.purchase AS p
                  JOIN entitlement_sync.user_sync AS u ON u.user_key = p.owner_key
                 WHERE u.user_id = 'ann' AND p.gives_access AND p.merged_into IS NULL
                """
            )
            #expect(access == ["app_store"])
            #expect(try await world.decisions(about: "ann").map(\.assetsChanged) == [2, 0, 0])
            #expect(try await world.tickets(of: "ann").isEmpty)
            try await world.change("bob", #"{"subscriptions":[\#(temporary("bob", isOver: true))]}"#)
            #expect(try await world.reconciled("bob").outcome == "demoted")
            let explanation = try await world.decisions(about: "bob").last?.explanation
            #expect(explanation?.contains("refunded") == false)
            #expect(try await world.restored("bob").messageKey == "nothing.expired")
        }
    }

    @Test func `54: access on the last of many pages is found`() async throws {
        let many = Array(repeating: "expired", count: 144) + ["active"]
        let customer = "{id: ann, subscriptions: [\(many.joined(separator: ", "))]}"
        try await World.with(customers: [customer]) { world in
            try await world.add("ann")
            #expect(try await world.restored("ann").outcome == "restored")
        }
    }

    @Test func `54: a list whose later page fails takes nothing away and is no nothing`() async throws {
        let many = Array(repeating: "expired", count: 145).joined(separator: ", ")
        try await World.with(customers: ["{id: ann, subscriptions: [\(many)]}"]) { world in
            try await world.add("ann", .subscriber)
            try await world.inject(#"{"customer":"ann","endpoint":"subscriptions","skip":1,"status":500}"#)
            var setup = WorkerSetup()
            setup.retry.maxAttempts = 2
            let job = try await world.reconciled("ann", setup: setup)
            #expect(job.state == "dead")
            #expect(job.outcome == "store_unavailable")
            #expect(try await world.type(of: "ann") == "subscriber")
        }
    }

    @Test func `158: a sandbox purchase of an allow-listed user restores`() async throws {
        try await World.with(customers: ["{id: ann, state: sandbox}", "{id: bob, state: sandbox}"]) { world in
            for user in ["ann", "bob"] { try await world.add(user) }
            try await world.pool.query(
                """
                INSERT INTO entitlement_sync.sandbox_user
                VALUES ('ann', now() + interval '1 day'), ('bob', now() - interval '1 day')
                """
            )
            #expect(try await world.restored("ann").outcome == "restored")
            #expect(try await world.restored("bob").messageKey == "nothing.sandbox")
        }
    }

    @Test func `159: an unmapped product is no nothing; once it is mapped the dead job lives again and restores`()
        async throws
    {
        try await World.with(customers: ["{id: ann, state: unmapped}"]) { world in
            try await world.add("ann")
            var setup = WorkerSetup()
            setup.retry.maxAttempts = 2
            let dead = try await world.restored("ann", setup: setup)
            #expect(dead.state == "dead")
            #expect(dead.outcome == "store_unavailable")
            #expect(dead.lastError == "product_unmapped")
            #expect(try await world.alarms() == ["product_unmapped"])
            try await world.pool.query(
                """
                INSERT INTO entitlement_sync.product (store, product_id, entitlement, grants_access)
                VALUES ('revenuecat', 'unmapped', 'premium', true)
                """
            )
            #expect(try await world.status(dead.id).state == "queued")
            try await world.work(setup)
            #expect(try await world.status(dead.id).outcome == "restored")
            #expect(try await world.alarms().isEmpty)
        }
    }

    @Test func `193: a grant of our own gives access, and its end takes it by the usual laws`() async throws {
        try await World.with(customers: ["{id: ann, state: none}"]) { world in
            try await world.add("ann")
            try await world.pool.query("SELECT entitlement_sync.request_reconcile('ann')")
            try await world.work()
            try await world.pool.query(
                """
                INSERT INTO entitlement_sync."grant" (user_key, until, reason)
                SELECT u.user_key, now() + interval '1 day', 'goodwill'
                  FROM entitlement_sync.user_sync AS u WHERE u.user_id = 'ann'
                """
            )
            #expect(try await world.reconciled("ann").outcome == "promoted")
            #expect(try await world.decisions(about: "ann").last?.rule == "grant_access")
            try await world.pool.query(#"UPDATE entitlement_sync."grant" SET until = now() - interval '1 second'"#)
            #expect(try await world.reconciled("ann").outcome == "deferred")
            // Not before: with this margin, a look follows at once.
            var setup = WorkerSetup()
            setup.decision.absenceMargin = .zero
            #expect(try await world.reconciled("ann", setup: setup).outcome == "demoted")
        }
    }
}
