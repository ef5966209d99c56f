import Entitlements
import Testing

@testable import StoreClients

@Suite struct RevenueCatOwnershipTests {
    struct Case: Sendable, CustomTestStringConvertible {
        var name: String
        var returned: String
        /// The aliases of the returned id; `nil`: RevenueCat does not know it.
        var aliases: [String]?
        /// The aliases of the asked id, where they are asked for.
        var ownAliases: [String]?
        var hostUsers: Set<String> = []
        /// `nil`: the item is refused.
        var owner: NamedOwner?
        var testDescription: String { name }
    }

    static let user = Fixture.user
    static let anonymous = Fixture.anonymous

    static let cases: [Case] = [
        Case(
            name: "7: anonymous, our user among the aliases",
            returned: anonymous,
            aliases: [anonymous, user],
            owner: .askedUser
        ),
        Case(
            name: "7: anonymous, nobody we know",
            returned: anonymous,
            aliases: [anonymous, "stranger"],
            owner: .anonymous
        ),
        Case(
            name: "8: anonymous, aliased to one other user",
            returned: anonymous,
            aliases: [anonymous, "other"],
            hostUsers: ["other"],
            owner: .otherUser(id: "other")
        ),
        Case(
            name: "8: anonymous, aliased to two other users",
            returned: anonymous,
            aliases: [anonymous, "other", "third"],
            hostUsers: ["other", "third"],
            owner: .anonymous
        ),
        Case(
            name: "10: anonymous, aliased to our user and another",
            returned: anonymous,
            aliases: ["third", "other", anonymous, user],
            hostUsers: [user, "other", "third"],
            owner: .otherUser(id: "other")
        ),
        Case(
            name: "10: another of our users is named, and shares the customer",
            returned: "other",
            aliases: ["other", user],
            hostUsers: [user, "other"],
            owner: .otherUser(id: "other")
        ),
        Case(
            name: "11: an id that is no user of the host shares the customer",
            returned: "legacy-id",
            aliases: [anonymous, "legacy-id", user],
            hostUsers: [user],
            owner: .askedUser
        ),
        Case(
            name: "12: an id that differs by letter case is another id",
            returned: user.lowercased(),
            aliases: [user.lowercased()],
            owner: nil
        ),
        Case(name: "an identified customer who is not ours", returned: "other", aliases: ["other"], owner: nil),
        Case(
            name: "another user of the host without a link to ours",
            returned: "other",
            aliases: ["other"],
            hostUsers: ["other"],
            owner: nil
        ),
        Case(
            name: "asked from the other side, it is the same customer",
            returned: anonymous,
            aliases: nil,
            ownAliases: [user, anonymous],
            owner: .askedUser
        ),
        Case(
            name: "asked from the other side, it is the same customer, shared with another user",
            returned: anonymous,
            aliases: nil,
            ownAliases: [user, anonymous, "other"],
            hostUsers: ["other"],
            owner: .otherUser(id: "other")
        ),
        Case(
            name: "asked from the other side, an anonymous stranger",
            returned: anonymous,
            aliases: nil,
            ownAliases: [user, "other"],
            hostUsers: ["other"],
            owner: .anonymous
        ),
        Case(name: "neither side is known", returned: anonymous, aliases: nil, ownAliases: nil, owner: .anonymous),
        Case(
            name: "asked from the other side, an identified stranger",
            returned: "x",
            aliases: nil,
            ownAliases: [user]
        ),
    ]

    private func prepare(_ test: Case) -> FakeStore {
        let store = FakeStore()
        let changes = ["customer_id": "\"\(test.returned)\""] as Fixture.Changes
        let items = ["s1", "s2"].map { Fixture.subscription(id: $0, changes) }
        store.on(FakeStore.subscriptions, 200, Fixture.page(items))
        store.on(FakeStore.purchases, 200, Fixture.page([Fixture.purchase(changes)]))
        for (id, aliases) in [(test.returned, test.aliases), (Fixture.user, test.ownAliases)] {
            if let aliases {
                store.on(FakeStore.aliases(of: id), 200, Fixture.aliases(aliases))
            } else {
                store.on(FakeStore.aliases(of: id), 404, Fixture.error("resource_missing"))
            }
        }
        return store
    }

    @Test("an item that names another customer is told apart by that customer's aliases", arguments: cases)
    func resolves(_ test: Case) async throws {
        let store = prepare(test)
        let reading = try await store.read(hostUsers: test.hostUsers)
        if let owner = test.owner {
            #expect(reading.coverage == .full)
            #expect(reading.observations.map(\.owner).allSatisfy { $0 == owner })
            // What is not the user's own gives no reason to stop reading.
            #expect(reading.observations.count == (owner == .askedUser ? 2 : 3))
        } else {
            #expect(reading.coverage == .partial)
            #expect(reading.failure == ReadFailure(.malformed))
            #expect(reading.observations.isEmpty)
        }
        let aliasReads = store.targets.filter { $0.contains("/aliases") }
        #expect(aliasReads.count == (test.aliases == nil ? 2 : 1))
    }

