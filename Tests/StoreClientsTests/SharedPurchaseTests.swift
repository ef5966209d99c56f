import Entitlements
import Logging
import StoreSimulator
import Testing

@testable import StoreClients

/// What the simulated stores know of the purchases that RevenueCat's customers have.
@Suite struct SharedPurchaseTests {
    private static let id = "480000000000001"

    private static func scenario(_ items: String, sharesAll: Bool = true, more: String = "") -> String {
        "stores_know_purchases: \(sharesAll)\ncustomers:\n  - {id: ann, \(items)}\n\(more)"
    }

    private static func subscription(_ fields: String, sharesAll: Bool = true) -> String {
        scenario("subscriptions: [{store_subscription_identifier: '\(id)', \(fields)}]", sharesAll: sharesAll)
    }

    @Test(
        "the App Store tells of a customer's subscription as RevenueCat does",
        arguments: [
            ("state: active", AccessState.access), ("state: trial", .access), ("state: cancelled", .access),
            ("state: grace", .access), ("state: price_increase", .access), ("state: billing_retry", .ended),
            ("state: expired", .ended),
        ]
    )
    func subscriptions(_ state: String, _ standing: AccessState) async throws {
        let store = try SimulatedAppStore(Self.subscription(state))
        let reading = try await store.read(Self.id)
        #expect(reading.coverage == .full && reading.failure == nil)
        let item = try #require(reading.observations.first)
        #expect(reading.observations.count == 1 && item.accessState == standing)
        #expect(item.entitlements == ["app_store:premium_monthly"] && item.accountID == nil)
        let willNotRenew = state == "state: cancelled" || state == "state: expired"
        #expect((item.renewal == "will_not_renew") == willNotRenew)
    }

    @Test("its dates, its earlier transactions and its product are RevenueCat's")
    func details() async throws {
        let store = try SimulatedAppStore(
            Self.scenario(
                "subscriptions: [{store_subscription_identifier: '3', past_identifiers: ['1', '2'], product_id: gold,"
                    + " starts: 1700000000000, current_period_starts_at: 1900000000000, ends: 1902000000000}]"
            )
        )
        for id in ["1", "2", "3"] {
            let item = try #require(try await store.read(id).observations.first)
            #expect(item.names("store_id") == ["1", "3"] && item.entitlements == ["app_store:gold"])
            #expect(item.periodEndsAt == Instant(milliseconds: 1_902_000_000_000))
            #expect(item.boughtAt == Instant(milliseconds: 1_700_000_000_000))
        }
        #expect(try store.simulator.appStoreProof(ofTransaction: "3") != nil)
    }

    @Test("one-time purchases are known with their refunds")
    func purchases() async throws {
        let purchases =
            "purchases: [{store_purchase_identifier: '7'}, {state: lifetime_refunded, store_purchase_identifier: '8'}]"
        let store = try SimulatedAppStore(Self.scenario(purchases))
        let items = try await store.read("7").observations
        #expect(items.map(\.accessState) == [.access, .ended] || items.map(\.accessState) == [.ended, .access])
        #expect(Set(items.flatMap(\.entitlements)) == ["app_store:lifetime"])
    }

    @Test(
        "what the scenario says that it does not know, or cannot have, it does not know",
        arguments: [
            (subscription("state: active", sharesAll: false), false),
            (subscription("state: active, known_to_store: true", sharesAll: false), true),
            (subscription("state: active, known_to_store: false"), false),
            (subscription("state: active, store: play_store"), false), (subscription("state: paused"), false),
            (subscription("state: incomplete"), false), (subscription("state: sandbox"), false),
        ]
    )
    func unknown(_ scenario: String, _ isKnown: Bool) async throws {
        let store = try SimulatedAppStore(scenario)
        let reading = try await store.read(Self.id, isProven: true)
        #expect(reading.observations.isEmpty == !isKnown)
        #expect(reading.failure?.code == (isKnown ? nil : .unknownToStore))
    }

    @Test("what its own part of the scenario lists stands before it, and a customer's changes are known at once")
    func precedence() async throws {
        let listed = "app_store: {customers: [{id: x, transactions: [{original: '\(Self.id)', product: own}]}]}"
        let scenario = Self.scenario("subscriptions: [{store_subscription_identifier: '\(Self.id)'}]", more: listed)
        let store = try SimulatedAppStore(scenario)
        #expect(try await store.read(Self.id).observations.map(\.entitlements) == [["app_store:own"]])
        let plain = try SimulatedAppStore(Self.subscription("state: active"))
        #expect(try await plain.read(Self.id).observations.map(\.accessState) == [.access])
        try plain.control(
            "PUT",
            "/customers/ann",
            #"{"subscriptions":[{"state":"expired","store_subscription_identifier":"\#(Self.id)"}]}"#
        )
        #expect(try await plain.read(Self.id).observations.map(\.accessState) == [.ended])
    }

    @Test("an order of a customer's at Google Play leads to its purchase")
    func googlePlay() async throws {
        let order = "GPA.1111-2222-3333-44444"
        func world(_ fields: String, renewal: String = "") throws -> PlayWorld {
            try PlayWorld(
                Self.scenario(
                    "subscriptions: [{store: play_store, store_subscription_identifier: \(order)\(renewal), \(fields)}]"
                )
            )
        }
        for (state, standing) in [
            ("active", AccessState.access), ("cancelled", .access), ("grace", .access), ("billing_retry", .ended),
            ("paused", .ended), ("expired", .ended), ("incomplete", .pending),
        ] {
            let play = try world("state: \(state)")
            for name in [order, order + "..3"] {
                let found = try #require(try await play.client.order(name, lane: .restore))
                let token = try #require(found.purchaseToken)
                let reading = try await play.read(token)
                #expect(reading.observations.map(\.accessState) == [standing], "\(state)")
                #expect(reading.observations.first?.entitlements == ["google_play:pro:monthly"], "\(state)")
            }
        }
        let renewed = try world("state: active", renewal: "..3")
        let found = try #require(try await renewed.client.order(order + "..3", lane: .restore))
        let items = try await renewed.read(try #require(found.purchaseToken)).observations
        #expect(items.map(\.accessState) == [.access] && items.first?.names("order_id").contains(order) == true)
        let apart = try world("state: active, known_to_store: false")
        #expect(try await apart.client.order(order, lane: .restore) == nil)
    }
}
