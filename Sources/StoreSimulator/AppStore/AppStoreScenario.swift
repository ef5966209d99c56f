/// What a scenario says of the App Store.
package struct AppStoreScenario: Sendable, Codable {
    package var bundleID: String
    /// The app's number, which production's answers carry.
    package var appID: Int64
    /// Who may ask: the account and its key.
    package var issuerID: String
    package var keyID: String
    /// Whether the app is on sale; until then production takes no token.
    package var isReleased: Bool
    /// Whether requests are limited as by the App Store, hour by hour.
    package var hasRateLimits: Bool
    /// What the limits are multiplied by.
    package var rateScale: Double
    package var customers: [AppStoreCustomerScenario]
    /// What the App Store sent, or tried to send.
    package var notifications: [AppStoreNotificationScenario]

    /// Makes a store without customers.
    package init(customers: [AppStoreCustomerScenario] = []) {
        bundleID = "com.example.app"
        appID = 1_234_567_890
        issuerID = "57246542-96fe-1a63-e053-0824d011072a"
        keyID = "2X9R4HXF34"
        isReleased = true
        hasRateLimits = false
        rateScale = 1
        self.customers = customers
        notifications = []
    }

    package enum CodingKeys: String, CodingKey, CaseIterable {
        case customers, notifications
        case bundleID = "bundle_id"
        case appID = "app_id"
        case issuerID = "issuer_id"
        case keyID = "key_id"
        case isReleased = "released"
        case hasRateLimits = "rate_limits"
        case rateScale = "rate_scale"
    }

    package init(from decoder: any Decoder) throws {
        let fields = try StrictFields<CodingKeys>(decoder)
        self.init(customers: try fields.optional(.customers) ?? [])
        bundleID = try fields.optional(.bundleID) ?? bundleID
        appID = try fields.optional(.appID) ?? appID
        issuerID = try fields.optional(.issuerID) ?? issuerID
        keyID = try fields.optional(.keyID) ?? keyID
        isReleased = try fields.optional(.isReleased) ?? true
        hasRateLimits = try fields.optional(.hasRateLimits) ?? false
        rateScale = try fields.optional(.rateScale) ?? 1
        notifications = try fields.optional(.notifications) ?? []
        guard rateScale > 0 else { throw fields.fault(.rateScale, "is not above 0") }
        for (index, customer) in customers.enumerated() where customer.id.isEmpty {
            throw fields.fault(.customers, "[\(index)].id is missing; add it")
        }
    }
}

/// The App Store's two sets of data.
package enum AppStoreSide: String, ScenarioWord {
    case production = "Production"
    case sandbox = "Sandbox"
}

/// One Apple account, or the body of `PUT /control/app-store/customers/{id}`.
package struct AppStoreCustomerScenario: Sendable, Codable {
    /// The simulator's own name of the account; may stay empty where the path names it.
    package var id: String
    package var environment: AppStoreSide
    /// For how long, from now on, the account's transactions are not found.
    package var visibleAfter: Span?
    /// The account's id for this app; derived from its name by default.
    package var appTransactionID: String?
    /// In the order in which they were last changed.
    package var transactions: [AppStoreTransactionScenario]

    /// Makes an account.
    package init(
        id: String = "",
        environment: AppStoreSide = .production,
        transactions: [AppStoreTransactionScenario] = []
    ) {
        self.id = id
        self.environment = environment
        self.transactions = transactions
    }

    package enum CodingKeys: String, CodingKey, CaseIterable {
        case id, environment, transactions
        case visibleAfter = "visible_after"
        case appTransactionID = "app_transaction"
    }

    package init(from decoder: any Decoder) throws {
        let fields = try StrictFields<CodingKeys>(decoder)
        self.init(
            id: try fields.optional(.id) ?? "",
            environment: try fields.optional(.environment) ?? .production,
            transactions: try fields.optional(.transactions) ?? []
        )
        visibleAfter = try fields.optional(.visibleAfter)
        appTransactionID = try fields.optional(.appTransactionID)
    }
}

/// A notification that was sent, or that could not be delivered.
package struct AppStoreNotificationScenario: Sendable, Codable {
    package var uuid: String
    package var type: String
    package var subtype: String?
    /// The transaction it is about.
    package var transaction: String?
    package var environment: AppStoreSide
    package var at: Moment
    /// Whether it reached its receiver.
    package var isDelivered: Bool

    /// Makes a notification of now.
    package init(
        uuid: String,
        type: String,
        subtype: String? = nil,
        transaction: String? = nil,
        environment: AppStoreSide = .production
    ) {
        self.uuid = uuid
        self.type = type
        self.subtype = subtype
        self.transaction = transaction
        self.environment = environment
        at = .offset(milliseconds: 0)
        isDelivered = true
    }

    package enum CodingKeys: String, CodingKey, CaseIterable {
        case uuid, type, subtype, transaction, environment, at
        case isDelivered = "delivered"
    }

    package init(from decoder: any Decoder) throws {
        let fields = try StrictFields<CodingKeys>(decoder)
        uuid = try fields.required(.uuid)
        type = try fields.optional(.type) ?? "TEST"
        subtype = try fields.optional(.subtype)
        transaction = try fields.optional(.transaction)
        environment = try fields.optional(.environment) ?? .production
        at = try fields.optional(.at) ?? .offset(milliseconds: 0)
        isDelivered = try fields.optional(.isDelivered) ?? true
    }
}