    @Test("no aliases are asked for where every item names the asked user")
    func asksNoAliases() async throws {
        let store = FakeStore()
        store.on(FakeStore.subscriptions, 200, Fixture.page([Fixture.subscription()]))
        _ = try await store.read()
        #expect(store.targets == [FakeStore.subscriptions])
    }

    @Test(
        "aliases that cannot be read leave the item out and the reading partial",
        arguments: [
            (500, "", ReadFailure(.unavailable)), (404, "", ReadFailure(.unavailable)),
            (200, "<html>", ReadFailure(.malformed)),
            (200, Fixture.page([#"{"id":"\#(Fixture.user)"}"#, "{}"]), ReadFailure(.malformed)),
            (200, Fixture.page([#"{"id":"\#(Fixture.user)"}"#], next: #""/x""#), ReadFailure(.malformed)),
        ] as [(Int, String, ReadFailure)]
    )
    func aliasesFail(_ status: Int, _ body: String, _ failure: ReadFailure) async throws {
        let store = FakeStore()
        let foreign = Fixture.subscription(id: "s2", ["customer_id": "\"\(Fixture.anonymous)\""])
        store.on(FakeStore.subscriptions, 200, Fixture.page([foreign, Fixture.subscription(id: "s1")]))
        store.on(FakeStore.aliases(of: Fixture.anonymous), status, body)
        let reading = try await store.read()
        #expect(reading.coverage == .partial)
        #expect(reading.failure == failure)
        #expect(reading.observations.map(\.owner) == [.askedUser])
    }

    @Test("93: a store that wants to be left alone is asked nothing more, and no odd item hides its wish")
    func stopsWhenThrottled() async throws {
        let store = FakeStore()
        let items = ["a", "b"].map { Fixture.subscription(id: $0, ["customer_id": "\"customer-\($0)\""]) }
        let odd = Fixture.subscription(id: "c", ["entitlements": Fixture.page([], next: #""/x""#)])
        store.on(FakeStore.subscriptions, 200, Fixture.page(items + [odd]))
        let wish = Fixture.error("rate_limit_error", backoff: "9000")
        store.on(FakeStore.aliases(of: "customer-a"), 429, wish)
        let reading = try await store.read()
        #expect(reading.coverage == .partial)
        #expect(reading.failure == ReadFailure(.throttled, retryAfter: .seconds(9)))
        #expect(reading.observations.map(\.entitlements) == [[]])
        #expect(reading.requests == 2)
    }

    @Test("lists beside the main one cannot make a reading endless")
    func limitsRequests() async throws {
        let store = FakeStore()
        let items = (0..<20).map { Fixture.subscription(id: "s\($0)", ["customer_id": "\"customer-\($0)\""]) }
        store.on(FakeStore.subscriptions, 200, Fixture.page(items))
        for index in 0..<20 {
            store.on(
                FakeStore.aliases(of: "customer-\(index)"),
                200,
                Fixture.aliases([Fixture.user, "customer-\(index)"])
            )
        }
        let reading = try await store.read(maxPages: 2)
        #expect(reading.coverage == .partial)
        #expect(reading.failure == ReadFailure(.malformed))
        #expect(reading.requests == 8)
    }

    @Test("a host that cannot be asked leaves the item out, without a word to the breaker")
    func hostFails() async throws {
        struct Outage: Error {}
        let failures: [(any Error, ReadFailure.Code)] = [
            (Outage(), .unavailable), (CancellationError(), .interrupted), (ReadFailure(.timeout), .timeout),
        ]
        for (error, code) in failures {
            let store = FakeStore()
            let foreign = Fixture.subscription(["customer_id": #""other""#])
            store.on(FakeStore.subscriptions, 200, Fixture.page([foreign]))
            store.on(FakeStore.aliases(of: "other"), 200, Fixture.aliases(["other", Fixture.user]))
            let query = CustomerQuery(userID: Fixture.user, lane: .event, sandboxCounts: false) { _ in throw error }
            let reading = try await store.client().read(query)
            #expect(reading.coverage == .partial)
            #expect(reading.failure == ReadFailure(code))
            #expect(reading.observations.isEmpty)
            #expect(store.reports.allSatisfy { $0.failure == nil && !$0.countsForBreaker })
        }
    }

    @Test("an id in another Unicode form is another id")
    func comparesBytes() async throws {
        let store = FakeStore()
        let asked = "caf\u{E9}"
        let returned = "cafe\u{301}"
        let item = Fixture.subscription(["customer_id": "\"\(returned)\""])
        store.on("/customers/caf%C3%A9/subscriptions?limit=100", 200, Fixture.page([item]))
        store.on("/customers/caf%C3%A9/purchases?limit=100", 200, Fixture.page([]))
        store.on(FakeStore.aliases(of: returned), 200, Fixture.aliases([returned]))
        let reading = try await store.read(user: asked)
        #expect(reading.observations.isEmpty)
        #expect(reading.failure == ReadFailure(.malformed))
    }
}
