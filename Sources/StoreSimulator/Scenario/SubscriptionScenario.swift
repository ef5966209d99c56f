/// One subscription of a scenario: a state, and any wire field that should differ from it.
///
/// A bare state (`subscriptions: [active, expired]`) is enough.
struct SubscriptionScenario: ScenarioObject, Hashable {
    /// The state that gives every field its usual value.
    var state = LifeState.active
    /// RevenueCat's id; derived from the customer's id and the position by default.
    var id: String?
    /// The RevenueCat app it was bought in; transfers may be limited to some apps.
    var app: String?
    /// RevenueCat's product id, or null.
    var productID: Override<String> = .usual
    /// Short for `starts_at`.
    var starts: Moment?
    /// Short for `current_period_ends_at` and `ends_at` together.
    var ends: Override<Moment> = .usual
    /// Start of the running period.
    var periodStartsAt: Moment?
    /// Differs from `ends` only where the wire should show two different ends.
    var endsAt: Override<Moment> = .usual
    /// Any text: unknown words must be survivable.
    var status: String?
    /// The access answer.
    var givesAccess: Bool?
    /// Any text.
    var autoRenewalStatus: String?
    /// Whether a payment is pending.
    var pendingPayment: Bool?
    /// `production` or `sandbox`.
    var environment: String?
    /// Any text, such as `play_store`.
    var store: String?
    /// Identifier of the latest transaction; derived by default.
    var storeIdentifier: String?
    /// Earlier transaction identifiers that the owner lookup shall find too.
    var pastIdentifiers: [String] = []
    /// `purchased` or `family_shared`.
    var ownership: String?
    /// First owner, where it differs from the present one.
    var originalCustomerID: String?
    /// Lookup keys of the entitlements attached.
    var entitlements: [String]?
    /// Offering shown at purchase, or null.
    var presentedOfferingID: Override<String> = .usual
    /// The product that follows, or null.
    var pendingProduct: Override<String> = .usual
    /// ISO alpha-2, or null.
    var country: Override<String> = .usual
    /// Where the customer manages it, or null.
    var managementURL: Override<String> = .usual
    /// Gross revenue in US dollars.
    var gross: Double?
    /// What happens when the simulated time reaches `ends`.
    var atEnd: EndBehaviour?
    /// Whether its store knows it; by default what the scenario says of all.
    var knownToStore: Bool?

    static let fields: [ScenarioField<Self>] = [
        .value("state", \.state), .optional("id", \.id), .optional("app", \.app), .override("product_id", \.productID),
        .optional("starts", \.starts), .override("ends", \.ends),
        .optional("current_period_starts_at", \.periodStartsAt), .override("ends_at", \.endsAt),
        .optional("status", \.status), .optional("gives_access", \.givesAccess),
        .optional("auto_renewal_status", \.autoRenewalStatus), .optional("pending_payment", \.pendingPayment),
        .optional("environment", \.environment), .optional("store", \.store),
        .optional("store_subscription_identifier", \.storeIdentifier), .value("past_identifiers", \.pastIdentifiers),
        .optional("ownership", \.ownership), .optional("original_customer_id", \.originalCustomerID),
        .optional("entitlements", \.entitlements), .override("presented_offering_id", \.presentedOfferingID),
        .override("pending_product", \.pendingProduct), .override("country", \.country),
        .override("management_url", \.managementURL), .optional("gross", \.gross), .optional("at_end", \.atEnd),
        .optional("known_to_store", \.knownToStore),
    ]

    static func bare(_ decoder: any Decoder) throws -> Self? {
        try LifeState.bare(decoder, where: { $0.subscription != nil }, kind: "subscription").map { Self(state: $0) }
    }

    func check() throws {
        guard state.subscription != nil else { throw FieldFault(message: "describes no subscription", at: "state") }
    }
}
