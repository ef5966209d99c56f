import Entitlements
import HTTPTypes
@testable import StoreClients
import Testing
import Transport

@Suite struct RevenueCatReadTests {
    let store = FakeStore()

    @Test("one request suffices where a subscription gives access, and it is sent as the API wants it")
    func readsSubscriber() async throws {
        store.on(FakeStore.subscriptions, 200, Fixture.page([Fixture.subscription()]))
        let reading = try await store.read()
        #expect(reading.coverage == .full)
        #expect(reading.failure == nil)
        #expect(reading.requests == 1)
        #expect(!reading.purchasesListed)
        let request = try #require(store.requests.first)
        #expect(request.method == .get)
        #expect(request.scheme == "https")
        #expect(request.authority == "api.revenuecat.com")
        #expect(request.path == "/v2/projects/proj0a1b2c3d/customers/\(Fixture.user)/subscriptions?limit=100")
        #expect(request.headerFields[.authorization] == "Bearer sk_secret")
        #expect(store.requests.count == 1)
        #expect(store.admitted == [.restore])

        let item = try #require(reading.observations.first)
        #expect(reading.observations.count == 1)
        #expect(item.kind == .subscription)
        #expect(item.store == "app_store")
        #expect(item.environment == "production")
        #expect(item.productID == "prod1122334455")
        #expect(item.entitlements == ["premium"])
        #expect(item.status.known == .active)
        #expect(item.givesAccess == true)
        #expect(item.renewal == "will_renew")
        #expect(item.periodStartsAt == Instant(milliseconds: 1_788_678_400_000))
        #expect(item.periodEndsAt == Instant(milliseconds: 1_791_356_800_000))
        #expect(item.ownership == "purchased")
        #expect(item.owner == .askedUser)
        #expect(item.payloadHash.count == 32)
        #expect(
            item.identifiers == [
                .init(value: "480001234567890", store: "app_store", environment: "production", kind: "store_id"),
                .init(value: "sub4d5e6f7a8b", store: "revenuecat", environment: "production", kind: "revenuecat_id"),
            ]
        )
    }

    @Test(
        "3: purchases are asked for where no subscription may give access",
        arguments: [
            [:], ["gives_access": "false"], ["entitlements": Fixture.page([])], ["entitlements": "null"],
            ["entitlements": nil],
            ["environment": #""sandbox""#],
        ] as [Fixture.Changes]
    )
    func asksForPurchases(_ changes: Fixture.Changes) async throws {
        let items = changes.isEmpty ? [] : [Fixture.subscription(changes)]
        store.on(FakeStore.subscriptions, 200, Fixture.page(items))
        store.on(FakeStore.purchases, 200, Fixture.page([Fixture.purchase()], next: nil))
        let reading = try await store.read()
        #expect(reading.coverage == .full)
        #expect(reading.requests == 2)
        #expect(reading.purchasesListed)
        #expect(store.targets == [FakeStore.subscriptions, FakeStore.purchases])
        let purchase = try #require(reading.observations.last)
        #expect(purchase.kind == .oneTime)
        #expect(purchase.givesAccess == nil)
        #expect(purchase.status.known == .owned)
        #expect(purchase.periodStartsAt == Instant(milliseconds: 1_786_000_000_000))
        #expect(purchase.periodEndsAt == nil)
    }

    @Test("a sandbox subscription that counts saves the second request")
    func sandboxCounts() async throws {
        store.on(FakeStore.subscriptions, 200, Fixture.page([Fixture.subscription(["environment": #""sandbox""#])]))
        #expect(try await store.read(sandboxCounts: true).requests == 1)
    }

    @Test("a subscription whose entitlements give nothing does not hide a lifetime purchase")
    func asksWhereEntitlementsGiveNothing() async throws {
        store.on(FakeStore.subscriptions, 200, Fixture.page([Fixture.subscription()]))
        store.on(FakeStore.purchases, 200, Fixture.page([]))
        let query = CustomerQuery(
            userID: Fixture.user,
            lane: .sweep,
            sandboxCounts: false,
            mayGrant: { $0 != ["premium"] },
            isOtherUser: { _ in [] }
        )
        let reading = try await store.client().read(query)
        #expect(reading.requests == 2)
        #expect(store.admitted == [.sweep, .sweep])
    }

    @Test("95: a customer RevenueCat does not know is a full and empty reading after one request")
    func readsUnknownCustomer() async throws {
        store.on(FakeStore.subscriptions, 404, Fixture.error("resource_missing"))
        let reading = try await store.read()
        #expect(reading.coverage == .full)
        #expect(reading.observations.isEmpty)
        #expect(reading.failure == nil)
        #expect(reading.requests == 1)
        #expect(store.reports.map(\.failure) == [nil])
    }

    @Test(
        "a 404 that is not RevenueCat's own word is no absence",
        arguments: [
            "", "<html>404</html>", Fixture.error("server_error"), #"{"object":"list","type":"resource_missing"}"#,
            #"{"type":"resource_missing""#,
        ]
    )
    func distrusts404(_ body: String) async throws {
        store.on(FakeStore.subscriptions, 404, body)
        let reading = try await store.read(lane: .sweep)
        #expect(reading.coverage == .none)
        #expect(reading.failure == ReadFailure(.unavailable))
    }

    @Test("68: a lifetime purchase is found though the list of subscriptions fails", arguments: [500, 503])
    func purchasesSpeakAlone(_ status: Int) async throws {
        store.on(FakeStore.subscriptions, status, Fixture.error("server_error"))
        store.on(FakeStore.purchases, 200, Fixture.page([Fixture.purchase()]))
        let reading = try await store.read()
        #expect(reading.coverage == .partial)
        #expect(reading.failure == ReadFailure(.unavailable))
        #expect(reading.observations.count == 1)
        #expect(reading.requests == 2)
    }

    @Test("what the load-shedder says can only add", arguments: [200, 404])
    func shedderOnlyAdds(_ status: Int) async throws {
        let body = status == 200 ? Fixture.page([]) : Fixture.error("resource_missing")
        let name = try #require(HTTPField.Name("X-RevenueCat-Fortress"))
        store.on(FakeStore.subscriptions, status, body, headers: [name: "true"])
        store.on(FakeStore.purchases, 200, Fixture.page([Fixture.purchase()]))
        let reading = try await store.read()
        #expect(reading.coverage == .partial)
        #expect(reading.failure == ReadFailure(.unavailable))
        #expect(reading.observations.count == 1)
    }

    @Test("15: an id that stands for nobody is never asked for", arguments: ["null", "guest", "(null)", "0", "NaN"])
    func refusesBlockedID(_ id: String) async throws {
        let query = CustomerQuery(
            userID: id,
            lane: .restore,
            sandboxCounts: false,
            mayGrant: { _ in true },
            isOtherUser: { _ in [] }
        )
        let reading = try await store.client().read(query)
        #expect(reading.coverage == .none)
        #expect(reading.failure == ReadFailure(.unusableID))
        #expect(store.requests.isEmpty)
    }

    @Test("a customer who vanishes between two requests is no absence")
    func customerVanishes() async throws {
        store.on(FakeStore.subscriptions, 200, Fixture.page([]))
        store.on(FakeStore.purchases, 404, Fixture.error("resource_missing"))
        let reading = try await store.read()
        #expect(reading.coverage == .partial)
        #expect(reading.failure == ReadFailure(.unavailable))
        #expect(!reading.purchasesListed)
    }

    @Test(
        "100: a 200 that is no list gives nothing, and the breaker hears of it",
        arguments: [
            "", " ", "<!DOCTYPE html><html><body>Sign in</body></html>", "null", "[]", "{}", #"{"object":"list"}"#,
            #"{"items":[]}"#, #"{"object":"customer","items":[]}"#, #"{"object":"list","items":null}"#,
            #"{"object":"list","items":{}}"#, #"{"object":"list","items":[]"#, #"{"object":"list","items":[]}x"#,
            #"{"object":"list","items":[],"next_page":1}"#, #"{"object":"list","items":[],"items":[]}"#,
            String(repeating: "[", count: 100_000),
        ]
    )
    func refusesBody(_ body: String) async throws {
        store.on(FakeStore.subscriptions, 200, body)
        let reading = try await store.read()
        #expect(reading.coverage == .none)
        #expect(reading.failure == ReadFailure(.malformed))
        #expect(reading.requests == 1)
        let report = try #require(store.reports.first)
        #expect(report.countsForBreaker)
        #expect(report.failure == .malformed)
    }

    @Test("100: a text that breaks off gives nothing of what came before, though it was an item with access")
    func refusesTruncated() async throws {
        store.on(FakeStore.subscriptions, 200, String(Fixture.page([Fixture.subscription()]).dropLast()))
        let reading = try await store.read()
        #expect(reading.coverage == .none)
        #expect(reading.observations.isEmpty)
    }

    @Test(
        "91, 92, 110: a failed request takes nothing away and gives nothing",
        arguments: [
            (HTTPClientFailure.Code.timeout, ReadFailure.Code.timeout, true), (.unavailable, .unavailable, true),
            (.tooLarge, .malformed, true), (.cancelled, .interrupted, false),
        ]
    )
    func transportFails(_ code: HTTPClientFailure.Code, _ failure: ReadFailure.Code, _ counts: Bool) async throws {
        store.on(FakeStore.subscriptions, fails: code)
        let reading = try await store.read(lane: .sweep)
        #expect(reading.coverage == .none)
        #expect(reading.failure == ReadFailure(failure))
        #expect(reading.requests == 1)
        #expect(store.reports == [StoreAnswer(failure: failure, countsForBreaker: counts)])
    }

    @Test("a gate that says no costs no request")
    func gateRefuses() async throws {
        store.refuse(after: 0, ReadFailure(.breakerOpen, retryAfter: .seconds(3)))
        let reading = try await store.read()
        #expect(reading.coverage == .none)
        #expect(reading.failure == ReadFailure(.breakerOpen, retryAfter: .seconds(3)))
        #expect(reading.requests == 0)
        #expect(store.requests.isEmpty)
        #expect(store.reports.isEmpty)
    }

    @Test("a gate that says no between two lists leaves a partial reading")
    func gateRefusesLater() async throws {
        store.on(FakeStore.subscriptions, 200, Fixture.page([]))
        store.refuse(after: 1, ReadFailure(.budgetExhausted))
        let reading = try await store.read()
        #expect(reading.coverage == .partial)
        #expect(reading.failure == ReadFailure(.budgetExhausted))
        #expect(reading.requests == 1)
    }

    @Test(
        "14: an id with a slash is encoded, and one that cannot be a path segment is never sent",
        arguments: [
            ("a/b ?#%", "/customers/a%2Fb%20%3F%23%25/subscriptions?limit=100"),
            ("$RCAnonymousID:ab", "/customers/%24RCAnonymousID%3Aab/subscriptions?limit=100"),
            ("", nil), (".", nil), ("..", nil), (String(repeating: "x", count: 1_501), nil),
        ] as [(String, String?)]
    )
    func encodesUser(_ user: String, _ target: String?) async throws {
        if let target { store.on(target, 404, Fixture.error("resource_missing")) }
        let reading = try await store.read(user: user)
        #expect(store.targets == (target.map { [$0] } ?? []))
        #expect(reading.coverage == (target == nil ? .none : .full))
        #expect(reading.failure == (target == nil ? ReadFailure(.unusableID) : nil))
    }

    @Test("the base URL's path is kept and the key goes to its host alone")
    func usesBaseURL() async throws {
        let next = #""https://evil.example/v2/projects/x?limit=20&starting_after=sub1""#
        store.on(FakeStore.subscriptions, 200, Fixture.page([Fixture.subscription(id: "sub1")], next: next))
        store.on(FakeStore.subscriptions + "&starting_after=sub1", 200, Fixture.page([]))
        let query = CustomerQuery(userID: Fixture.user, lane: .restore, sandboxCounts: false) { _ in [] }
        let reading = try await store.client(baseURL: "http://127.0.0.1:8080").read(query)
        #expect(reading.coverage == .full)
        #expect(Set(store.requests.map(\.authority)) == ["127.0.0.1:8080"])
        #expect(Set(store.requests.map(\.scheme)) == ["http"])
        #expect(store.requests.allSatisfy { $0.path?.hasPrefix("/v2/projects/proj0a1b2c3d/") == true })
    }
}
