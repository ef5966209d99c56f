/// Turns what a scenario says into full records.
struct RecordBuilder {
    /// Simulated Unix milliseconds that relative moments count from.
    let nowMs: Int64
    /// Grows with every lookup key that a record names.
    var catalogue: EntitlementCatalogue

    static let productID = "prod1122334455"
    static let lifetimeProductID = "prod6677889900"
    private static let app = "appa1b2c3d4e5"

    /// A customer with every field filled in.
    mutating func customer(_ scenario: CustomerScenario) -> CustomerRecord {
        var record = CustomerRecord(
            id: scenario.id,
            firstSeenMs: (scenario.firstSeen ?? .days(-100)).milliseconds(from: nowMs),
            lastSeenMs: scenario.lastSeen.resolved(usual: .offset(milliseconds: -3_600_000))?.milliseconds(from: nowMs),
            country: scenario.country.resolved(usual: "PT")
        )
        record.aliases = scenario.aliases.filter { $0 != scenario.id }
        record.attributes = scenario.attributes.sorted { $0.key < $1.key }.map { ($0.key, $0.value) }
        var subscriptions = scenario.subscriptions
        var purchases = scenario.purchases
        if let state = scenario.state {
            if state.subscription != nil {
                subscriptions.insert(SubscriptionScenario(state: state), at: 0)
            } else if state.purchase != nil {
                purchases.insert(PurchaseScenario(state: state), at: 0)
            }
        }
        record.subscriptions = subscriptions.enumerated().map { subscription($1, seed: "\(scenario.id)/s\($0)") }
        record.purchases = purchases.enumerated().map { purchase($1, seed: "\(scenario.id)/p\($0)") }
        return record
    }

    /// A subscription; identifiers that the scenario leaves out derive from `seed`.
    mutating func subscription(_ scenario: SubscriptionScenario, seed: String) -> SubscriptionRecord {
        let shape = scenario.state.subscription ?? SubscriptionShape()
        let ends = scenario.ends.resolved(usual: shape.periodEnds)?.milliseconds(from: nowMs)
        var periodStarts = (scenario.periodStartsAt ?? scenario.starts ?? shape.periodStarts).milliseconds(from: nowMs)
        if let ends, scenario.periodStartsAt == nil, periodStarts >= ends {
            // An end moved into the past takes its period along.
            periodStarts = ends - 30 * TimeText.day
        }
        let starts =
            scenario.starts?.milliseconds(from: nowMs)
            ?? min(shape.starts.milliseconds(from: nowMs), periodStarts)
        let store = scenario.store ?? shape.store
        let isPromotional = store == "promotional"
        let pinned = scenario.status != nil || scenario.givesAccess != nil
        return SubscriptionRecord(
            id: scenario.id ?? "sub" + Identifiers.hex(seed),
            originalCustomerID: scenario.originalCustomerID,
            app: scenario.app ?? Self.app,
            productID: scenario.productID.resolved(usual: shape.hasProduct ? Self.productID : nil),
            startsAtMs: starts,
            periodStartsAtMs: periodStarts,
            periodEndsAtMs: ends,
            endsAtMs: scenario.endsAt.map { $0.milliseconds(from: nowMs) }.resolved(usual: ends),
            givesAccess: scenario.givesAccess ?? shape.givesAccess,
            pendingPayment: scenario.pendingPayment ?? shape.pendingPayment,
            renewal: scenario.autoRenewalStatus ?? shape.renewal,
            status: scenario.status ?? shape.status,
            revenue: Self.money(scenario.gross ?? shape.gross),
            offeringID: scenario.presentedOfferingID.resolved(usual: nil),
            entitlements: (scenario.entitlements ?? [shape.entitlement]).map { catalogue.position(of: $0) },
            environment: scenario.environment ?? shape.environment,
            store: store,
            storeIdentifier: scenario.storeIdentifier
                ?? Identifiers.transaction(store: store, digits: Identifiers.digits(seed)),
            pastIdentifiers: scenario.pastIdentifiers,
            ownership: scenario.ownership ?? shape.ownership,
            pendingProduct: scenario.pendingProduct.resolved(usual: shape.pendingProduct),
            country: scenario.country.resolved(usual: isPromotional ? nil : "PT"),
            managementURL: scenario.managementURL.resolved(usual: Self.managementURL(store: store)),
            // What the scenario states outright is not overturned by the passing of time.
            atEnd: scenario.atEnd ?? (pinned ? .stay : shape.atEnd),
            isKnownToStore: scenario.knownToStore
        )
    }

    /// A one-time purchase; identifiers that the scenario leaves out derive from `seed`.
    mutating func purchase(_ scenario: PurchaseScenario, seed: String) -> PurchaseRecord {
        let shape = scenario.state.purchase ?? PurchaseShape()
        let store = scenario.store ?? "app_store"
        return PurchaseRecord(
            id: scenario.id ?? "purch" + Identifiers.hex(seed),
            originalCustomerID: scenario.originalCustomerID,
            app: scenario.app ?? Self.app,
            productID: scenario.productID ?? Self.lifetimeProductID,
            purchasedAtMs: (scenario.purchasedAt ?? shape.purchasedAt).milliseconds(from: nowMs),
            revenue: Self.money(scenario.gross ?? shape.gross),
            quantity: scenario.quantity ?? 1,
            status: scenario.status ?? shape.status,
            offeringID: scenario.presentedOfferingID.resolved(usual: nil),
            entitlements: (scenario.entitlements ?? shape.entitlement.map { [$0] } ?? [])
                .map { catalogue.position(of: $0) },
            environment: scenario.environment ?? shape.environment,
            store: store,
            storeIdentifier: scenario.storeIdentifier
                ?? Identifiers.transaction(store: store, digits: Identifiers.digits(seed)),
            ownership: scenario.ownership ?? shape.ownership,
            country: scenario.country.resolved(usual: "PT"),
            isKnownToStore: scenario.knownToStore
        )
    }

    /// The money object for a gross amount: 15 % commission, 17 % tax, to the cent.
    private static func money(_ gross: Double) -> String {
        let commission = (gross * 15).rounded() / 100
        let tax = (gross * 17).rounded() / 100
        let proceeds = ((gross - commission - tax) * 100).rounded() / 100
        return "{\"currency\":\"USD\",\"gross\":\(gross),\"commission\":\(commission),\"tax\":\(tax),"
            + "\"proceeds\":\(proceeds)}"
    }

    private static func managementURL(store: String) -> String? {
        switch store {
        case "app_store", "mac_app_store": "https://apps.apple.com/account/subscriptions"
        case "play_store": "https://play.google.com/store/account/subscriptions"
        default: nil
        }
    }
}
