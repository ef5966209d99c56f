/// One one-time purchase of a scenario: a state, and any wire field that should differ from it.
struct PurchaseScenario: ScenarioObject, Hashable {
    /// The state that gives every field its usual value.
    var state = LifeState.lifetime
    /// RevenueCat's id; derived by default.
    var id: String?
    /// The RevenueCat app it was bought in.
    var app: String?
    /// RevenueCat's product id.
    var productID: String?
    /// When it was bought.
    var purchasedAt: Moment?
    /// `owned`, `refunded`, or any text.
    var status: String?
    /// How many.
    var quantity: Int?
    /// `production` or `sandbox`.
    var environment: String?
    /// Any text.
    var store: String?
    /// Transaction identifier; derived by default.
    var storeIdentifier: String?
    /// `purchased` or `family_shared`.
    var ownership: String?
    /// First owner, where it differs from the present one.
    var originalCustomerID: String?
    /// Lookup keys of the entitlements attached.
    var entitlements: [String]?
    /// Offering shown at purchase, or null.
    var presentedOfferingID: Override<String> = .usual
    /// ISO alpha-2, or null.
    var country: Override<String> = .usual
    /// Gross revenue in US dollars.
    var gross: Double?
    /// Whether its store knows it; by default what the scenario says of all.
    var knownToStore: Bool?

    static let fields: [ScenarioField<Self>] = [
        .value("state", \.state), .optional("id", \.id), .optional("app", \.app), .optional("product_id", \.productID),
        .optional("purchased_at", \.purchasedAt), .optional("status", \.status),
        .optional("quantity", \.quantity, in: 1...1_000_000), .optional("environment", \.environment),
        .optional("store", \.store), .optional("store_purchase_identifier", \.storeIdentifier),
        .optional("ownership", \.ownership), .optional("original_customer_id", \.originalCustomerID),
        .optional("entitlements", \.entitlements), .override("presented_offering_id", \.presentedOfferingID),
        .override("country", \.country), .optional("gross", \.gross), .optional("known_to_store", \.knownToStore),
    ]

    static func bare(_ decoder: any Decoder) throws -> Self? {
        try LifeState.bare(decoder, where: { $0.purchase != nil }, kind: "purchase").map { Self(state: $0) }
    }

    func check() throws {
        guard state.purchase != nil else { throw FieldFault(message: "describes no purchase", at: "state") }
    }
}
