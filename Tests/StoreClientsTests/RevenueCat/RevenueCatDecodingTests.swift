import Entitlements
@testable import StoreClients
import Testing
@testable import TextFormats

@Suite struct RevenueCatDecodingTests {
    private func decode(_ item: String) throws(JSONFault) -> WirePage<WireItem> {
        try decodePage(Array(Fixture.page([item]).utf8), item: WireItem.subscription)
    }

    @Test(
        "a subscription with a required field missing, null, empty or of another type is refused",
        arguments: ["id", "customer_id", "environment", "store", "gives_access"],
        [nil, "null", "1", #""""#, "[]", "{}"] as [String?]
    )
    func requiresFields(_ field: String, _ value: String?) throws {
        let page = try decode(Fixture.subscription([field: value]))
        #expect(page.items.isEmpty)
        #expect(page.badItems == 1)
    }

    @Test(
        "a status that can't be read leaves the decision to gives_access, and is unknown without access",
        arguments: [nil, "null", "1", #""""#, "[]", "{}"] as [String?]
    )
    func decidesByAccess(_ value: String?) throws {
        for givesAccess in [true, false] {
            let page = try decode(Fixture.subscription(["status": value, "gives_access": "\(givesAccess)"]))
            let item = try #require(page.items.first)
            let observation = Observation(item, entitlements: item.entitlements, owner: .askedUser)
            #expect(observation.accessState == (givesAccess ? .access : .unknown))
        }
    }

    @Test(
        "half of a character, or a number beyond a double, spoils no item where nobody reads it",
        arguments: [
            ["display_name": #""Kim \ud83d""#], ["attributes": #"[{"\ude00":"\ud83d\ud83d"}]"#],
            ["total_revenue_in_usd": #"{"gross":1e400,"tax":-1E-9999}"#], ["country": #""\udfff\u0041""#],
        ] as [Fixture.Changes]
    )
    func passesOverUnreadMembers(_ changes: Fixture.Changes) throws {
        let page = try decode(Fixture.subscription(changes))
        #expect(page.items.count == 1 && page.badItems == 0)
    }

    @Test(
        "an optional field of another type is left out, and decides nothing",
        arguments: [
            ["auto_renewal_status": "true"], ["product_id": "5"], ["store_subscription_identifier": "480001234567890"],
            ["ownership": "{}"], ["current_period_ends_at": #""2026-01-01""#], ["pending_payment": "[]"],
            ["current_period_ends_at": "1791356800000.5"],
            ["current_period_ends_at": "1.7913568e12"], ["starts_at": "{}"],
        ] as [Fixture.Changes]
    )
    func leavesOutOddFields(_ changes: Fixture.Changes) throws {
        let page = try decode(Fixture.subscription(changes))
        #expect(page.badItems == 0 && page.items.first?.givesAccess == true)
        if changes["current_period_ends_at"] != nil { #expect(page.items.first?.endsAt == nil) }
    }

    @Test(
        "entitlements that are no list are not all that there are",
        arguments: ["[]", #"{"object":"list"}"#, #"{"object":"x","items":[]}"#, "7"]
    )
    func oddEntitlements(_ value: String) async throws {
        let store = FakeStore()
        store.on(FakeStore.subscriptions, 200, Fixture.page([Fixture.subscription(["entitlements": value])]))
        store.on(FakeStore.purchases, 200, Fixture.page([]))
        let reading = try await store.read()
        #expect(reading.hasUnreadable && reading.failure == nil)
        // What gives no access gives none by whatever entitlement.
        let other = FakeStore()
        let ended = Fixture.subscription(["entitlements": value, "gives_access": "false", "status": #""expired""#])
        other.on(FakeStore.subscriptions, 200, Fixture.page([ended]))
        other.on(FakeStore.purchases, 200, Fixture.page([]))
        #expect(try await !other.read().hasUnreadable)
    }

    @Test("an id with a character that no database takes is refused")
    func refusesNUL() throws {
        #expect(try decode(Fixture.subscription(["id": #""a\u0000b""#])).badItems == 1)
    }

    @Test(
        "impossible dates are left out, and the item decides by its access",
        arguments: [
            ["current_period_ends_at": "-1"], ["current_period_ends_at": "0"], ["current_period_ends_at": "1791356800"],
            ["current_period_ends_at": "999999999999"], ["current_period_ends_at": "7258118400001"],
            ["current_period_ends_at": "1791356800000000"], ["current_period_ends_at": "99999999999999999999"],
            ["current_period_ends_at": "1788678399999"], ["current_period_starts_at": "-62135596800000"],
            ["starts_at": "1786000000"], ["ends_at": "-5"],
        ] as [Fixture.Changes]
    )
    func leavesOutDates(_ changes: Fixture.Changes) throws {
        let item = try #require(try decode(Fixture.subscription(changes)).items.first)
        #expect(item.givesAccess == true)
        if changes["current_period_ends_at"] != nil { #expect(item.endsAt == nil) }
        if changes["current_period_starts_at"] != nil { #expect(item.startsAt == nil) }
    }

    @Test(
        "dates may be null, left out, or equal",
        arguments: [
            ["current_period_ends_at": "null"], ["current_period_ends_at": nil], ["current_period_starts_at": "null"],
            ["current_period_ends_at": "1788678400000"], ["current_period_ends_at": "7258118400000"],
        ] as [Fixture.Changes]
    )
    func acceptsDates(_ changes: Fixture.Changes) throws {
        #expect(try decode(Fixture.subscription(changes)).items.count == 1)
    }

    @Test("a lifetime grant ends with the time we can hold; another item's end so late is impossible")
    func acceptsLifetimeGrants() throws {
        let late = "8100000000000"
        let grant = try decode(Fixture.subscription(["store": #""promotional""#, "current_period_ends_at": late]))
        #expect(grant.items.first?.endsAt == Instant(milliseconds: 7_258_118_400_000))
        let other = try decode(Fixture.subscription(["current_period_ends_at": late]))
        #expect(other.items.count == 1 && other.items.first?.endsAt == nil)
    }

    @Test(
        "47: words we do not know are kept, and fields we do not know are ignored",
        arguments: [
            ["status": #""hibernating""#, "store": #""moon_store""#, "environment": #""staging""#],
            ["auto_renewal_status": #""perhaps""#, "ownership": #""borrowed""#, "brand_new": #"{"a":[{"b":null}]}"#],
            ["object": #""something_else""#, "pending_changes": #"{"product":{"object":"product"}}"#],
        ] as [Fixture.Changes]
    )
    func toleratesUnknown(_ changes: Fixture.Changes) throws {
        let page = try decode(Fixture.subscription(changes))
        #expect(page.badItems == 0)
        let item = try #require(page.items.first)
        let observation = Observation(item, entitlements: item.entitlements, owner: .askedUser)
        if changes["status"] != nil {
            #expect(observation.status.raw == "hibernating")
            #expect(observation.status.known == .unknown)
            #expect(observation.store == "moon_store")
            #expect(observation.isSandbox)
        }
    }

    @Test("a subscription's fields in a purchase are unknown fields, and the other way round")
    func keepsKindsApart() throws {
        let purchase = Fixture.purchase(["gives_access": "5", "current_period_ends_at": "{}"])
        let page = try decodePage(Array(Fixture.page([purchase]).utf8), item: WireItem.oneTime)
        #expect(page.items.first?.givesAccess == .some(nil))
        #expect(
            try decode(Fixture.subscription(["purchased_at": "[]", "store_purchase_identifier": "1"])).badItems == 0
        )
    }

    @Test("one item that can't be read takes nothing from the others, and does not harm the breaker")
    func keepsGoodItems() async throws {
        let store = FakeStore()
        let bad = [Fixture.subscription(id: "bad", ["gives_access": #""yes""#]), "null", "[[1]]", #""text""#]
        store.on(FakeStore.subscriptions, 200, Fixture.page([bad[0], Fixture.subscription()] + bad[1...]))
        let reading = try await store.read()
        #expect(reading.coverage == .full && reading.hasUnreadable)
        #expect(reading.failure == nil)
        #expect(reading.observations.map(\.givesAccess) == [true])
        #expect(store.reports == [StoreAnswer(status: 200, failure: .malformed, countsForBreaker: false)])
    }

    @Test("a refused subscription does not keep a purchase from being read")
    func readsOnPastBadItems() async throws {
        let store = FakeStore()
        store.on(FakeStore.subscriptions, 200, Fixture.page(["{}"]))
        store.on(FakeStore.purchases, 200, Fixture.page([Fixture.purchase()]))
        let reading = try await store.read()
        #expect(reading.coverage == .full && reading.hasUnreadable)
        #expect(reading.failure == nil)
        #expect(reading.observations.map(\.kind) == [.oneTime])
    }

    @Test("an entitlement that cannot be named may be the one that counts")
    func refusesNamelessEntitlement() async throws {
        let store = FakeStore()
        let entitlements = #"{"object":"list","items":[{"id":"entl1"},{"lookup_key":"premium"}]}"#
        store.on(FakeStore.subscriptions, 200, Fixture.page([Fixture.subscription(["entitlements": entitlements])]))
        let reading = try await store.read()
        #expect(reading.hasUnreadable)
        #expect(reading.observations.first?.entitlements == ["premium"])
    }

    @Test("103: an item that nests too deeply refuses the page")
    func refusesDeepItems() throws {
        let deep = String(repeating: "[", count: 40) + String(repeating: "]", count: 40)
        #expect(throws: JSONFault.tooDeep) { try decode(Fixture.subscription(["extra": deep])) }
    }

    @Test(
        "an item without a store's id has RevenueCat's alone",
        arguments: [nil, "null", #""""#] as [String?]
    )
    func omitsStoreIdentifier(_ value: String?) throws {
        let item = try #require(try decode(Fixture.subscription(["store_subscription_identifier": value])).items.first)
        let observation = Observation(item, entitlements: [], owner: .askedUser)
        #expect(observation.identifiers.map(\.kind) == ["revenuecat_id"])
    }

    @Test("64: members of a family who share a transaction have purchases of their own")
    func separatesFamily() throws {
        let keys = try ["sub1", "sub2"].map { id in
            let text = Fixture.subscription(id: id, ["ownership": #""family_shared""#])
            let item = try #require(try decode(text).items.first)
            let observation = Observation(item, entitlements: [], owner: .askedUser)
            #expect(observation.isFamilyShared)
            return try #require(observation.identifiers.first { $0.kind == "store_id" })
        }
        #expect(keys.map(\.value) == ["480001234567890#family:sub1", "480001234567890#family:sub2"])
    }

    private func hash(
        _ changes: Fixture.Changes = [:],
        entitlements: [String] = ["a", "b"],
        owner: NamedOwner = .askedUser
    ) throws -> [UInt8] {
        let item = try #require(try decode(Fixture.subscription(changes)).items.first)
        return Observation(item, entitlements: entitlements, owner: owner).payloadHash
    }

    @Test("the hash follows the facts and nothing else")
    func hashesFacts() throws {
        let plain = try hash()
        #expect(try hash(["total_revenue_in_usd": "null", "country": #""FR""#, "management_url": "null"]) == plain)
        #expect(try hash(entitlements: ["b", "a", "b"]) == plain)
        let others = [
            try hash(["status": #""expired""#]), try hash(["gives_access": "false"]), try hash(["product_id": "null"]),
            try hash(["product_id": #""""#]), try hash(["auto_renewal_status": #""will_not_renew""#]),
            try hash(["auto_renewal_status": "null"]), try hash(["current_period_ends_at": "1791356800001"]),
            try hash(["current_period_ends_at": "null"]), try hash(["current_period_starts_at": "null"]),
            try hash(["environment": #""sandbox""#]), try hash(["store": #""play_store""#]), try hash(["id": #""x""#]),
            try hash(["ownership": #""family_shared""#]), try hash(["store_subscription_identifier": "null"]),
            try hash(entitlements: ["a"]), try hash(entitlements: ["ab"]), try hash(entitlements: []),
            try hash(owner: .anonymous), try hash(owner: .otherUser(id: "u")), try hash(owner: .otherUser(id: "v")),
        ]
        #expect(Set(others + [plain]).count == others.count + 1)
    }
}
