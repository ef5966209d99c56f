import Entitlements
@testable import StoreClients
import Testing
@testable import TextFormats
import Transport

@Suite struct RevenueCatFindTests {
    let store = FakeStore()

    private func subscriptions(_ id: String) -> String {
        "/subscriptions?store_subscription_identifier=\(PercentCoding.encode(id))"
    }
    private func purchases(_ id: String) -> String {
        "/purchases?store_purchase_identifier=\(PercentCoding.encode(id))"
    }

    private func prepare(_ id: String, subscriptions: [String] = [], purchases: [String] = []) {
        store.on(self.subscriptions(id), 200, Fixture.page(subscriptions))
        store.on(self.purchases(id), 200, Fixture.page(purchases))
    }

    private static func query(knowing users: Set<String> = []) -> CustomerQuery {
        CustomerQuery(userID: Fixture.user, lane: .restore, sandboxCounts: false) { ids in
            Set(ids.map(ExactText.init)).intersection(users.map(ExactText.init))
        }
    }

    private func look(_ ids: [TypedID], knowing users: Set<String> = []) async throws -> ClaimReading {
        try await store.client().find(ids, for: Self.query(knowing: users))
    }

    private func find(_ ids: [TypedID]) async throws -> [FoundPurchase] { try await look(ids).found }

