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
    /// Whether its store knows it; by default what the scenario says of all.
    package var knownToStore: Bool?

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
        case knownToStore = "known_to_store"
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
        knownToStore = try fields.optional(.knownToStore)
    }
}
