import Entitlements
@testable import StoreClients
@testable import StoreSimulator
import Testing

/// Orders by their number, and the list of voided purchases, page by page.
@Suite struct GooglePlayVoidedTests {
    @Test(
        "an order number leads to its purchase, as do those of its renewals",
        arguments: ["GPA.1-2-3-4", "GPA.1-2-3-4..3", "GPA.9"]
    )
    func order(_ id: String) async throws {
        let world = try PlayWorld(purchases: "token: tok, order_id: GPA.1-2-3-4, order_ids: [GPA.9]")
        let order = try #require(try await world.client.order(id, lane: .support))
        #expect(order == GooglePlayOrder(id: id, purchaseToken: "tok", state: "PROCESSED", productIDs: ["pro"]))
    }

    @Test(
        "an order number that leads nowhere is no failure; one that cannot be is not asked for",
        arguments: ["GPA.0", "", "GPA 1", "é", ".."]
    )
    func noOrder(_ id: String) async throws {
        let world = try PlayWorld(purchases: "token: tok")
        #expect(try await world.client.order(id, lane: .support) == nil)
        #expect(world.simulator.requestReport().total == (id == "GPA.0" ? 2 : 0))
        world.simulator.simulation.withState { state in
            var rule = FaultRule(endpoint: "google_play.order")
            rule.status = 503
            state.faults.add([rule])
        }
        if id == "GPA.0" {
            await #expect(throws: ReadFailure(.unavailable, store: .googlePlay)) {
                try await world.client.order(id, lane: .support)
            }
        }
    }

    @Test("voided purchases come page by page, subscriptions among them")
    func voided() async throws {
        let purchases = (0..<2_500).map {
            "token: t\($0), kind: \($0 % 2 == 0 ? "one_time" : "subscription"), voided: -\($0 + 1)m"
        }
        let text = "google_play:\n  purchases:\n" + purchases.map { "    - {\($0)}\n" }.joined()
        let world = try PlayWorld(text)
        var pages: [Int] = []
        var tokens: Set<String> = []
        try await world.client.voided(since: try #require(world.at(-20 * PlayWorld.day)), lane: .sweep) { page in
            pages.append(page.count)
            for item in page { tokens.insert(item.purchaseToken) }
        }
        #expect(pages == [1_000, 1_000, 500])
        #expect(tokens.count == 2_500)
        // A start that lies too far back is brought up to where the list begins.
        let late = try #require(world.at(-30_000))
        var count = 0
        try await world.client.voided(since: late, lane: .sweep) { count += $0.count }
        #expect(count == 0)
        try await world.client.voided(since: Instant(microseconds: 0), lane: .sweep) { count += $0.count }
        #expect(count == 2_500)
    }

    @Test("a purchase that was taken back is among the voided, with its reason")
    func voidedReason() async throws {
        let world = try PlayWorld(purchases: "token: tok, acknowledged: false, started: -4d, order_id: GPA.7")
        var items: [GooglePlayVoidedPurchase] = []
        try await world.client.voided(since: try #require(world.at(-2 * PlayWorld.day)), lane: .sweep) { items += $0 }
        #expect(
            items == [
                GooglePlayVoidedPurchase(
                    purchaseToken: "tok",
                    orderID: "GPA.7",
                    voidedAt: world.at(-PlayWorld.day),
                    reason: 8,
                    source: 2
                )
            ]
        )
    }

    @Test("a voided list that fails in the middle says so")
    func voidedFails() async throws {
        let world = try PlayWorld("faults: [{endpoint: google_play.voided, status: 503}]")
        await #expect(throws: ReadFailure(.unavailable, store: .googlePlay)) {
            try await world.client.voided(since: Instant(microseconds: 0), lane: .sweep) { _ in }
        }
    }
}
