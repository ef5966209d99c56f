import Entitlements
import Postgres
import StoreClients
import StoreEvents
import StoreSimulator
import TestSupport
import Testing
import UserRequests

/// What stores' events lead to: another read, whose result is the store's own word and never the event's.
@Suite struct EventTests {
    // MARK: In any order

    @Test(arguments: ["active", "expired"])
    func `73: EXPIRATION that is delivered before RENEWAL ends with a subscriber`(_ shownFirst: String) async throws {
        try await World.with(customers: ["{id: ann, state: active}"]) { world in
            try await world.add("ann")
            #expect(try await world.reconciled("ann").outcome == "promoted")
            // What RevenueCat shows when the first one comes may be of before the renewal.
            try await world.change("ann", #"{"state":"\#(shownFirst)"}"#)
            try await world.deliver(#"{"id":"expiration","type":"EXPIRATION","app_user_id":"ann"}"#)
            try await world.work()
            #expect(try await world.type(of: "ann") == (shownFirst == "active" ? "subscriber" : "free"))
            try await world.change("ann", #"{"state":"active"}"#)
            try await world.deliver(#"{"id":"renewal","type":"RENEWAL","app_user_id":"ann"}"#)
            try await world.work()
            #expect(try await world.type(of: "ann") == "subscriber")
            let outcomes = try await world.decisions(about: "ann").map(\.outcome)
            let later = shownFirst == "active" ? ["unchanged", "unchanged"] : ["demoted", "promoted"]
            #expect(outcomes == ["promoted"] + later)
        }
    }

    @Test func `73: EXPIRATION and RENEWAL that come together are one look`() async throws {
        try await World.with(customers: ["{id: ann, state: active}"]) { world in
            try await world.add("ann")
            #expect(try await world.reconciled("ann").outcome == "promoted")
            let events = [
                try world.revenueCatEvent(#"{"id":"renewal","type":"RENEWAL","app_user_id":"ann"}"#),
                try world.revenueCatEvent(#"{"id":"expiration","type":"EXPIRATION","app_user_id":"ann"}"#),
            ]
            for batch in [events, Array(events.reversed())] { try await world.inbox.accept(batch, from: .revenueCat) }
            try await world.work()
            #expect(try await world.decisions(about: "ann").map(\.outcome) == ["promoted", "unchanged"])
            #expect(try await world.storeRequests(for: "ann") == 2)
        }
    }

    @Test func `73: the same events in every order end in the same state`() async throws {
        let orders = Self.orders(of: Array(0..<4))
        #expect(orders.count == 24)
        let item: @Sendable (Int) -> String = { number in
            #"[{"state":"active","id":"sub_\#(number)","store_subscription_identifier":"20000007\#(100 + number)"}]"#
        }
        try await World.with { world in
            for number in orders.indices {
                for user in ["a-\(number)", "b-\(number)", "c-\(number)"] { try await world.add(user) }
                try await world.change("a-\(number)", #"{"subscriptions":\#(item(number))}"#)
                try await world.change("b-\(number)", #"{"state":"active"}"#)
                for user in ["a-\(number)", "b-\(number)"] { _ = try await world.reconcile(user) }
            }
            try await world.work()
            #expect(try await world.number("SELECT count(*) FROM users WHERE type = 'subscriber'") == 48)
            // Everything has happened by the time the first word of it comes.
            for number in orders.indices {
                try await world.change("a-\(number)", #"{"state":"none"}"#)
                try await world.change("b-\(number)", #"{"state":"expired"}"#)
                try await world.change("c-\(number)", #"{"subscriptions":\#(item(number))}"#)
            }
            for place in 0..<4 {
                var events: [Inbox.Event] = []
                for (number, order) in orders.enumerated() {
                    events.append(try world.revenueCatEvent(Self.story(number)[order[place]]))
                }
                try await world.inbox.accept(events, from: .revenueCat)
                try await world.work()
            }
            #expect(try await world.number("SELECT count(*) FROM entitlement_sync.inbox WHERE state = 'done'") == 96)
            let ends = try await world.pool.query(
                "SELECT left(id, 1) || ' ' || type || ' ' || count(*) FROM users GROUP BY left(id, 1), type ORDER BY 1"
            ).map { try $0.decode(String.self) }
            // RevenueCat's naming of another owner is its word for the former one.
            #expect(ends == ["a free 24", "b free 24", "c subscriber 24"])
            let owners = try await world.pool.query(
                """
                SELECT left(u.user_id, 1) || ' ' || p.status || ' ' || count(*) FROM entitlement_sync.purchase AS p
                  JOIN entitlement_sync.user_sync AS u ON u.user_key = p.owner_key
                 WHERE p.merged_into IS NULL GROUP BY left(u.user_id, 1), p.status ORDER BY 1
                """
            ).map { try $0.decode(String.self) }
            #expect(owners == ["b expired 24", "c active 24"])
            let tickets = try await world.pool.query(
                """
                SELECT left(t.user_id, 1) || ' ' || t.kind || ' ' || count(*) FROM entitlement_sync.ticket_status AS t
                 GROUP BY left(t.user_id, 1), t.kind ORDER BY 1
                """
            ).map { try $0.decode(String.self) }
            #expect(tickets == ["c external_transfer 24"])
        }
    }

    // MARK: What the stores say

    @Test(arguments: [("cancelled", "unchanged", "subscriber"), ("refunded", "demoted", "free")])
    func `25, 55: CANCELLATION takes nothing from a running period; a refund demotes by the store's word`(
        _ state: String,
        _ outcome: String,
        _ type: String
    ) async throws {
        try await World.with(customers: ["{id: ann, state: active}"]) { world in
            try await world.add("ann")
            try await world.addAssets(2, of: "ann", frozenFor: [])
            #expect(try await world.reconciled("ann").outcome == "promoted")
            try await world.change("ann", #"{"state":"\#(state)"}"#)
            try await world.deliver(
                #"{"id":"e","type":"CANCELLATION","app_user_id":"ann","cancel_reason":"CUSTOMER_SUPPORT"}"#
            )
            try await world.work()
            #expect(try await world.decisions(about: "ann").map(\.outcome) == ["promoted", outcome])
            #expect(try await world.type(of: "ann") == type)
            #expect(
                try await world.assets(of: "ann", frozenFor: ["subscription_lapsed"]) == (type == "free" ? 2 : 0)
            )
        }
    }

    @Test(arguments: ["EXPIRATION", "CANCELLATION", "BILLING_ISSUE", "SUBSCRIPTION_PAUSED", "REFUND", "UNHEARD_OF"])
    func `An event decides nothing: whatever it says, what RevenueCat shows counts`(_ type: String) async throws {
        try await World.with(customers: ["{id: ann, state: active}"]) { world in
            try await world.add("ann")
            try await world.deliver(#"{"id":"e","type":"\#(type)","app_user_id":"ann"}"#)
            try await world.work()
            #expect(try await world.decisions(about: "ann").map(\.outcome) == ["promoted"])
        }
    }

    @Test func `77: TRANSFER has both read again, and the ledger follows RevenueCat with a ticket`() async throws {
        let item = #"[{"state":"active","id":"sub_moved","store_subscription_identifier":"200000070000001"}]"#
        try await World.with(customers: ["{id: old, state: none}", "{id: new, state: none}"]) { world in
            for user in ["old", "new"] { try await world.add(user) }
            try await world.change("old", #"{"subscriptions":\#(item)}"#)
            #expect(try await world.restored("old").outcome == "restored")
            // Somebody used the dashboard.
            try await world.change("old", #"{"state":"none"}"#)
            try await world.change("new", #"{"subscriptions":\#(item)}"#)
            try await world.deliver(
                #"{"id":"e","type":"TRANSFER","transferred_from":["old"],"transferred_to":["new"]}"#
            )
            let drained = try await world.inbox.drain()
            #expect(drained.examined == 1 && drained.queued == 2)
            try await world.work()
            #expect(try await world.owner(of: "200000070000001") == "new")
            #expect(try await world.type(of: "new") == "subscriber")
            #expect(try await world.decisions(about: "new").first?.rule == "owner_followed_revenuecat")
            #expect(try await world.tickets(of: "new").map(\.kind) == ["external_transfer"])
            #expect(try await world.tickets(of: "old").isEmpty)
            for user in ["old", "new"] {
                let reread = try await world.number(
                    """
                    SELECT count(*) FROM entitlement_sync.job_status
                     WHERE user_id = \(user) AND kind = 'reconcile' AND state = 'done'
                    """
                )
                #expect(reread >= 1, "\(user)")
            }
            // RevenueCat's naming of another owner is its word: two accounts do not share one subscription for a margin.
            #expect(try await world.decisions(about: "old").last?.rule == "moved_away")
            #expect(try await world.type(of: "old") == "free")
        }
    }

    @Test func `39, 55: a notification of Google Play's has whoever owns the token read again`() async throws {
        let scenario = GooglePlayRestoreTests.scenario("token: tok-a, state: active")
        try await World.with(scenario: scenario) { world in
            try await world.add("ann")
            try await world.addProducts()
            let setup = world.asking(world.googlePlay)
            let shown = try await world.restored("ann", proofs: world.tokenProof("tok-a"), setup: setup)
            #expect(shown.outcome == "restored")
            try await world.steer("/google-play/purchases/tok-a", #"{"state":"expired"}"#)
            let post = try world.simulator.googlePlayWebhook(.subscription(kind: 13, token: "tok-a"))
            let body = Array(post.body.utf8)
            let event = try PlayNotification.read(body, package: "com.example.app")
            #expect(try await world.inbox.accept([try Inbox.Event(event, body: body)], from: .googlePlay) == 1)
            try await world.work(setup)
            #expect(try await world.decisions(about: "ann").map(\.outcome) == ["restored", "demoted"])
            #expect(try await world.type(of: "ann") == "free")
            // Pub/Sub delivers at least once.
            #expect(try await world.inbox.accept([try Inbox.Event(event, body: body)], from: .googlePlay) == 0)
        }
    }

    @Test func `55: a notification of the App Store's has whoever owns the transaction read again`() async throws {
        let scenario = AppStoreRestoreTests.scenario(
            "original: \"2000000100000001\", transaction: \"2000000100000009\", product: premium_monthly, expires: +20d"
        )
        try await World.with(scenario: scenario) { world in
            try await world.add("ann")
            try await world.addProducts()
            let setup = try world.asking(world.appStore)
            let proof = try world.transactionProof("2000000100000009")
            #expect(try await world.restored("ann", proofs: proof, setup: setup).outcome == "restored")
            try await world.steer(
                "/app-store/customers/alice",
                #"""
                {"transactions":[{"original":"2000000100000001","transaction":"2000000100000009",
                "product":"premium_monthly","state":"revoked","expires":"+20d"}]}
                """#
            )
            let proofs = AppStoreProofs(
                roots: [try StoreSimulator.appStoreRoot],
                expected: .init(bundleID: "com.example.app")
            )
            let sender = AppStoreNotifications(proofs: proofs, bundleID: "com.example.app", appID: nil)
            let post = try world.simulator.appStoreWebhook(
                AppStoreWebhookRequest(type: "REFUND", transaction: "2000000100000009")
            )
            let body = Array(post.body.utf8)
            let event = try await sender.event(body)
            #expect(try await world.inbox.accept([try Inbox.Event(event, body: body)], from: .appStore) == 1)
            try await world.work(setup)
            #expect(try await world.decisions(about: "ann").map(\.outcome) == ["restored", "demoted"])
            #expect(try await world.type(of: "ann") == "free")
        }
    }

    // MARK: Parts

    /// Four events about three users: a purchase has moved from the first to the third, the second's is over.
    private static func story(_ number: Int) -> [String] {
        [
            """
            {"id":"\(number)-transfer","type":"TRANSFER","transferred_from":["a-\(number)"],
            "transferred_to":["c-\(number)"]}
            """,
            #"{"id":"\#(number)-expiration","type":"EXPIRATION","app_user_id":"b-\#(number)"}"#,
            #"{"id":"\#(number)-cancellation","type":"CANCELLATION","app_user_id":"b-\#(number)"}"#,
            #"{"id":"\#(number)-renewal","type":"RENEWAL","app_user_id":"c-\#(number)"}"#,
        ]
    }

    /// Every order of some numbers.
    private static func orders(of numbers: [Int]) -> [[Int]] {
        guard numbers.count > 1 else { return [numbers] }
        return numbers.flatMap { first in
            orders(of: numbers.filter { $0 != first }).map { [first] + $0 }
        }
    }
}
