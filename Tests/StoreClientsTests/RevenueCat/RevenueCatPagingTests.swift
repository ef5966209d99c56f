import Entitlements
import Testing

@testable import StoreClients

@Suite struct RevenueCatPagingTests {
    let store = FakeStore()
    let without = ["gives_access": "false"] as Fixture.Changes

    @Test(
        "the cursor is taken out of any form of next_page",
        arguments: [
            ("https://api.revenuecat.com/v2/x?limit=20&starting_after=sub1", .after("sub1")),
            ("/v2/x?starting_after=sub1&limit=20", .after("sub1")), ("?starting_after=a%2Fb%24", .after("a/b$")),
            ("/v2/x?starting_after=sub1#starting_after=sub2", .after("sub1")), ("/v2/x", .unusable), ("", .unusable),
            ("/v2/x?limit=20", .unusable), ("/v2/x?starting_after=", .unusable), ("/v2/x?starting_after=%F", .unusable),
            ("/v2/x?not_starting_after=sub1", .unusable), ("/v2/x#?starting_after=sub1", .unusable), (nil, .end),
        ] as [(String?, NextPage)]
    )
    func readsCursor(_ text: String?, _ next: NextPage) { #expect(NextPage(text) == next) }

    @Test("54: every page is read, absolute, relative or last without the key")
    func readsAllPages() async throws {
        let absolute =
            #""https://api.revenuecat.com/v2/projects/p/customers/c/subscriptions?starting_after=s1&limit=100""#
        let relative = #""\/v2\/projects\/p\/customers\/c\/subscriptions?limit=100&starting_after=s2""#
        store.on(FakeStore.subscriptions, 200, Fixture.page([Fixture.subscription(id: "s1", without)], next: absolute))
        store.on(
            FakeStore.subscriptions + "&starting_after=s1",
            200,
            Fixture.page([Fixture.subscription(id: "s2", without)], next: relative)
        )
        store.on(
            FakeStore.subscriptions + "&starting_after=s2",
            200,
            Fixture.page([Fixture.subscription(id: "s3")], next: nil)
        )
        let reading = try await store.read()
        #expect(reading.coverage == .full)
        #expect(reading.requests == 3)
        #expect(reading.observations.map { $0.identifiers.last?.value } == ["s1", "s2", "s3"])
    }

    private func firstOfTwo() {
        store.on(
            FakeStore.subscriptions,
            200,
            Fixture.page([Fixture.subscription(id: "s1")], next: #""/x?starting_after=s1""#)
        )
    }

    @Test(
        "54: a later page that fails leaves what was read, and a partial reading",
        arguments: [
            (500, "", ReadFailure(.unavailable)), (404, Fixture.error("resource_missing"), ReadFailure(.unavailable)),
            (
                429, Fixture.error("rate_limit_error", retryable: "true", backoff: "2000"),
                ReadFailure(.throttled, retryAfter: .seconds(2))
            ),
            (200, "<html>", ReadFailure(.malformed)), (204, "", ReadFailure(.malformed)),
        ] as [(Int, String, ReadFailure)]
    )
    func laterPageFails(_ status: Int, _ body: String, _ failure: ReadFailure) async throws {
        firstOfTwo()
        store.on(FakeStore.subscriptions + "&starting_after=s1", status, body)
        let reading = try await store.read()
        #expect(reading.coverage == .partial)
        #expect(reading.failure == failure)
        #expect(reading.observations.map(\.givesAccess) == [true])
        #expect(reading.requests == 2)
    }

    @Test("a cursor that comes back ends the reading as malformed")
    func repeatedCursor() async throws {
        firstOfTwo()
        store.on(
            FakeStore.subscriptions + "&starting_after=s1",
            200,
            Fixture.page([Fixture.subscription(id: "s2")], next: #""/x?starting_after=s1""#)
        )
        let reading = try await store.read()
        #expect(reading.coverage == .partial)
        #expect(reading.failure == ReadFailure(.malformed))
        #expect(reading.requests == 2)
        #expect(reading.observations.count == 2)
    }

    @Test("an item that comes back ends the reading as malformed")
    func repeatedItem() async throws {
        firstOfTwo()
        store.on(FakeStore.subscriptions + "&starting_after=s1", 200, Fixture.page([Fixture.subscription(id: "s1")]))
        let reading = try await store.read()
        #expect(reading.coverage == .partial)
        #expect(reading.failure == ReadFailure(.malformed))
        #expect(reading.observations.count == 1)
    }

    @Test("a next page without a cursor makes the reading partial")
    func unusableCursor() async throws {
        store.on(FakeStore.subscriptions, 200, Fixture.page([Fixture.subscription()], next: #""/v2/next""#))
        let reading = try await store.read()
        #expect(reading.coverage == .partial)
        #expect(reading.failure == ReadFailure(.malformed))
        #expect(reading.requests == 1)
    }

    @Test("a list without end is read to the limit and no further")
    func endlessList() async throws {
        firstOfTwo()
        for page in 1..<10 {
            store.on(
                FakeStore.subscriptions + "&starting_after=s\(page)",
                200,
                Fixture.page([Fixture.subscription(id: "s\(page + 1)")], next: #""/x?starting_after=s\#(page + 1)""#)
            )
        }
        let reading = try await store.read(maxPages: 3)
        #expect(reading.coverage == .partial)
        #expect(reading.failure == ReadFailure(.malformed))
        #expect(reading.requests == 3)
    }

    @Test("an item's own list of entitlements is read to its end")
    func nestedEntitlements() async throws {
        let nested = Fixture.entitlements(["gold"], next: #""/v2/x?starting_after=entl-gold""#)
        store.on(
            FakeStore.subscriptions,
            200,
            Fixture.page([Fixture.subscription(id: "s/1", ["entitlements": nested])])
        )
        store.on(
            "/subscriptions/s%2F1/entitlements?limit=100&starting_after=entl-gold",
            200,
            Fixture.entitlements(["basic"], next: #""?starting_after=entl-basic""#)
        )
        store.on(
            "/subscriptions/s%2F1/entitlements?limit=100&starting_after=entl-basic",
            200,
            Fixture.entitlements(["silver", "gold"])
        )
        let reading = try await store.read()
        #expect(reading.coverage == .full)
        #expect(reading.requests == 3)
        #expect(reading.observations.first?.entitlements == ["basic", "gold", "silver"])
    }

    @Test("a purchase's entitlements have a path of their own")
    func nestedEntitlementsOfPurchase() async throws {
        let nested = Fixture.entitlements([], next: #""/v2/x?starting_after=e""#)
        store.on(FakeStore.subscriptions, 200, Fixture.page([]))
        store.on(FakeStore.purchases, 200, Fixture.page([Fixture.purchase(id: "p1", ["entitlements": nested])]))
        store.on("/purchases/p1/entitlements?limit=100&starting_after=e", 200, Fixture.entitlements(["premium"]))
        let reading = try await store.read()
        #expect(reading.coverage == .full)
        #expect(reading.observations.first?.entitlements == ["premium"])
    }

    @Test(
        "entitlements that cannot be read to the end make the reading partial, with those that were read",
        arguments: [(503, ""), (404, Fixture.error("resource_missing")), (200, "{}"), (200, Fixture.page(["{}"]))]
    )
    func nestedEntitlementsFail(_ status: Int, _ body: String) async throws {
        let nested = Fixture.entitlements(["gold"], next: #""/v2/x?starting_after=e""#)
        store.on(
            FakeStore.subscriptions,
            200,
            Fixture.page([Fixture.subscription(id: "s1", ["entitlements": nested]), Fixture.subscription(id: "s2")])
        )
        store.on("/subscriptions/s1/entitlements?limit=100&starting_after=e", status, body)
        let reading = try await store.read()
        #expect(reading.coverage == .partial)
        #expect(reading.failure != nil)
        #expect(reading.observations.map(\.entitlements) == [["gold"], ["premium"]])
    }
}
