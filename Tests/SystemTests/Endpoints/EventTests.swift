import Entitlements
import Foundation
import Postgres
import Queue
import StoreClients
import StoreEvents
import StoreSimulator
import Testing
import UserRequests
import X509

/// What stores' events lead to: another look, whose result is the store's own word and never the event's.
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

    // MARK: Before RevenueCat shows it

    @Test func `74: what an event promises is waited for, and promotes once RevenueCat shows it`() async throws {
        try await World.with(customers: ["{id: ann, state: none}"]) { world in
            try await world.add("ann")
            try await world.deliver(#"{"id":"e","type":"INITIAL_PURCHASE","app_user_id":"ann"}"#)
            try await world.working {
                try await world.until(Self.waits)
                let decisions = try await world.decisions(about: "ann")
                #expect(decisions.isEmpty, "a no was believed")
                try await world.change("ann", #"{"state":"active"}"#)
                try await world.makeJobsDue()
                try await world.until("SELECT count(*) FROM users WHERE type = 'subscriber'")
            }
            #expect(try await world.decisions(about: "ann").map(\.outcome) == ["promoted"])
            let attempts = try await world.number("SELECT sum(attempt)::bigint FROM entitlement_sync.job_history")
            #expect(attempts == 0, "it was no failure")
        }
    }

    @Test(arguments: [("free", "none", "unchanged"), ("subscriber", "expired", "demoted")])
    func `74: no negative is believed within the settle time of a promise; after it, it is, and looked at again`(
        _ type: String,
        _ shown: String,
        _ outcome: String
    ) async throws {
        try await World.with(customers: ["{id: ann, state: active}"]) { world in
            try await world.add("ann")
            if type == "subscriber" { #expect(try await world.reconciled("ann").outcome == "promoted") }
            let before = try await world.decisions(about: "ann").count
            try await world.change("ann", #"{"state":"\#(shown)"}"#)
            try await world.deliver(#"{"id":"e","type":"RENEWAL","app_user_id":"ann"}"#)
            try await world.working {
                try await world.until(Self.waits)
                // Another look within the time is of no more use.
                try await world.pool.query(
                    "UPDATE entitlement_sync.queue SET reconcile_error = NULL WHERE owner IS NULL"
                )
                try await world.makeJobsDue()
                try await world.until(Self.waits)
                let kept = try await world.type(of: "ann")
                let decided = try await world.decisions(about: "ann").count
                #expect(kept == type && decided == before)
                try await world.pool.query(
                    "UPDATE entitlement_sync.user_sync SET access_event_at = access_event_at - interval '140 seconds'"
                )
                try await world.makeJobsDue()
                try await world.until("SELECT (count(*) = 0)::integer::bigint FROM entitlement_sync.queue")
            }
            #expect(try await world.decisions(about: "ann").last?.outcome == outcome)
            #expect(try await world.type(of: "ann") == "free")
            let looks = try await world.number(
                "SELECT count(*) FROM entitlement_sync.user_sync WHERE next_check_at = access_event_at + interval '5 minutes'"
            )
            #expect(looks == 1, "nobody looks again")
        }
    }

    @Test func `74: a yes is believed at once`() async throws {
        try await World.with(customers: ["{id: ann, state: active}"]) { world in
            try await world.add("ann")
            try await world.deliver(#"{"id":"e","type":"INITIAL_PURCHASE","app_user_id":"ann"}"#)
            try await world.work()
            #expect(try await world.decisions(about: "ann").map(\.outcome) == ["promoted"])
            #expect(try await world.storeRequests(for: "ann") == 1)
        }
    }

    @Test func `74: a tap within the settle time waits as well, and a yes is given at once`() async throws {
        try await World.with(customers: ["{id: ann, state: none}", "{id: bob, state: active}"]) { world in
            for user in ["ann", "bob"] { try await world.add(user) }
            for user in ["ann", "bob"] {
                try await world.deliver(#"{"id":"of-\#(user)","type":"INITIAL_PURCHASE","app_user_id":"\#(user)"}"#)
            }
            #expect(try await world.inbox.drain().queued == 2)
            let (waiting, answered) = (try await world.restore("ann"), try await world.restore("bob"))
            try await world.working {
                try await world.until(
                    "SELECT count(*) FROM entitlement_sync.queue WHERE restore_error = 'read_lag' AND owner IS NULL"
                )
                try await world.until(
                    "SELECT count(*) FROM entitlement_sync.job_status WHERE id = \(answered) AND state = 'done'"
                )
            }
            let status = try await world.status(waiting)
            #expect(status.state == "queued" && status.attempt == 0 && status.lastError == "read_lag")
            #expect(try await world.status(answered).outcome == "restored")
            #expect(try await world.decisions(about: "ann").isEmpty)
        }
    }

    @Test func `74: an event that was on its way for long promises nothing any more`() async throws {
        try await World.with(customers: ["{id: ann, state: none}"]) { world in
            try await world.add("ann")
            let hourAgo = Int64(Date().timeIntervalSince1970 * 1000) - 3_600_000
            try await world.deliver(
                #"{"id":"e","type":"RENEWAL","app_user_id":"ann","event_timestamp_ms":\#(hourAgo)}"#
            )
            try await world.work()
            #expect(try await world.decisions(about: "ann").map(\.outcome) == ["unchanged"])
            #expect(try await world.storeRequests(for: "ann") == 2, "one reading of two lists")
            let promised = try await world.number(
                "SELECT (extract(epoch FROM access_event_at) * 1000)::bigint FROM entitlement_sync.user_sync"
            )
            #expect(promised == hourAgo)
        }
    }

    @Test func `74: an older event does not take back what a newer one promised`() async throws {
        try await World.with { world in
            try await world.add("ann")
            let now = Int64(Date().timeIntervalSince1970 * 1000)
            for (id, time) in [("new", now - 1000), ("old", now - 3_600_000)] {
                try await world.deliver(
                    #"{"id":"\#(id)","type":"RENEWAL","app_user_id":"ann","event_timestamp_ms":\#(time)}"#
                )
                #expect(try await world.inbox.drain().queued == 1)
            }
            let kept = try await world.number(
                "SELECT count(*) FROM entitlement_sync.user_sync WHERE access_event_at > now() - interval '1 minute'"
            )
            #expect(kept == 1)
        }
    }

    @Test(arguments: [
        #""type":"INITIAL_PURCHASE","environment":"SANDBOX""#, #""type":"RENEWAL","environment":"SANDBOX""#,
        #""type":"NON_RENEWING_PURCHASE","environment":"PRODUCTION","entitlement_ids":[]"#, #""type":"EXPIRATION""#,
        #""type":"CANCELLATION""#,
    ])
    func `74: events of the sandbox, of coins and of endings promise nothing: a no is believed at once`(
        _ members: String
    ) async throws {
        try await World.with(customers: ["{id: ann, state: none}"]) { world in
            try await world.add("ann")
            try await world.deliver(#"{"id":"e","app_user_id":"ann",\#(members)}"#)
            try await world.work()
            #expect(try await world.decisions(about: "ann").map(\.outcome) == ["unchanged"])
            #expect(try await world.storeRequests(for: "ann") == 2, "one reading of two lists")
            let promised = try await world.number(
                "SELECT count(*) FROM entitlement_sync.user_sync WHERE access_event_at IS NOT NULL"
            )
            #expect(promised == 0)
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

    /// A reconcile was put off because of a promise.
    private static let waits: PostgresQuery =
        "SELECT count(*) FROM entitlement_sync.queue WHERE reconcile_error = 'read_lag' AND owner IS NULL"

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
