/// The endpoints of RevenueCat's REST API v2 that are simulated; the raw value names one in fault rules.
enum RevenueCatEndpoint: String, Sendable, CaseIterable {
    case subscriptions
    case purchases
    case customer
    case aliases
    case activeEntitlements = "active_entitlements"
    case findSubscriptions = "find_subscriptions"
    case findPurchases = "find_purchases"
    case subscription
    case subscriptionEntitlements = "subscription_entitlements"
    case subscriptionTransactions = "subscription_transactions"
    case purchase
    case purchaseEntitlements = "purchase_entitlements"
    case entitlements
    case customers
    case createCustomer = "create_customer"
    case deleteCustomer = "delete_customer"
    case transfer
    case grantEntitlement = "grant_entitlement"
    case revokeGrantedEntitlement = "revoke_granted_entitlement"

    /// Method, and path template below the project.
    private var form: (method: String, path: String) {
        switch self {
        case .customer: ("GET", "customers/{customer}")
        case .subscriptions: ("GET", "customers/{customer}/subscriptions")
        case .purchases: ("GET", "customers/{customer}/purchases")
        case .aliases: ("GET", "customers/{customer}/aliases")
        case .activeEntitlements: ("GET", "customers/{customer}/active_entitlements")
        case .findSubscriptions: ("GET", "subscriptions")
        case .findPurchases: ("GET", "purchases")
        case .subscription: ("GET", "subscriptions/{subscription}")
        case .subscriptionEntitlements: ("GET", "subscriptions/{subscription}/entitlements")
        case .subscriptionTransactions: ("GET", "subscriptions/{subscription}/transactions")
        case .purchase: ("GET", "purchases/{purchase}")
        case .purchaseEntitlements: ("GET", "purchases/{purchase}/entitlements")
        case .entitlements: ("GET", "entitlements")
        case .customers: ("GET", "customers")
        case .createCustomer: ("POST", "customers")
        case .deleteCustomer: ("DELETE", "customers/{customer}")
        case .transfer: ("POST", "customers/{customer}/actions/transfer")
        case .grantEntitlement: ("POST", "customers/{customer}/actions/grant_entitlement")
        case .revokeGrantedEntitlement: ("POST", "customers/{customer}/actions/revoke_granted_entitlement")
        }
    }

    /// Method and path template, as `GET /control/requests` counts them.
    var template: String { "\(form.method) /v2/projects/{project}/\(form.path)" }

    /// Whether the endpoint changes something, which a read-only key may not.
    var writes: Bool { form.method != "GET" }

    /// Whether the path names a customer.
    var namesCustomer: Bool { form.path.hasPrefix("customers/") }

    /// Every endpoint's form, cut once.
    fileprivate static let forms = allCases.map { endpoint in
        (endpoint, method: endpoint.form.method, path: endpoint.form.path.split(separator: "/").map(String.init))
    }
}

/// A request's path and query, understood.
struct RevenueCatRoute: Sendable {
    var endpoint: RevenueCatEndpoint
    var project: String
    /// Decoded id of the customer, subscription or purchase in the path; empty where the path has none.
    var subject: String
    /// The query, still encoded.
    var query: Substring

    /// The customer in the path, if it has one.
    var customer: String? { endpoint.namesCustomer ? subject : nil }

    /// What the path of a `/v2/` request means.
    enum Reading: Sendable {
        case route(RevenueCatRoute)
        /// The path exists, but not for this method.
        case wrongMethod
        case unknown
    }

    /// Understands a method and a request target such as `/v2/projects/proj1/customers/a%2Fb/subscriptions?limit=5`.
    static func read(_ request: StoreRequest) -> Reading {
        // By bytes, which is much faster than by characters.
        let segments = request.path.utf8.split(separator: UInt8(ascii: "/")).map { String(Substring($0)) }
        guard segments.count >= 4, segments.count <= 7, segments[0] == "v2", segments[1] == "projects",
            let project = PercentCoding.decode(segments[2][...]),
            let subject = segments.count > 4 ? PercentCoding.decode(segments[4][...]) : ""
        else { return .unknown }
        let choices = RevenueCatEndpoint.forms.filter { form in
            form.path.count == segments.count - 3
                && zip(form.path, segments[3...]).allSatisfy { $0 == $1 || $0.hasPrefix("{") }
        }
        guard !choices.isEmpty else { return .unknown }
        guard let endpoint = choices.first(where: { $0.method == request.method })?.0 else { return .wrongMethod }
        return .route(
            RevenueCatRoute(endpoint: endpoint, project: project, subject: subject, query: request.query)
        )
    }
}
