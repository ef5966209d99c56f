import HTTPTypes
import TextFormats

/// An id that may stand in a path: ids of transactions are decimal digits.
struct AppStoreID: Hashable, Sendable {
    let text: String

    /// - Parameter text: 1 to 32 digits; `nil` for others, which no transaction has.
    init?(_ text: String) {
        guard (1...32).contains(text.utf8.count), text.utf8.allSatisfy(\.isDigit) else { return nil }
        self.text = text
    }
}

/// The number of an order, as it stands in a mail to the customer.
struct AppStoreOrderID: Hashable, Sendable {
    let text: String

    /// - Parameter text: 1 to 32 letters and digits; `nil` for others, which no order has.
    init?(_ text: String) {
        guard (1...32).contains(text.utf8.count), text.utf8.allSatisfy(\.isLetterOrDigit) else { return nil }
        self.text = text
    }
}

/// What we ask the App Store for.
///
/// - SeeAlso: https://developer.apple.com/documentation/appstoreserverapi
enum AppStoreEndpoint: Hashable, Sendable {
    /// The newest transaction of every subscription of the customer behind any id of theirs.
    case statuses(AppStoreID)
    case transaction(AppStoreID)
    /// Purchases of a customer other than renewing subscriptions, the longest unchanged first.
    case history(AppStoreID, revision: String?)
    case lookup(AppStoreOrderID)
    case refunds(AppStoreID, revision: String?)
    case token(AppStoreID)
    case notifications(page: String?)
    /// Asks for a test notification, or for what became of one.
    case test(token: String?)

    /// The route templates, for labels: one for each budget.
    static let templates = [
        "/inApps/v1/subscriptions/{anyTransactionId}",
        "/inApps/v1/transactions/{transactionId}",
        "/inApps/v2/history/{anyTransactionId}",
        "/inApps/v1/lookup/{orderId}",
        "/inApps/v2/refund/lookup/{anyTransactionId}",
        "/inApps/v1/transactions/{originalTransactionId}/appAccountToken",
        "/inApps/v1/notifications/history",
        "/inApps/v1/notifications/test",
    ]

    /// Points into the route templates.
    var index: Int { AppStoreBudget.allCases.firstIndex(of: budget) ?? 0 }

    var budget: AppStoreBudget {
        switch self {
        case .statuses: .statuses
        case .transaction: .transaction
        case .history: .history
        case .lookup: .lookup
        case .refunds: .refunds
        case .token: .token
        case .notifications: .notifications
        case .test: .test
        }
    }

    var method: HTTPRequest.Method {
        switch self {
        case .statuses, .transaction, .history, .lookup, .refunds: .get
        case .token: .put
        case .notifications, .test(nil): .post
        case .test: .get
        }
    }

    /// The path and query below the base URL, which need no further encoding.
    var target: String {
        switch self {
        case .statuses(let id): "/inApps/v1/subscriptions/\(id.text)"
        case .transaction(let id): "/inApps/v1/transactions/\(id.text)"
        // All pages have to be asked for with the same filters.
        case .history(let id, let revision):
            "/inApps/v2/history/\(id.text)?productType=NON_CONSUMABLE&productType=NON_RENEWABLE&sort=ASCENDING"
                + Self.parameter("&revision=", revision)
        case .lookup(let id): "/inApps/v1/lookup/\(id.text)"
        case .refunds(let id, let revision):
            "/inApps/v2/refund/lookup/\(id.text)" + Self.parameter("?revision=", revision)
        case .token(let id): "/inApps/v1/transactions/\(id.text)/appAccountToken"
        case .notifications(let page): "/inApps/v1/notifications/history" + Self.parameter("?paginationToken=", page)
        case .test(let token): "/inApps/v1/notifications/test" + Self.parameter("/", token)
        }
    }

    private static func parameter(_ name: String, _ value: String?) -> String {
        value.map { name + PercentCoding.encode($0) } ?? ""
    }
}
