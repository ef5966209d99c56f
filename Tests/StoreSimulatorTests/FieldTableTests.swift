import Testing

@testable import StoreSimulator

/// One row of RevenueCat's field tables.
private struct Field {
    enum Kind { case text, nullableText, moment, nullableMoment, integer, flag, money, list, nullableObject }
    var name: String
    var kind: Kind

    init(_ name: String, _ kind: Kind) {
        self.name = name
        self.kind = kind
    }

    func accepts(_ value: JSON) -> Bool {
        switch (kind, value) {
        case (.text, .string), (.nullableText, .string), (.nullableText, .null), (.flag, .bool): true
        case (.moment, .integer(let ms)), (.nullableMoment, .integer(let ms)): ms > 1_000_000_000_000
        case (.nullableMoment, .null), (.nullableObject, .null), (.nullableObject, .object), (.integer, .integer): true
        case (.money, .object): value.keys == ["currency", "gross", "commission", "tax", "proceeds"]
        case (.list, .object): value.keys == ["object", "items", "next_page", "url"]
        default: false
        }
    }
}

private let subscriptionFields: [Field] = [
    Field("object", .text), Field("id", .text), Field("customer_id", .text), Field("original_customer_id", .text),
    Field("product_id", .nullableText), Field("starts_at", .moment), Field("current_period_starts_at", .moment),
    Field("current_period_ends_at", .nullableMoment), Field("ends_at", .nullableMoment), Field("gives_access", .flag),
    Field("pending_payment", .flag), Field("auto_renewal_status", .text), Field("status", .text),
    Field("total_revenue_in_usd", .money), Field("presented_offering_id", .nullableText), Field("entitlements", .list),
    Field("environment", .text), Field("store", .text), Field("store_subscription_identifier", .text),
    Field("ownership", .text), Field("pending_changes", .nullableObject), Field("country", .nullableText),
    Field("management_url", .nullableText),
]

private let purchaseFields: [Field] = [
    Field("object", .text), Field("id", .text), Field("customer_id", .text), Field("original_customer_id", .text),
    Field("product_id", .text), Field("purchased_at", .moment), Field("revenue_in_usd", .money),
    Field("quantity", .integer), Field("status", .text), Field("presented_offering_id", .nullableText),
    Field("entitlements", .list), Field("environment", .text), Field("store", .text),
    Field("store_purchase_identifier", .text), Field("ownership", .text), Field("country", .nullableText),
]

@Suite("Wire fields")
struct FieldTableTests {
    private static let subscriptionStates = LifeState.allCases.filter { $0.subscription != nil }
    private static let purchaseStates = LifeState.allCases.filter { $0.purchase != nil }

    @Test("A subscription in any state has every field of the table, and no other", arguments: subscriptionStates)
    func subscription(state: LifeState) async throws {
        try await Probe.run("{project: p1, customers: [{id: u, subscriptions: [\(state.rawValue)]}]}") { probe in
            let item = try #require(try await probe.get("customers/u/subscriptions").json.items.first)
            expectFields(of: item, subscriptionFields)
            #expect(item["object"] == .string("subscription"))
        }
    }

    @Test("A purchase in any state has every field of the table, and no other", arguments: purchaseStates)
    func purchase(state: LifeState) async throws {
        try await Probe.run("{project: p1, customers: [{id: u, purchases: [\(state.rawValue)]}]}") { probe in
            let item = try #require(try await probe.get("customers/u/purchases").json.items.first)
            expectFields(of: item, purchaseFields)
            #expect(item["object"] == .string("purchase"))
        }
    }

    struct Meaning: Sendable, CustomTestStringConvertible {
        var state: LifeState
        var status: String
        var givesAccess: Bool
        var renewal = "will_renew"
        /// Whether the period ends after now; nil where it has no end.
        var isRunning: Bool? = true
        var testDescription: String { state.rawValue }
    }

