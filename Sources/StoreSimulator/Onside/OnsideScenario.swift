/// What a scenario says of Onside.
package struct OnsideScenario: Sendable, Codable {
    /// The merchant whose tokens are let in.
    package var merchantID: String
    /// What tokens are signed with.
    package var secret: String
    package var keyID: String
    package var bundleID: String
    package var signing: OnsideSigning
    package var orders: [OnsideOrderScenario]

    /// Makes an empty store.
    package init() {
        merchantID = "merchant-demo"
        secret = "onside-demo-secret"
        keyID = "key-demo"
        bundleID = "com.example.app"
        signing = OnsideSigning()
        orders = []
    }

    package enum CodingKeys: String, CodingKey, CaseIterable {
        case secret, orders, fetched
        case merchantID = "merchant_id"
        case keyID = "key_id"
        case bundleID = "bundle_id"
        case signWith = "sign_with"
    }

    package init(from decoder: any Decoder) throws {
        let fields = try StrictFields<CodingKeys>(decoder)
        self.init()
        if let text: String = try fields.optional(.merchantID) { merchantID = text }
        if let text: String = try fields.optional(.secret) { secret = text }
        if let text: String = try fields.optional(.keyID) { keyID = text }
        if let text: String = try fields.optional(.bundleID) { bundleID = text }
        signing = OnsideSigning(
            with: try fields.optional(.signWith) ?? .rs256,
            fetched: try fields.optional(.fetched)
        )
        orders = try fields.optional(.orders) ?? []
    }

    package func encode(to encoder: any Encoder) throws {
        var container = encoder.container(keyedBy: CodingKeys.self)
        try container.encode(merchantID, forKey: .merchantID)
        try container.encode(secret, forKey: .secret)
        try container.encode(keyID, forKey: .keyID)
        try container.encode(bundleID, forKey: .bundleID)
        try container.encode(signing.with, forKey: .signWith)
        try container.encodeIfPresent(signing.fetched, forKey: .fetched)
        try container.encode(orders, forKey: .orders)
    }
}

/// How answers are signed, and when they claim to have been made; also the body of `PUT /control/onside/signing`.
package struct OnsideSigning: Sendable, Codable, Hashable {
    package enum Way: String, Sendable, CaseIterable, ScenarioWord {
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

    package var with: Way
    /// When answers say they were made; the moment of the request by default.
    package var fetched: Moment?

    /// Makes the usual way.
    package init(with: Way = .rs256, fetched: Moment? = nil) {
        self.with = with
        self.fetched = fetched
    }

    package enum CodingKeys: String, CodingKey, CaseIterable {
        case with = "sign_with"
        case fetched
    }

    package init(from decoder: any Decoder) throws {
        let fields = try StrictFields<CodingKeys>(decoder)
        self.init(with: try fields.optional(.with) ?? .rs256, fetched: try fields.optional(.fetched))
    }
}

/// One order of a scenario, or the body of `PUT /control/onside/orders/{id}`.
///
/// Orders with one `original` are one line: a request for one returns all.
package struct OnsideOrderScenario: Sendable, Codable, Hashable {
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

    /// Makes an order of now.
    package init(order: String = "", original: String? = nil) {
        self.order = order
        self.original = original
    }

    package enum CodingKeys: String, CodingKey, CaseIterable {
        case order, original, product, account, holder, bought, purchased, expires, revoked, type, subscription, reason,
            bundle
        case revocationReason = "revocation_reason"
        case visibleAfterRequests = "visible_after_requests"
        case isForeign = "foreign"
    }

    package init(from decoder: any Decoder) throws {
        let fields = try StrictFields<CodingKeys>(decoder)
        order = try fields.optional(.order) ?? ""
        original = try fields.optional(.original)
        product = try fields.optional(.product) ?? "premium_monthly"
        account = try fields.optional(.account)
        holder = try fields.optional(.holder)
        bought = try fields.optional(.bought)
        purchased = try fields.optional(.purchased)
        expires = try fields.optional(.expires)
        revoked = try fields.optional(.revoked)
        type = try fields.optional(.type)
        subscription = try fields.optional(.subscription)
        reason = try fields.optional(.reason)
        revocationReason = try fields.optional(.revocationReason)
        visibleAfterRequests = try fields.integer(.visibleAfterRequests, in: 0...1_000_000) ?? 0
        isForeign = try fields.optional(.isForeign) ?? false
        bundle = try fields.optional(.bundle)
    }
}