    @Test("a typed id leads to the purchase and its customer")
    func finds() async throws {
        prepare("480001234567890", subscriptions: [Fixture.subscription(["customer_id": #""other""#])])
        let found = try await find([TypedID(store: "app_store", kind: "transaction_id", value: "480001234567890")])
        #expect(
            found == [
                FoundPurchase(
                    identifier: PurchaseIdentifier(
                        value: "sub4d5e6f7a8b",
                        store: "revenuecat",
                        environment: "production",
                        kind: "revenuecat_id"
                    ),
                    store: "app_store",
                    customerID: "other",
                    storeID: "480001234567890"
                )
            ]
        )
        #expect(store.admitted == [.restore, .restore])
    }

    @Test("5, 6: the same requests are sent whether an id exists or not")
    func asksAlike() async throws {
        let id = "GPA.1234-5678-9012-34567..0"
        prepare(id)
        #expect(try await find([TypedID(store: nil, kind: "order_id", value: id)]).isEmpty)
        #expect(store.targets == [subscriptions(id), purchases(id)])
        let other = FakeStore()
        other.on(subscriptions(id), 200, Fixture.page([Fixture.subscription()]))
        other.on(purchases(id), 200, Fixture.page([]))
        _ = try await other.client().find([TypedID(store: nil, kind: "order_id", value: id)], for: Self.query())
        #expect(other.targets == store.targets)
    }

    @Test("found purchases come in the order of the ids, without repeats")
    func keepsOrder() async throws {
        prepare("1", purchases: [Fixture.purchase(id: "p1")])
        prepare("2", subscriptions: [Fixture.subscription(id: "s2")])
        prepare("3", subscriptions: [Fixture.subscription(id: "s2"), Fixture.subscription(id: "s3")])
        let found = try await find(["1", "2", "3"].map { TypedID(store: nil, kind: "order_id", value: $0) })
        #expect(found.map(\.identifier.value) == ["p1", "s2", "s3"])
    }

    @Test("twenty ids are looked up and no more, each once")
    func limitsLookups() async throws {
        let values = ["1"] + (1...22).map(String.init)
        for value in values { prepare(value) }
        _ = try await find(values.map { TypedID(store: nil, kind: "transaction_id", value: $0) })
        let expected = (1...20).map(String.init).flatMap { [subscriptions($0), purchases($0)] }
        #expect(Set(store.targets) == Set(expected))
        #expect(store.requests.count == 40)
    }

    private static let anonymous = "$RCAnonymousID:0f1e2d3c4b5a69788796a5b4c3d2e1f0"

    private func prepareAnonymous(aliases ids: [String]) {
        prepare("1", subscriptions: [Fixture.subscription(["customer_id": "\"\(Self.anonymous)\""])])
        store.on(FakeStore.aliases(of: Self.anonymous), 200, Fixture.aliases(ids))
    }

    private static let typed = [TypedID(store: nil, kind: "order_id", value: "1")]

    @Test("7: an anonymous customer's purchase is ours where the store says that we are that customer")
    func findsOwn() async throws {
        prepareAnonymous(aliases: [Self.anonymous, Fixture.user])
        let claims = try await look(Self.typed)
        #expect(claims.found.isEmpty)
        #expect(claims.own.map(\.owner) == [.askedUser])
        #expect(claims.failure == nil)
    }

    @Test("8: an anonymous customer's purchase belongs to the user who is that customer")
    func findsAliased() async throws {
        prepareAnonymous(aliases: [Self.anonymous, "user-2"])
        let claims = try await look(Self.typed, knowing: ["user-2"])
        #expect(claims.found.map(\.customerID) == ["user-2"])
        #expect(claims.own.isEmpty)
    }

    @Test(
        "what cannot be a store's id is not looked up",
        arguments: [
            TypedID(store: nil, kind: "order_id", value: ""), TypedID(store: nil, kind: "order_id", value: "a b"),
            TypedID(store: nil, kind: "order_id", value: "é"), TypedID(store: nil, kind: "order_id", value: "a\n"),
            TypedID(store: nil, kind: "order_id", value: String(repeating: "x", count: 256)),
            TypedID(store: nil, kind: "onside_order_id", value: "1"),
            TypedID(store: "onside", kind: "order_id", value: "1"),
            TypedID(store: nil, kind: "purchase_token", value: "1"),
        ]
    )
    func ignores(_ id: TypedID) async throws {
        #expect(try await find([id]).isEmpty)
        #expect(store.requests.isEmpty)
    }

    @Test(
        "a lookup that fails says so, trips no breaker and alarms nobody",
        arguments: [
            (500, "", ReadFailure.Code.unavailable), (400, Fixture.error("parameter_error"), nil),
            (401, Fixture.error("authentication_error"), .unavailable), (404, Fixture.error("resource_missing"), nil),
            (200, "<html>", .malformed),
        ] as [(Int, String, ReadFailure.Code?)]
    )
    func tellsFailures(_ status: Int, _ body: String, _ failure: ReadFailure.Code?) async throws {
        store.on(subscriptions("1"), status, body)
        store.on(purchases("1"), 200, Fixture.page([Fixture.purchase()]))
        let claims = try await look(Self.typed)
        #expect(claims.found.map(\.store) == ["google_play"])
        #expect(claims.failure?.code == failure)
        #expect(store.reports.allSatisfy { !$0.countsForBreaker })
        #expect(store.reports.compactMap(\.failure) == (status == 401 ? [.unauthorized] : []), "our key is our trouble")
    }

    @Test("an item that can't be read spoils itself alone")
    func oddItems() async throws {
        prepare("1", subscriptions: ["{}", Fixture.subscription()], purchases: [Fixture.purchase()])
        let claims = try await look(Self.typed)
        #expect(claims.found.count == 2 && claims.hasUnreadable && claims.failure == nil)
        prepare("2", subscriptions: [Fixture.subscription(id: "s2")])
        let (witnesses, failure) = try await store.client().owners(of: [["1"], ["2"]], for: Self.query())
        #expect(failure == nil)
        #expect(witnesses.map(\.hasUnreadable) == [true, false] && witnesses.map(\.items.count) == [2, 1])
        await #expect(throws: ReadFailure(.malformed)) {
            try await store.client().customer(holding: "1", lane: .support)
        }
    }

    @Test("a throttled lookup is told to the budget")
    func reportsThrottling() async throws {
        store.on(subscriptions("1"), 429, Fixture.error("rate_limit_error", backoff: "1500"))
        store.on(purchases("1"), fails: .timeout)
        #expect(try await find([TypedID(store: nil, kind: "order_id", value: "1")]).isEmpty)
        #expect(
            store.reports == [
                StoreAnswer(status: 429, failure: .throttled, retryAfter: .milliseconds(1_500)), StoreAnswer(),
            ]
        )
    }
}