    @Test(
        "Each state says on the wire what it means",
        arguments: [
            Meaning(state: .active, status: "active", givesAccess: true),
            Meaning(state: .trial, status: "trialing", givesAccess: true),
            Meaning(state: .cancelled, status: "active", givesAccess: true, renewal: "will_not_renew"),
            Meaning(state: .grace, status: "in_grace_period", givesAccess: true, isRunning: false),
            Meaning(state: .billingRetry, status: "in_billing_retry", givesAccess: false, isRunning: false),
            Meaning(state: .pauseScheduled, status: "active", givesAccess: true, renewal: "will_pause"),
            Meaning(state: .paused, status: "paused", givesAccess: false),
            Meaning(
                state: .expired,
                status: "expired",
                givesAccess: false,
                renewal: "will_not_renew",
                isRunning: false
            ),
            Meaning(
                state: .refunded,
                status: "expired",
                givesAccess: false,
                renewal: "will_not_renew",
                isRunning: false
            ),
            Meaning(state: .promotional, status: "active", givesAccess: true, renewal: "will_not_renew"),
            Meaning(state: .familyShared, status: "active", givesAccess: true),
            Meaning(state: .sandbox, status: "active", givesAccess: true),
            Meaning(state: .incomplete, status: "incomplete", givesAccess: false),
            Meaning(state: .unknown, status: "unknown", givesAccess: true),
            Meaning(state: .unmapped, status: "active", givesAccess: true),
            Meaning(
                state: .priceIncrease,
                status: "active",
                givesAccess: true,
                renewal: "requires_price_increase_consent"
            ),
            Meaning(state: .productChange, status: "active", givesAccess: true, renewal: "will_change_product"),
        ]
    )
    func meaning(of meaning: Meaning) async throws {
        let yaml = "{project: p1, customers: [{id: u, subscriptions: [\(meaning.state.rawValue)]}]}"
        try await Probe.run(yaml) { probe in
            let item = try #require(try await probe.get("customers/u/subscriptions").json.items.first)
            #expect(item["status"]?.text == meaning.status)
            #expect(item["gives_access"]?.flag == meaning.givesAccess)
            #expect(item["auto_renewal_status"]?.text == meaning.renewal)
            #expect(item["ends_at"]?.integer.map { $0 > probe.nowMs } == meaning.isRunning)
            // Whatever gives access shows among the active entitlements, and nothing else does.
            let active = try await probe.get("customers/u/active_entitlements").json.items
            #expect(active.isEmpty != meaning.givesAccess)
        }
    }

    @Test("What tells states apart besides their status is there")
    func particulars() async throws {
        let yaml = """
            project: p1
            customers:
              - id: u
                subscriptions: [promotional, family_shared, sandbox, incomplete, unmapped, product_change]
                purchases: [lifetime, refunded, consumable]
            """
        try await Probe.run(yaml) { probe in
            let items = try await probe.get("customers/u/subscriptions").json.items
            try #require(items.count == 6)
            #expect(items[0]["product_id"] == .null)
            #expect(items[0]["store"]?.text == "promotional")
            #expect(items[0]["management_url"] == .null)
            #expect(items[1]["ownership"]?.text == "family_shared")
            #expect(items[2]["environment"]?.text == "sandbox")
            #expect(items[3]["pending_payment"]?.flag == true)
            #expect(items[4]["entitlements"]?.items.first?["lookup_key"]?.text == "unmapped")
            #expect(items[5]["pending_changes"]?["product"]?["id"]?.text == "prod5566778899")
            let purchases = try await probe.get("customers/u/purchases").json.items
            #expect(purchases.compactMap { $0["status"]?.text } == ["owned", "refunded", "owned"])
            #expect(purchases.map { $0["entitlements"]?.items.count } == [1, 1, 0])
        }
    }

