import TextFormats

/// A text that may stand as one segment of a path, percent-encoded.
struct PathSegment: Hashable, Sendable {
    let encoded: String

    /// - Parameter text: 1 to 1,500 bytes, as RevenueCat's ids have. `nil` for others, and for `.` and `..`: servers
    ///   and proxies take those, encoded or not, for steps through the path.
    init?(_ text: String) {
        guard (1...1_500).contains(text.utf8.count), text != ".", text != ".." else { return nil }
        encoded = PercentCoding.encode(text)
    }
}

/// App user ids that RevenueCat refuses, because they are what broken code sends in place of an id: many people would
/// be one customer.
///
/// - SeeAlso: https://www.revenuecat.com/docs/customers/user-ids
package enum BlockedIDs {
    private static let all: Set<String> = [
        "no_user", "null", "none", "nil", "(null)", "NaN", "\\x00", "", "unidentified", "undefined", "unknown",
        "anonymous", "guest", "-1", "0", "[]", "{}", "[object Object]",
    ]

    /// Whether an id is blocked; ids differ by letter case, as everywhere at RevenueCat.
    package static func contains(_ id: String) -> Bool { all.contains(id) }
}

/// What we ask RevenueCat for: lists, all of them paged but the two searches; and what we have it do.
enum RevenueCatEndpoint: Hashable, Sendable {
    case customerSubscriptions(PathSegment)
    case customerPurchases(PathSegment)
    case customerAliases(PathSegment)
    case subscriptionEntitlements(PathSegment)
    case purchaseEntitlements(PathSegment)
    case findSubscriptions(storeID: String)
    case findPurchases(storeID: String)
    case createCustomer
    case transfer(from: PathSegment)

    /// The route templates, for labels; `index` points into them.
    static let templates = [
        "/projects/{project}/customers/{customer}/subscriptions",
        "/projects/{project}/customers/{customer}/purchases",
        "/projects/{project}/customers/{customer}/aliases",
        "/projects/{project}/subscriptions/{subscription}/entitlements",
        "/projects/{project}/purchases/{purchase}/entitlements",
        "/projects/{project}/subscriptions",
        "/projects/{project}/purchases",
        "/projects/{project}/customers",
        "/projects/{project}/customers/{customer}/actions/transfer",
    ]

    var index: Int {
        switch self {
        case .customerSubscriptions: 0
        case .customerPurchases: 1
        case .customerAliases: 2
        case .subscriptionEntitlements: 3
        case .purchaseEntitlements: 4
        case .findSubscriptions: 5
        case .findPurchases: 6
        case .createCustomer: 7
        case .transfer: 8
        }
    }

    /// The path and query below `/projects/{project}`, from behind the page's last item that `cursor` names.
    func target(after cursor: String?) -> String {
        let path =
            switch self {
            case .customerSubscriptions(let customer): "/customers/\(customer.encoded)/subscriptions"
            case .customerPurchases(let customer): "/customers/\(customer.encoded)/purchases"
            case .customerAliases(let customer): "/customers/\(customer.encoded)/aliases"
            case .subscriptionEntitlements(let subscription): "/subscriptions/\(subscription.encoded)/entitlements"
            case .purchaseEntitlements(let purchase): "/purchases/\(purchase.encoded)/entitlements"
            // No paging is documented for the searches, so they carry no `limit`.
            case .findSubscriptions(let id):
                "/subscriptions?store_subscription_identifier=\(PercentCoding.encode(id))"
            case .findPurchases(let id):
                "/purchases?store_purchase_identifier=\(PercentCoding.encode(id))"
            case .createCustomer: "/customers"
            case .transfer(let customer): "/customers/\(customer.encoded)/actions/transfer"
            }
        switch self {
        case .findSubscriptions, .findPurchases, .createCustomer, .transfer: return path
        default: break
        }
        // The largest page the API serves: fewer requests for customers with long histories.
        guard let cursor else { return path + "?limit=100" }
        return path + "?limit=100&starting_after=\(PercentCoding.encode(cursor))"
    }
}
