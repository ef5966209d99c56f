/// What a scenario says of Onside.
struct OnsideScenario: ScenarioObject {
    /// The merchant whose tokens are let in.
    var merchantID = "merchant-demo"
    /// What tokens are signed with.
    var secret = "onside-demo-secret"
    var keyID = "key-demo"
    var bundleID = "com.example.app"
    var signing = OnsideSigning()
    var orders: [OnsideOrderScenario] = []

    static let fields: [ScenarioField<Self>] = [
        .value("merchant_id", \.merchantID), .value("secret", \.secret), .value("key_id", \.keyID),
        .value("bundle_id", \.bundleID), .value("sign_with", \.signing.with), .optional("fetched", \.signing.fetched),
        .value("orders", \.orders),
    ]
}

/// How answers are signed, and when they claim to have been made; also the body of `PUT /control/onside/signing`.
package struct OnsideSigning: ScenarioObject {
    package enum Way: String, ScenarioWord {
        /// As Onside does.
        case rs256
        /// With a code whose secret is the public key, which everybody knows.
        case hs256PublicKey = "hs256_public_key"
        /// Not at all.
        case none
        /// With a key that is not the one it names.
        case otherKey = "other_key"
        /// With a key that is in no set.
        case unknownKid = "unknown_kid"
    }

    var with = Way.rs256
    /// When answers say they were made; the moment of the request by default.
    var fetched: Moment?

    package init() {}

    package init(with: Way = .rs256, fetched: Moment? = nil) {
        self.with = with
        self.fetched = fetched
    }

    package static let fields: [ScenarioField<Self>] = [.value("sign_with", \.with), .optional("fetched", \.fetched)]
}

/// One order of a scenario, or the body of `PUT /control/onside/orders/{id}`.
///
/// Orders with one `original` are one line: a request for one returns all.
package struct OnsideOrderScenario: ScenarioObject {
    /// A UUID; may stay empty where the control path names it.
    package var order = ""
    /// The line's first order; this one by default.
    package var original: String?
    package var product = "premium_monthly"
    /// The account token; null without it.
    package var account: String?
    /// Whose device shows it in a history; by default the account token's, and none where it is another merchant's.
    package var holder: String?
    /// When the line began; `purchased` by default.
    package var bought: Moment?
    package var purchased: Moment?
    package var expires: Moment?
    package var revoked: Moment?
    /// The product's type, any text; `SUBSCRIPTION` where it expires, else `NON_CONSUMABLE`.
    package var type: String?
    /// The subscription's group.
    package var subscription: String?
    /// Why the transaction was made, any text; `PURCHASE` or `RENEWAL` by default.
    package var reason: String?
    /// Why it was revoked, any text.
    package var revocationReason: String?
    /// How many requests for this order are answered 404 first.
    package var visibleAfterRequests = 0
    /// Another merchant's: 403.
    package var isForeign = false
    /// The app; the scenario's by default.
    package var bundle: String?

    /// The account whose history holds it.
    var shownBy: String? { holder ?? (isForeign ? nil : account) }

    package init() {}

    package init(order: String = "", original: String? = nil) {
        self.order = order
        self.original = original
    }

    package static let fields: [ScenarioField<Self>] = [
        .value("order", \.order), .optional("original", \.original), .value("product", \.product),
        .optional("account", \.account), .optional("holder", \.holder), .optional("bought", \.bought),
        .optional("purchased", \.purchased), .optional("expires", \.expires), .optional("revoked", \.revoked),
        .optional("type", \.type), .optional("subscription", \.subscription), .optional("reason", \.reason),
        .optional("revocation_reason", \.revocationReason),
        .value("visible_after_requests", \.visibleAfterRequests, in: 0...1_000_000), .value("foreign", \.isForeign),
        .optional("bundle", \.bundle),
    ]
}
