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
    /// Earlier transaction identifiers that the owner lookup shall find too.
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
    /// Whether its store knows it; by default what the scenario says of all.
    package var knownToStore: Bool?

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
        case knownToStore = "known_to_store"
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
        knownToStore = try fields.optional(.knownToStore)
    }
}
