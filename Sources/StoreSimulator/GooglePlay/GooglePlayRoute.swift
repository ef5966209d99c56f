/// A request's path and query, understood.
enum GooglePlayRoute: Hashable, Sendable {
    case oauth
    case subscription(package: String, token: String)
    case product(package: String, token: String)
    case acknowledge(package: String, product: String, token: String, isSubscription: Bool)
    case order(package: String, id: String)
    case voided(package: String, query: String)
    case unknown

    /// Understands a method and a request target; `nil` where the path is none of Google Play's.
    init?(_ request: StoreRequest) {
        let (method, path) = (request.method, request.path)
        if path == "/google-oauth/token" {
            self = method == "POST" ? .oauth : .unknown
            return
        }
        guard path.hasPrefix("/google-play/") || path.hasPrefix("/google-oauth/") else { return nil }
        let segments = path.split(separator: "/").map { PercentCoding.decode($0) ?? "" }
        self = .unknown
        guard segments.count >= 6, segments[0...3] == ["google-play", "androidpublisher", "v3", "applications"] else {
            return
        }
        let package = segments[4]
        switch (method, segments[5...].first ?? "", Array(segments[6...])) {
        case ("GET", "purchases", let rest) where rest.count == 3 && rest[1] == "tokens":
            if rest[0] == "subscriptionsv2" { self = .subscription(package: package, token: rest[2]) }
            if rest[0] == "productsv2" { self = .product(package: package, token: rest[2]) }
        case ("GET", "purchases", ["voidedpurchases"]):
            self = .voided(package: package, query: String(request.query))
        case ("POST", "purchases", let rest) where rest.count == 4 && rest[2] == "tokens":
            guard rest[3].hasSuffix(":acknowledge"), rest[0] == "subscriptions" || rest[0] == "products" else { return }
            self = .acknowledge(
                package: package,
                product: rest[1],
                token: String(rest[3].dropLast(":acknowledge".count)),
                isSubscription: rest[0] == "subscriptions"
            )
        case ("GET", "orders", let rest) where rest.count == 1: self = .order(package: package, id: rest[0])
        default: break
        }
    }

    var package: String? {
        switch self {
        case .oauth, .unknown: nil
        case .subscription(let package, _), .product(let package, _), .acknowledge(let package, _, _, _),
            .order(let package, _), .voided(let package, _):
            package
        }
    }

    /// The route as fault rules and counts know it.
    var storeRoute: StoreRoute {
        let base = "/google-play/androidpublisher/v3/applications/{package}"
        return switch self {
        case .oauth: StoreRoute(endpoint: "google_play.oauth", template: "POST /google-oauth/token")
        case .subscription(_, let token):
            StoreRoute(
                endpoint: "google_play.subscription",
                template: "GET \(base)/purchases/subscriptionsv2/tokens/{token}",
                subjects: [token]
            )
        case .product(_, let token):
            StoreRoute(
                endpoint: "google_play.product",
                template: "GET \(base)/purchases/productsv2/tokens/{token}",
                subjects: [token]
            )
        case .acknowledge(_, _, let token, let isSubscription):
            StoreRoute(
                endpoint: "google_play.acknowledge",
                template: "POST \(base)/purchases/\(isSubscription ? "subscriptions" : "products")/{product}"
                    + "/tokens/{token}:acknowledge",
                subjects: [token]
            )
        case .order(_, let id):
            StoreRoute(endpoint: "google_play.order", template: "GET \(base)/orders/{order}", subjects: [id])
        case .voided:
            StoreRoute(endpoint: "google_play.voided", template: "GET \(base)/purchases/voidedpurchases")
        case .unknown: StoreRoute(endpoint: "google_play.unknown", template: "/google-play/...")
        }
    }
}
