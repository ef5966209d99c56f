/// One customer of a scenario, or the body of `PUT /control/customers/{id}`.
///
/// `{id: user-1, state: active}` is enough: `state` stands for one subscription or purchase in that state.
package struct CustomerScenario: Sendable, Codable, Hashable {
    /// The primary id; may stay empty where the place already names it (a control path, `default_customer`).
    package var id: String
    /// Further ids of the same customer; reads by any of them answer alike.
    package var aliases: [String]
    /// Shorthand for one subscription or purchase in this state, next to those listed.
    package var state: LifeState?
    /// Subscriptions, in the order the store lists them.
    package var subscriptions: [SubscriptionScenario]
    /// One-time purchases, in the order the store lists them.
    package var purchases: [PurchaseScenario]
    /// When the store first saw the customer; 100 days ago by default.
    package var firstSeen: Moment?
    /// When the store last saw the customer, or null; an hour ago by default.
    package var lastSeen: Override<Moment>
    /// Country of the last visit, ISO alpha-2, or null.
    package var country: Override<String>
    /// Attributes by name, such as `$email`.
    package var attributes: [String: String]

    /// Makes a customer.
    package init(
        id: String = "",
        aliases: [String] = [],
        state: LifeState? = nil,
        subscriptions: [SubscriptionScenario] = [],
        purchases: [PurchaseScenario] = []
    ) {
        self.id = id
        self.aliases = aliases
        self.state = state
        self.subscriptions = subscriptions
        self.purchases = purchases
        lastSeen = .usual
        country = .usual
        attributes = [:]
    }

    package enum CodingKeys: String, CodingKey, CaseIterable {
        case id, aliases, state, subscriptions, purchases, country, attributes
        case firstSeen = "first_seen"
        case lastSeen = "last_seen"
    }

    package init(from decoder: any Decoder) throws {
        let fields = try StrictFields<CodingKeys>(decoder)
        self.init(
            id: try fields.optional(.id) ?? "",
            aliases: try fields.optional(.aliases) ?? [],
            state: try fields.optional(.state),
            subscriptions: try fields.optional(.subscriptions) ?? [],
            purchases: try fields.optional(.purchases) ?? []
        )
        firstSeen = try fields.optional(.firstSeen)
        lastSeen = try fields.override(.lastSeen)
        country = try fields.override(.country)
        attributes = try fields.optional(.attributes) ?? [:]
        guard id.unicodeScalars.count <= 1500 else { throw fields.fault(.id, "is longer than 1500 characters") }
        guard !aliases.contains("") else { throw fields.fault(.aliases, "contains an empty id; remove it") }
    }
}

/// One subscription of a scenario: a state, and any wire field that should differ from it.
///
/// A bare state (`subscriptions: [active, expired]`) is enough.
package struct SubscriptionScenario: Sendable, Codable, Hashable {
    /// The state that gives every field its usual value.
    package var state: LifeState = .active
    /// RevenueCat's id; derived from the customer's id and the position by default.
    package var id: String?
    /// The RevenueCat app it was bought in; transfers may be limited to some apps.
    package var app: String?
    /// RevenueCat's product id, or null.
    package var productID: Override<String> = .usual
    /// Short for `starts_at`.
    package var starts: Moment?
    /// Short for `current_period_ends_at` and `ends_at` together.
    package var ends: Override<Moment> = .usual
    /// Start of the running period.
    package var periodStartsAt: Moment?
    /// Differs from `ends` only where the wire should show two different ends.
    package var endsAt: Override<Moment> = .usual
    /// Any text: unknown words must be survivable.
    package var status: String?
    /// The access answer.
    package var givesAccess: Bool?
    /// Any text.
    package var autoRenewalStatus: String?
    /// Whether a payment is pending.
    package var pendingPayment: Bool?
    /// `production` or `sandbox`.
    package var environment: String?
    /// Any text, such as `play_store`.
    package var store: String?
    /// Identifier of the latest transaction; derived by default.
    package var storeIdentifier: String?
    /// Earlier transaction identifiers that the owner look-up shall find too.
    package var pastIdentifiers: [String] = []
    /// `purchased` or `family_shared`.
    package var ownership: String?
    /// First owner, where it differs from the present one.
    package var originalCustomerID: String?
    /// Lookup keys of the entitlements attached.
    package var entitlements: [String]?
    /// Offering shown at purchase, or null.
    package var presentedOfferingID: Override<String> = .usual
    /// The product that follows, or null.
    package var pendingProduct: Override<String> = .usual
    /// ISO alpha-2, or null.
    package var country: Override<String> = .usual
    /// Where the customer manages it, or null.
    package var managementURL: Override<String> = .usual
    /// Gross revenue in US dollars.
    package var gross: Double?
    /// What happens when the simulated time reaches `ends`.
    package var atEnd: EndBehaviour?

    /// Makes a subscription in a state.
    package init(state: LifeState = .active) {
        self.state = state
    }

    package enum CodingKeys: String, CodingKey, CaseIterable {
        case state, id, app, starts, ends, status, environment, store, ownership, entitlements, country, gross
        case productID = "product_id"
        case periodStartsAt = "current_period_starts_at"
        case endsAt = "ends_at"
        case givesAccess = "gives_access"
        case autoRenewalStatus = "auto_renewal_status"
        case pendingPayment = "pending_payment"
        case storeIdentifier = "store_subscription_identifier"
        case pastIdentifiers = "past_identifiers"
        case originalCustomerID = "original_customer_id"
        case presentedOfferingID = "presented_offering_id"
        case pendingProduct = "pending_product"
        case managementURL = "management_url"
        case atEnd = "at_end"
    }

    package init(from decoder: any Decoder) throws {
        if let state = try LifeState.bare(decoder, where: { $0.subscription != nil }, kind: "subscription") {
            self.init(state: state)
            return
        }
        let fields = try StrictFields<CodingKeys>(decoder)
        self.init(state: try fields.optional(.state) ?? .active)
        guard state.subscription != nil else { throw fields.fault(.state, "describes no subscription") }
        id = try fields.optional(.id)
        app = try fields.optional(.app)
        productID = try fields.override(.productID)
        starts = try fields.optional(.starts)
        ends = try fields.override(.ends)
        periodStartsAt = try fields.optional(.periodStartsAt)
        endsAt = try fields.override(.endsAt)
        status = try fields.optional(.status)
        givesAccess = try fields.optional(.givesAccess)
        autoRenewalStatus = try fields.optional(.autoRenewalStatus)
        pendingPayment = try fields.optional(.pendingPayment)
        environment = try fields.optional(.environment)
        store = try fields.optional(.store)
        storeIdentifier = try fields.optional(.storeIdentifier)
        pastIdentifiers = try fields.optional(.pastIdentifiers) ?? []
        ownership = try fields.optional(.ownership)
        originalCustomerID = try fields.optional(.originalCustomerID)
        entitlements = try fields.optional(.entitlements)
        presentedOfferingID = try fields.override(.presentedOfferingID)
        pendingProduct = try fields.override(.pendingProduct)
        country = try fields.override(.country)
        managementURL = try fields.override(.managementURL)
        gross = try fields.optional(.gross)
        atEnd = try fields.optional(.atEnd)
    }
}