    @Test("Fields of the scenario override those of the state, null included")
    func overrides() async throws {
        let yaml = """
            project: p1
            customers:
              - id: u
                subscriptions:
                  - state: paused
                    ends: null
                    status: hibernating
                    store: roku
                    country: null
                    entitlements: [gold, premium]
                    original_customer_id: first
                    gross: 0
                    id: sub1
                    store_subscription_identifier: tx-1
            """
        try await Probe.run(yaml) { probe in
            let item = try #require(try await probe.get("customers/u/subscriptions").json.items.first)
            #expect(item["current_period_ends_at"] == .null)
            #expect(item["ends_at"] == .null)
            #expect(item["status"]?.text == "hibernating")
            #expect(item["gives_access"]?.flag == false)
            #expect(item["store"]?.text == "roku")
            #expect(item["country"] == .null)
            #expect(item["original_customer_id"]?.text == "first")
            #expect(item["id"]?.text == "sub1")
            #expect(item["store_subscription_identifier"]?.text == "tx-1")
            #expect(item["entitlements"]?.items.compactMap { $0["lookup_key"]?.text } == ["gold", "premium"])
        }
    }

    @Test("A customer, an alias, an entitlement and an active entitlement have the fields of their tables")
    func otherObjects() async throws {
        let yaml = """
            project: p1
            entitlements: [{lookup_key: premium, id: entlX, display_name: Gold}]
            customers:
              - {id: u, aliases: ["$RCAnonymousID:a"], state: active, attributes: {$email: a@example.com}}
              - {id: quiet, last_seen: null, country: null, state: none}
            """
        try await Probe.run(yaml) { probe in
            let common: [Field] = [
                Field("object", .text), Field("id", .text), Field("project_id", .text), Field("first_seen_at", .moment),
                Field("last_seen_at", .nullableMoment), Field("last_seen_app_version", .nullableText),
                Field("last_seen_country", .nullableText), Field("last_seen_platform", .nullableText),
                Field("last_seen_platform_version", .nullableText), Field("active_entitlements", .list),
                Field("experiment", .nullableObject),
            ]
            let customer = try await probe.get("customers/u").json
            expectFields(of: customer, common)
            #expect(customer["project_id"]?.text == "p1")
            expectFields(of: try await probe.get("customers/quiet").json, common)
            let expanded = try await probe.get("customers/u?expand=attributes").json
            expectFields(of: expanded, common + [Field("attributes", .list)])
            let attribute = try #require(expanded["attributes"]?.items.first)
            expectFields(
                of: attribute,
                [
                    Field("object", .text), Field("name", .text), Field("value", .nullableText),
                    Field("updated_at", .moment),
                ]
            )

            let aliases = try await probe.get("customers/u/aliases").json
            #expect(aliases.itemIDs == ["u", "$RCAnonymousID:a"])
            for alias in aliases.items {
                expectFields(of: alias, [Field("object", .text), Field("id", .text), Field("created_at", .moment)])
            }
            let entitlement = try #require(try await probe.get("entitlements").json.items.first)
            expectFields(
                of: entitlement,
                [
                    Field("object", .text), Field("project_id", .text), Field("id", .text), Field("lookup_key", .text),
                    Field("display_name", .text), Field("created_at", .moment),
                ]
            )
            #expect(entitlement["id"]?.text == "entlX")
            let active = try #require(try await probe.get("customers/u/active_entitlements").json.items.first)
            expectFields(
                of: active,
                [Field("object", .text), Field("entitlement_id", .text), Field("expires_at", .nullableMoment)]
            )
            #expect(active["entitlement_id"]?.text == "entlX")
        }
    }

    @Test("A lifetime purchase makes its entitlement active without an end, whatever else ends")
    func lifetimeWins() async throws {
        try await Probe.run("{project: p1, customers: [{id: u, subscriptions: [active], purchases: [lifetime]}]}") {
            probe in
            let active = try await probe.get("customers/u/active_entitlements").json.items
            #expect(active.count == 1)
            #expect(active.first?["expires_at"] == .null)
        }
    }

    private func expectFields(of object: JSON, _ fields: [Field]) {
        #expect(object.keys == Set(fields.map(\.name)))
        for field in fields {
            guard let value = object[field.name] else { continue }
            #expect(field.accepts(value), "\(field.name) is \(value)")
        }
    }
}
