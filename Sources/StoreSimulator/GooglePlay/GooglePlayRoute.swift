/// A request's path and query, understood.
struct GooglePlayRoute: Sendable {
    /// What can be asked; the raw value names it in fault rules.
    enum Endpoint: String, CaseIterable {
        case oauth = "google_play.oauth"
        case subscription = "google_play.subscription"
        case product = "google_play.product"
        case acknowledge = "google_play.acknowledge"
        case order = "google_play.order"
        case voided = "google_play.voided"
    }

    /// `nil`: the path leads nowhere.
    var endpoint: Endpoint?
    /// The app, where the path names one.
    var package: String?
    /// The token or the order's number in the path.
    var subject = ""
    /// The product in the path.
    var product = ""
    /// Whether a subscription is acknowledged.
    var isSubscription = false
    /// Method and path template, as requests are counted.
    var template = "/google-play/..."

    /// Understands a method and a request target; `nil` where the path is none of Google Play's.
    init?(_ request: StoreRequest) {
        let path = request.path
        if path == "/google-oauth/token" {
            if request.method == "POST" { (endpoint, template) = (.oauth, "POST /google-oauth/token") }
            return
        }
        guard path.hasPrefix("/google-play/") || path.hasPrefix("/google-oauth/") else { return nil }
        let segments = path.split(separator: "/").map { PercentCoding.decode($0) ?? "" }
        guard segments.count >= 6, segments[0...3] == ["google-play", "androidpublisher", "v3", "applications"] else {
            return
        }
        let rest = Array(segments[5...])
        let tail: String
        switch (request.method, rest.count, rest[0]) {
        case ("GET", 4, "purchases") where rest[1] == "subscriptionsv2" && rest[2] == "tokens":
            (endpoint, subject, tail) = (.subscription, rest[3], "purchases/subscriptionsv2/tokens/{token}")
        case ("GET", 4, "purchases") where rest[1] == "productsv2" && rest[2] == "tokens":
            (endpoint, subject, tail) = (.product, rest[3], "purchases/productsv2/tokens/{token}")
        case ("GET", 2, "purchases") where rest[1] == "voidedpurchases":
            (endpoint, tail) = (.voided, "purchases/voidedpurchases")
        case ("POST", 5, "purchases")
        where ["subscriptions", "products"].contains(rest[1]) && rest[3] == "tokens"
            && rest[4].hasSuffix(":acknowledge"):
            (endpoint, subject) = (.acknowledge, String(rest[4].dropLast(":acknowledge".count)))
            (product, isSubscription) = (rest[2], rest[1] == "subscriptions")
            tail = "purchases/\(rest[1])/{product}/tokens/{token}:acknowledge"
        case ("GET", 2, "orders"): (endpoint, subject, tail) = (.order, rest[1], "orders/{order}")
        default: return
        }
        package = segments[4]
        template = "\(request.method) /google-play/androidpublisher/v3/applications/{package}/\(tail)"
    }

    /// The route as fault rules and counts know it.
    var storeRoute: StoreRoute {
        StoreRoute(
            endpoint: endpoint?.rawValue ?? "google_play.unknown",
            template: template,
            subjects: subject.isEmpty ? [] : [subject]
        )
    }
}
