import Entitlements
import FoundationEssentials
import TextFormats

/// A purchase token that may stand as one segment of a path.
struct PurchaseToken: Hashable, Sendable {
    let text: String

    /// - Parameter text: 1 to 1,000 letters, digits, dots, hyphens and underscores.
    ///
    ///   `nil` for others, which no purchase has, and for `.` and `..`, which are steps through a path.
    init?(_ text: String) {
        guard (1...1_000).contains(text.utf8.count), text != ".", text != "..",
            text.utf8.allSatisfy({ $0.isLetterOrDigit || "._-".utf8.contains($0) })
        else { return nil }
        self.text = text
    }
}

/// What we ask Google Play for.
enum GooglePlayEndpoint: Hashable, Sendable {
    case subscription(PurchaseToken)
    case product(PurchaseToken)
    case acknowledgeSubscription(PathSegment, PurchaseToken, GooglePlayAccount)
    case acknowledgeProduct(PathSegment, PurchaseToken)
    case order(PathSegment)
    /// The query, ready for a URL.
    case voided(String)

    /// The route templates, for labels; `index` points into them, and the token endpoint is the last.
    static let templates = [
        "/applications/{package}/purchases/subscriptionsv2/tokens/{token}",
        "/applications/{package}/purchases/productsv2/tokens/{token}",
        "/applications/{package}/purchases/subscriptions/{product}/tokens/{token}:acknowledge",
        "/applications/{package}/purchases/products/{product}/tokens/{token}:acknowledge",
        "/applications/{package}/orders/{order}",
        "/applications/{package}/purchases/voidedpurchases",
        "/token",
    ]

    /// The index of the token endpoint.
    static let tokenIndex = 6

    var index: Int { place.index }
    var budget: GooglePlayBudget { place.budget }

    private var place: (index: Int, budget: GooglePlayBudget) {
        switch self {
        case .subscription: (0, .subscriptions)
        case .product: (1, .oneTime)
        case .acknowledgeSubscription: (2, .subscriptions)
        case .acknowledgeProduct: (3, .oneTime)
        case .order: (4, .orders)
        case .voided: (5, .voided)
        }
    }

    /// The JSON of what changes something, which is sent as POST.
    var body: [UInt8]? {
        switch self {
        case .acknowledgeSubscription(_, _, let account): account.body
        case .acknowledgeProduct: Array("{}".utf8)
        default: nil
        }
    }

    /// The path and query below `/applications/{package}`.
    var target: String {
        switch self {
        case .subscription(let token): "/purchases/subscriptionsv2/tokens/\(token.text)"
        case .product(let token): "/purchases/productsv2/tokens/\(token.text)"
        case .acknowledgeSubscription(let product, let token, _):
            "/purchases/subscriptions/\(product.encoded)/tokens/\(token.text):acknowledge"
        case .acknowledgeProduct(let product, let token):
            "/purchases/products/\(product.encoded)/tokens/\(token.text):acknowledge"
        case .order(let id): "/orders/\(id.encoded)"
        case .voided(let query): "/purchases/voidedpurchases?\(query)"
        }
    }
}

/// Requests to Google Play that share a limit.
///
/// - SeeAlso: https://developers.google.com/android-publisher/quotas
package enum GooglePlayBudget: String, Sendable, CaseIterable {
    /// Reads and acknowledgements of subscriptions.
    case subscriptions
    /// Reads and acknowledgements of one-time purchases.
    case oneTime = "one_time"
    case orders
    /// The list of voided purchases.
    case voided
    /// The endpoint that gives out access tokens.
    case token

    /// Requests a minute that we allow ourselves; 0: as many as needed.
    ///
    /// Google allows 3,000 in each of the first three, and 30 voided lists in any 30 seconds; renewals come in bunches,
    /// and what we leave unused is theirs.
    package var perMinute: Int {
        switch self {
        case .subscriptions, .oneTime, .orders: 2_400
        case .voided: 50
        case .token: 0
        }
    }
}

/// The ids that an acknowledgement has Google keep.
struct GooglePlayAccount: Hashable, Sendable {
    var account: String?
    var profile: String?

    /// Google's limit; a longer id would have the whole call refused.
    private static let most = 64

    init(account: String? = nil, profile: String? = nil) {
        self.account = account.flatMap(Self.usable)
        self.profile = profile.flatMap(Self.usable)
    }

    private static func usable(_ id: String) -> String? { id.isEmpty || id.utf8.count > most ? nil : id }

    private struct Body: Encodable {
        struct IDs: Encodable { var obfuscatedAccountId, obfuscatedProfileId: String? }
        var externalAccountIds: IDs?
    }

    fileprivate var body: [UInt8] {
        let ids = Body.IDs(obfuscatedAccountId: account, obfuscatedProfileId: profile)
        let body = Body(externalAccountIds: account == nil && profile == nil ? nil : ids)
        return (try? JSONEncoder().encode(body)).map(Array.init) ?? Array("{}".utf8)
    }
}
