/// The endpoints of RevenueCat's REST API v2 that are simulated; the raw value names one in fault rules.
package enum RevenueCatEndpoint: String, Sendable, CaseIterable, ScenarioWord {
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

    /// Method and path template, as `GET /control/requests` counts them.
    var template: String {
        let base = "/v2/projects/{project}"
        return switch self {
        case .customer: "GET \(base)/customers/{customer}"
        case .subscriptions: "GET \(base)/customers/{customer}/subscriptions"
        case .purchases: "GET \(base)/customers/{customer}/purchases"
        case .aliases: "GET \(base)/customers/{customer}/aliases"
        case .activeEntitlements: "GET \(base)/customers/{customer}/active_entitlements"
        case .findSubscriptions: "GET \(base)/subscriptions"
        case .findPurchases: "GET \(base)/purchases"
        case .subscription: "GET \(base)/subscriptions/{subscription}"
        case .subscriptionEntitlements: "GET \(base)/subscriptions/{subscription}/entitlements"
        case .subscriptionTransactions: "GET \(base)/subscriptions/{subscription}/transactions"
        case .purchase: "GET \(base)/purchases/{purchase}"
        case .purchaseEntitlements: "GET \(base)/purchases/{purchase}/entitlements"
        case .entitlements: "GET \(base)/entitlements"
        case .customers: "GET \(base)/customers"
        case .createCustomer: "POST \(base)/customers"
        case .deleteCustomer: "DELETE \(base)/customers/{customer}"
        case .transfer: "POST \(base)/customers/{customer}/actions/transfer"
        case .grantEntitlement: "POST \(base)/customers/{customer}/actions/grant_entitlement"
        case .revokeGrantedEntitlement: "POST \(base)/customers/{customer}/actions/revoke_granted_entitlement"
        }
    }

    /// Whether the endpoint changes something, which a read-only key may not.
    var writes: Bool {
        switch self {
        case .createCustomer, .deleteCustomer, .transfer, .grantEntitlement, .revokeGrantedEntitlement: true
        default: false
        }
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
    var customer: String? {
        switch endpoint {
        case .customer, .subscriptions, .purchases, .aliases, .activeEntitlements, .deleteCustomer, .transfer,
            .grantEntitlement, .revokeGrantedEntitlement:
            subject
        default: nil
        }
    }

    /// What the path of a `/v2/` request means.
    enum Reading: Sendable {
        case route(RevenueCatRoute)
        /// The path exists, but not for this method.
        case wrongMethod
        case unknown
    }

    /// Understands a method and a request target such as `/v2/projects/proj1/customers/a%2Fb/subscriptions?limit=5`.
    static func read(method: String, target: String) -> Reading {
        let bytes = Array(target.utf8)
        let end = bytes.firstIndex(of: UInt8(ascii: "?")) ?? bytes.count
        var segments: [String] = []
        segments.reserveCapacity(8)
        var start = 0
        while start < end {
            let next = bytes[start..<end].firstIndex(of: UInt8(ascii: "/")) ?? end
            if next > start { segments.append(String(decoding: bytes[start..<next], as: UTF8.self)) }
            start = next + 1
        }
        guard segments.count >= 4, segments.count <= 7, segments[0] == "v2", segments[1] == "projects",
            let project = PercentCoding.decode(segments[2][...])
        else {
            return .unknown
        }
        var subject = ""
        if segments.count > 4 {
            guard let decoded = PercentCoding.decode(segments[4][...]) else { return .unknown }
            subject = decoded
        }
        let choices = endpoints(kind: segments[3], hasSubject: segments.count > 4, rest: segments.dropFirst(5))
        guard !choices.isEmpty else { return .unknown }
        guard let endpoint = choices.first(where: { $0.method == method })?.endpoint else { return .wrongMethod }
        let query = end < bytes.count ? String(decoding: bytes[(end + 1)...], as: UTF8.self) : ""
        return .route(RevenueCatRoute(endpoint: endpoint, project: project, subject: subject, query: query[...]))
    }

    private static func endpoints(
        kind: String,
        hasSubject: Bool,
        rest: ArraySlice<String>
    ) -> [(method: String, endpoint: RevenueCatEndpoint)] {
        switch (kind, hasSubject, rest.first, rest.dropFirst().first, rest.count) {
        case ("customers", true, "subscriptions", nil, _): [("GET", .subscriptions)]
        case ("customers", true, "purchases", nil, _): [("GET", .purchases)]
        case ("customers", true, nil, nil, _): [("GET", .customer), ("DELETE", .deleteCustomer)]
        case ("customers", true, "aliases", nil, _): [("GET", .aliases)]
        case ("customers", true, "active_entitlements", nil, _): [("GET", .activeEntitlements)]
        case ("customers", true, "actions", "transfer", 2): [("POST", .transfer)]
        case ("customers", true, "actions", "grant_entitlement", 2): [("POST", .grantEntitlement)]
        case ("customers", true, "actions", "revoke_granted_entitlement", 2): [("POST", .revokeGrantedEntitlement)]
        case ("customers", false, _, _, _): [("GET", .customers), ("POST", .createCustomer)]
        case ("subscriptions", false, _, _, _): [("GET", .findSubscriptions)]
        case ("subscriptions", true, nil, nil, _): [("GET", .subscription)]
        case ("subscriptions", true, "entitlements", nil, _): [("GET", .subscriptionEntitlements)]
        case ("subscriptions", true, "transactions", nil, _): [("GET", .subscriptionTransactions)]
        case ("purchases", false, _, _, _): [("GET", .findPurchases)]
        case ("purchases", true, nil, nil, _): [("GET", .purchase)]
        case ("purchases", true, "entitlements", nil, _): [("GET", .purchaseEntitlements)]
        case ("entitlements", false, _, _, _): [("GET", .entitlements)]
        default: []
        }
    }
}
