/// Everything a simulator knows when it starts: the project, its customers, its limits and its faults.
package struct Scenario: Sendable, Codable {
    /// The RevenueCat project; requests for another are refused with 403.
    package var project: String
    /// Keys that are let in; empty: any key that starts with `sk_` or `atk_`.
    package var apiKeys: [APIKey]
    /// Requests a minute and key in RevenueCat's domain Customer Information; 0: no limit, and no limit headers.
    package var rateLimitPerMinute: Int
    /// The same for the domain Project Configuration (the entitlement catalogue).
    package var projectRateLimitPerMinute: Int
    /// The unit of `Retry-After`; RevenueCat's was milliseconds until August 2024.
    package var retryAfterUnit: RetryAfterUnit
    /// How lists are paged.
    package var paging: Paging
    /// What a transfer from a customer without purchases answers; the store's own answer is not documented.
    package var emptyTransfer: EmptyTransfer
    /// Entitlements with fixed ids; others named by customers are added with derived ids.
    package var entitlements: [EntitlementScenario]
    /// Customers, one by one.
    package var customers: [CustomerScenario]
    /// Customers by the million.
    package var generate: [GeneratedCustomers]
    /// The answer for an unlisted id; absent: 404.
    package var defaultCustomer: CustomerScenario?
    /// Faults from the start.
    package var faults: [FaultRule]
    /// Whether the App Store and Google Play know what RevenueCat's customers bought there, beside what is listed below.
    package var storesKnowPurchases = false
    /// What the stores hold that are asked directly.
    package var appStore = AppStoreScenario()
    package var googlePlay = GooglePlayScenario()
    package var onside = OnsideScenario()
    /// Who says who users are, and in whose name events are pushed.
    package var firebase = FirebaseScenario()
    package var pubSub = PubSubScenario()

    /// A key that is let in.
    package struct APIKey: Sendable, Codable, Hashable {
        /// The secret itself, without `Bearer`.
        package var key: String
        /// Whether it may transfer, grant and create.
        package var canWrite: Bool
    }

    /// The unit of the `Retry-After` header.
    package enum RetryAfterUnit: String, Sendable, CaseIterable, ScenarioWord {
        case seconds, milliseconds
    }

    /// Answer to a transfer that has nothing to move.
    package enum EmptyTransfer: String, Sendable, CaseIterable, ScenarioWord {
        case ok, unprocessable
    }

    /// An entitlement of the project's catalogue.
    package struct EntitlementScenario: Sendable, Codable, Hashable {
        /// The human key that products are mapped by.
        package var lookupKey: String
        /// RevenueCat's id; derived by default.
        package var id: String?
        /// Shown name; the lookup key by default.
        package var displayName: String?

        package enum CodingKeys: String, CodingKey, CaseIterable {
            case id
            case lookupKey = "lookup_key"
            case displayName = "display_name"
        }

        package init(from decoder: any Decoder) throws {
            let fields = try StrictFields<CodingKeys>(decoder)
            lookupKey = try fields.required(.lookupKey)
            id = try fields.optional(.id)
            displayName = try fields.optional(.displayName)
        }
    }

    /// How lists are paged.
    package struct Paging: Sendable, Codable, Hashable {
        /// Spelling of `url` and `next_page`.
        package var link: Link = .absolute
        /// Host in front of absolute links.
        ///
        /// It is the true store's by default, so that a client that follows a link from a body instead of rebuilding
        /// it is found out.
        package var base: String = "https://api.revenuecat.com"
        /// What marks the last page.
        package var end: End = .null
        /// Page size without `limit`.
        package var defaultLimit: Int = 20
        /// Page size of the entitlement list inside a subscription or purchase.
        package var nestedLimit: Int = 20

        /// Spelling of a link.
        package enum Link: String, Sendable, CaseIterable, ScenarioWord {
            case absolute, relative
        }

        /// What marks the last page.
        package enum End: String, Sendable, CaseIterable, ScenarioWord {
            case null, absent
        }

        package enum CodingKeys: String, CodingKey, CaseIterable {
            case link, base, end
            case defaultLimit = "default_limit"
            case nestedLimit = "nested_limit"
        }

        /// Makes the usual paging: absolute links, `null` at the end, 20 a page.
        package init() {}

        package init(from decoder: any Decoder) throws {
            let fields = try StrictFields<CodingKeys>(decoder)
            link = try fields.optional(.link) ?? .absolute
            base = try fields.optional(.base) ?? "https://api.revenuecat.com"
            end = try fields.optional(.end) ?? .null
            defaultLimit = try fields.integer(.defaultLimit, in: 1...100) ?? 20
            nestedLimit = try fields.integer(.nestedLimit, in: 1...100) ?? 20
        }
    }

    /// Makes a scenario; without arguments, an empty project with RevenueCat's own limits.
    package init(
        project: String = "proj0a1b2c3d",
        rateLimitPerMinute: Int = 480,
        customers: [CustomerScenario] = [],
        generate: [GeneratedCustomers] = [],
        defaultCustomer: CustomerScenario? = nil,
        faults: [FaultRule] = []
    ) {
        self.project = project
        apiKeys = []
        self.rateLimitPerMinute = rateLimitPerMinute
        projectRateLimitPerMinute = rateLimitPerMinute == 0 ? 0 : 60
        retryAfterUnit = .seconds
        paging = Paging()
        emptyTransfer = .ok
        entitlements = []
        self.customers = customers
        self.generate = generate
        self.defaultCustomer = defaultCustomer
        self.faults = faults
    }

    package enum CodingKeys: String, CodingKey, CaseIterable {
        case project, paging, entitlements, customers, generate, faults, onside, firebase
        case pubSub = "pubsub"
        case appStore = "app_store"
        case googlePlay = "google_play"
        case apiKeys = "api_keys"
        case rateLimitPerMinute = "rate_limit_per_minute"
        case projectRateLimitPerMinute = "project_rate_limit_per_minute"
        case retryAfterUnit = "retry_after_unit"
        case emptyTransfer = "empty_transfer"
        case defaultCustomer = "default_customer"
        case storesKnowPurchases = "stores_know_purchases"
    }

    package init(from decoder: any Decoder) throws {
        let fields = try StrictFields<CodingKeys>(decoder)
        self.init(
            project: try fields.optional(.project) ?? "proj0a1b2c3d",
            rateLimitPerMinute: try fields.integer(.rateLimitPerMinute, in: 0...1_000_000_000) ?? 480,
            customers: try fields.optional(.customers) ?? [],
            generate: try fields.optional(.generate) ?? [],
            defaultCustomer: try fields.optional(.defaultCustomer),
            faults: try fields.optional(.faults) ?? []
        )
        if let limit = try fields.integer(.projectRateLimitPerMinute, in: 0...1_000_000_000) {
            projectRateLimitPerMinute = limit
        }
        apiKeys = try fields.optional(.apiKeys) ?? []
        retryAfterUnit = try fields.optional(.retryAfterUnit) ?? .seconds
        paging = try fields.optional(.paging) ?? Paging()
        emptyTransfer = try fields.optional(.emptyTransfer) ?? .ok
        entitlements = try fields.optional(.entitlements) ?? []
        storesKnowPurchases = try fields.optional(.storesKnowPurchases) ?? false
        appStore = try fields.optional(.appStore) ?? AppStoreScenario()
        googlePlay = try fields.optional(.googlePlay) ?? GooglePlayScenario()
        onside = try fields.optional(.onside) ?? OnsideScenario()
        firebase = try fields.optional(.firebase) ?? FirebaseScenario()
        pubSub = try fields.optional(.pubSub) ?? PubSubScenario()
    }
}

extension Scenario.APIKey {
    package enum CodingKeys: String, CodingKey, CaseIterable {
        case key
        case canWrite = "write"
    }

    package init(from decoder: any Decoder) throws {
        if let container = try? decoder.singleValueContainer(), let key = try? container.decode(String.self) {
            self.init(key: key, canWrite: true)
            return
        }
        let fields = try StrictFields<CodingKeys>(decoder)
        self.init(key: try fields.required(.key), canWrite: try fields.optional(.canWrite) ?? true)
    }
}
