/// What a scenario says of the App Store.
struct AppStoreScenario: ScenarioObject {
    var bundleID = "com.example.app"
    /// The app's number, which production's answers carry.
    var appID: Int64 = 1_234_567_890
    /// Who may ask: the account and its key.
    var issuerID = "57246542-96fe-1a63-e053-0824d011072a"
    var keyID = "2X9R4HXF34"
    /// Whether the app is on sale; until then production takes no token.
    var isReleased = true
    /// Whether requests are limited as by the App Store, hour by hour.
    var hasRateLimits = false
    /// What the limits are multiplied by.
    var rateScale = 1.0
    var customers: [AppStoreCustomerScenario] = []
    /// What the App Store sent, or tried to send.
    var notifications: [AppStoreNotificationScenario] = []
    /// Where production and the sandbox send test notifications; `nil`: no address is set.
    var notificationURL: String?
    var sandboxNotificationURL: String?

    static let fields: [ScenarioField<Self>] = [
        .optional("notification_url", \.notificationURL),
        .optional("sandbox_notification_url", \.sandboxNotificationURL),
        .value("customers", \.customers), .value("bundle_id", \.bundleID), .value("app_id", \.appID),
        .value("issuer_id", \.issuerID), .value("key_id", \.keyID), .value("released", \.isReleased),
        .value("rate_limits", \.hasRateLimits), .value("rate_scale", \.rateScale),
        .value("notifications", \.notifications),
    ]

    func check() throws {
        guard rateScale > 0 else { throw FieldFault(message: "is not above 0", at: "rate_scale") }
        for (index, customer) in customers.enumerated() where customer.id.isEmpty {
            throw FieldFault(message: "[\(index)].id is missing; add it", at: "customers")
        }
    }
}

/// The App Store's two sets of data.
package enum AppStoreSide: String, ScenarioWord {
    case production = "Production"
    case sandbox = "Sandbox"
}

/// One Apple account, or the body of `PUT /control/app-store/customers/{id}`.
struct AppStoreCustomerScenario: ScenarioObject {
    /// The simulator's own name of the account; may stay empty where the path names it.
    var id = ""
    var environment = AppStoreSide.production
    /// For how long, from now on, the account's transactions are not found.
    var visibleAfter: Span?
    /// The account's id for this app, derived from its name by default; `none`: its devices are too old to have one.
    var appTransactionID: String?
    /// What is wrong with the account's app transaction.
    var appTransactionFlaw: AppStoreTransactionScenario.Flaw?
    /// In the order in which they were last changed.
    var transactions: [AppStoreTransactionScenario] = []

    static let fields: [ScenarioField<Self>] = [
        .value("id", \.id), .value("environment", \.environment), .value("transactions", \.transactions),
        .optional("visible_after", \.visibleAfter), .optional("app_transaction", \.appTransactionID),
        .optional("app_transaction_flaw", \.appTransactionFlaw),
    ]
}

/// A notification that was sent, or that could not be delivered.
struct AppStoreNotificationScenario: ScenarioObject {
    var uuid = ""
    var type = "TEST"
    var subtype: String?
    /// The transaction it is about.
    var transaction: String?
    var environment = AppStoreSide.production
    var at = Moment.offset(milliseconds: 0)
    /// Whether it reached its receiver.
    var isDelivered = true

    static let fields: [ScenarioField<Self>] = [
        .required("uuid", \.uuid), .value("type", \.type), .optional("subtype", \.subtype),
        .optional("transaction", \.transaction), .value("environment", \.environment), .value("at", \.at),
        .value("delivered", \.isDelivered),
    ]
}