/// One one-time purchase of a scenario: a state, and any wire field that should differ from it.
package struct PurchaseScenario: Sendable, Codable, Hashable {
    /// The state that gives every field its usual value.
    package var state: LifeState = .lifetime
    /// RevenueCat's id; derived by default.
    package var id: String?
    /// The RevenueCat app it was bought in.
    package var app: String?
    /// RevenueCat's product id.
    package var productID: String?
    /// When it was bought.
    package var purchasedAt: Moment?
    /// `owned`, `refunded`, or any text.
    package var status: String?
    /// How many.
    package var quantity: Int?
    /// `production` or `sandbox`.
    package var environment: String?
    /// Any text.
    package var store: String?
    /// Transaction identifier; derived by default.
    package var storeIdentifier: String?
    /// `purchased` or `family_shared`.
    package var ownership: String?
    /// First owner, where it differs from the present one.
    package var originalCustomerID: String?
    /// Lookup keys of the entitlements attached.
    package var entitlements: [String]?
    /// Offering shown at purchase, or null.
    package var presentedOfferingID: Override<String> = .usual
    /// ISO alpha-2, or null.
    package var country: Override<String> = .usual
    /// Gross revenue in US dollars.
    package var gross: Double?

    /// Makes a purchase in a state.
    package init(state: LifeState = .lifetime) {
        self.state = state
    }

    package enum CodingKeys: String, CodingKey, CaseIterable {
        case state, id, app, status, quantity, environment, store, ownership, entitlements, country, gross
        case productID = "product_id"
        case purchasedAt = "purchased_at"
        case storeIdentifier = "store_purchase_identifier"
        case originalCustomerID = "original_customer_id"
        case presentedOfferingID = "presented_offering_id"
    }

    package init(from decoder: any Decoder) throws {
        if let state = try LifeState.bare(decoder, where: { $0.purchase != nil }, kind: "purchase") {
            self.init(state: state)
            return
        }
        let fields = try StrictFields<CodingKeys>(decoder)
        self.init(state: try fields.optional(.state) ?? .lifetime)
        guard state.purchase != nil else { throw fields.fault(.state, "describes no purchase") }
        id = try fields.optional(.id)
        app = try fields.optional(.app)
        productID = try fields.optional(.productID)
        purchasedAt = try fields.optional(.purchasedAt)
        status = try fields.optional(.status)
        quantity = try fields.integer(.quantity, in: 1...1_000_000)
        environment = try fields.optional(.environment)
        store = try fields.optional(.store)
        storeIdentifier = try fields.optional(.storeIdentifier)
        ownership = try fields.optional(.ownership)
        originalCustomerID = try fields.optional(.originalCustomerID)
        entitlements = try fields.optional(.entitlements)
        presentedOfferingID = try fields.override(.presentedOfferingID)
        country = try fields.override(.country)
        gross = try fields.optional(.gross)
    }
}

extension LifeState {
    /// The state, where a list names it without any field; nil where a map follows.
    fileprivate static func bare(
        _ decoder: any Decoder,
        where suits: (LifeState) -> Bool,
        kind: String
    ) throws -> LifeState? {
        guard let container = try? decoder.singleValueContainer(), (try? container.decode(String.self)) != nil else {
            return nil
        }
        let state = try container.decode(LifeState.self)
        guard suits(state) else {
            let names = allCases.filter(suits).map(\.rawValue).joined(separator: ", ")
            throw DecodingError.dataCorruptedError(
                in: container,
                debugDescription: "is \"\(state.rawValue)\", which describes no \(kind); use one of \(names)"
            )
        }
        return state
    }
}
