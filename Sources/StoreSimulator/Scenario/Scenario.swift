/// Everything a simulator knows when it starts: the project, its customers, its limits and its faults.
package struct Scenario: ScenarioObject {
    /// The RevenueCat project; requests for another are refused with 403.
    var project = "proj0a1b2c3d"
    /// Keys that are let in; empty: any key that starts with `sk_` or `atk_`.
    var apiKeys: [APIKey] = []
    /// Requests a minute and key in RevenueCat's domain Customer Information; 0: no limit, and no limit headers.
    var rateLimitPerMinute = 480
    /// The same for the domain Project Configuration (the entitlement catalogue), where it is given.
    private var projectLimit: Int?
    /// The unit of `Retry-After`; RevenueCat's was milliseconds until August 2024.
    var retryAfterUnit = RetryAfterUnit.seconds
    /// How lists are paged.
    var paging = Paging()
    /// What a transfer from a customer without purchases answers; the store's own answer is not documented.
    var emptyTransfer = EmptyTransfer.ok
    /// Entitlements with fixed ids; others named by customers are added with derived ids.
    var entitlements: [EntitlementScenario] = []
    /// Customers, one by one.
    var customers: [CustomerScenario] = []
    /// Customers by the million.
    var generate: [GeneratedCustomers] = []
    /// The answer for an unlisted id; absent: 404.
    var defaultCustomer: CustomerScenario?
    /// Faults from the start.
    var faults: [FaultRule] = []
    /// Whether the App Store and Google Play know what RevenueCat's customers bought there, beside what is listed below.
    var storesKnowPurchases = false
    /// What the stores hold that are asked directly.
    var appStore = AppStoreScenario()
    var googlePlay = GooglePlayScenario()
    var onside = OnsideScenario()
    /// Who says who users are, and in whose name events are pushed.
    var firebase = FirebaseScenario()
    var pubSub = PubSubScenario()

    /// The limit of the domain Project Configuration.
    var projectRateLimitPerMinute: Int { projectLimit ?? (rateLimitPerMinute == 0 ? 0 : 60) }

    /// Makes an empty project with RevenueCat's own limits.
    package init() {}

    package static let fields: [ScenarioField<Self>] = [
        .value("project", \.project), .value("rate_limit_per_minute", \.rateLimitPerMinute, in: 0...1_000_000_000),
        .value("customers", \.customers), .value("generate", \.generate),
        .optional("default_customer", \.defaultCustomer), .value("faults", \.faults),
        .optional("project_rate_limit_per_minute", \.projectLimit, in: 0...1_000_000_000),
        .value("api_keys", \.apiKeys), .value("retry_after_unit", \.retryAfterUnit), .value("paging", \.paging),
        .value("empty_transfer", \.emptyTransfer), .value("entitlements", \.entitlements),
        .value("stores_know_purchases", \.storesKnowPurchases), .value("app_store", \.appStore),
        .value("google_play", \.googlePlay), .value("onside", \.onside), .value("firebase", \.firebase),
        .value("pubsub", \.pubSub),
    ]

    /// A key that is let in.
    struct APIKey: ScenarioObject, Hashable {
        /// The secret itself, without `Bearer`.
        var key = ""
        /// Whether it may transfer, grant and create.
        var canWrite = true

        static let fields: [ScenarioField<Self>] = [.required("key", \.key), .value("write", \.canWrite)]

        static func bare(_ decoder: any Decoder) throws -> Self? {
            (try? decoder.singleValueContainer().decode(String.self)).map { Self(key: $0) }
        }
    }

    /// The unit of the `Retry-After` header.
    enum RetryAfterUnit: String, ScenarioWord {
        case seconds, milliseconds
    }

    /// Answer to a transfer that has nothing to move.
    enum EmptyTransfer: String, ScenarioWord {
        case ok, unprocessable
    }

    /// An entitlement of the project's catalogue.
    struct EntitlementScenario: ScenarioObject {
        /// The human key that products are mapped by.
        var lookupKey = ""
        /// RevenueCat's id; derived by default.
        var id: String?
        /// Shown name; the lookup key by default.
        var displayName: String?

        static let fields: [ScenarioField<Self>] = [
            .required("lookup_key", \.lookupKey), .optional("id", \.id), .optional("display_name", \.displayName),
        ]
    }

    /// How lists are paged.
    struct Paging: ScenarioObject, Hashable {
        /// Spelling of `url` and `next_page`.
        var link = Link.absolute
        /// Host in front of absolute links.
        ///
        /// It is the true store's by default, so that a client that follows a link from a body instead of rebuilding
        /// it is found out.
        var base = "https://api.revenuecat.com"
        /// What marks the last page.
        var end = End.null
        /// Page size without `limit`.
        var defaultLimit = 20
        /// Page size of the entitlement list inside a subscription or purchase.
        var nestedLimit = 20

        /// Spelling of a link.
        enum Link: String, ScenarioWord {
            case absolute, relative
        }

        /// What marks the last page.
        enum End: String, ScenarioWord {
            case null, absent
        }

        static let fields: [ScenarioField<Self>] = [
            .value("link", \.link), .value("base", \.base), .value("end", \.end),
            .value("default_limit", \.defaultLimit, in: 1...100), .value("nested_limit", \.nestedLimit, in: 1...100),
        ]
    }
}
