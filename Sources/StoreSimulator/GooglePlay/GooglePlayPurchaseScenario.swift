/// One purchase of a scenario: a token, and what Google Play tells of it.
package struct GooglePlayPurchaseScenario: Sendable, Codable, Hashable {
    /// What a purchase has come to.
    package enum State: String, Sendable, CaseIterable, ScenarioWord {
        case active, grace, paused, canceled, expired, pending, unknown, gone, deferred
        case onHold = "on_hold"
        /// Cancelled, over, and not said to be expired.
        case canceledPast = "canceled_past"
        case pendingCanceled = "pending_canceled"
        /// Active for a while after its period is over.
        case silentGrace = "silent_grace"
    }

    package enum Kind: String, Sendable, CaseIterable, ScenarioWord {
        case subscription
        case oneTime = "one_time"
    }

    /// Another product of the same subscription.
    package struct AddOn: Sendable, Codable, Hashable {
        package var product: String
        package var plan: String
        package var expires: Moment?

        package enum CodingKeys: String, CodingKey, CaseIterable { case product, plan, expires }

        package init(from decoder: any Decoder) throws {
            let fields = try StrictFields<CodingKeys>(decoder)
            product = try fields.required(.product)
            plan = try fields.optional(.plan) ?? "monthly"
            expires = try fields.optional(.expires)
        }
    }

    /// What a purchase made in Play tells of the expired one before it, until it is acknowledged.
    package struct OutOfApp: Sendable, Codable, Hashable {
        package var expiredToken: String?
        package var account: String?

        package enum CodingKeys: String, CodingKey, CaseIterable {
            case account
            case expiredToken = "expired_token"
        }

        package init(from decoder: any Decoder) throws {
            let fields = try StrictFields<CodingKeys>(decoder)
            expiredToken = try fields.optional(.expiredToken)
            account = try fields.optional(.account)
        }
    }

    package var token: String
    package var product = "pro"
    package var plan = "monthly"
    /// Absent: `active`, or replaced where another purchase is linked to it.
    package var state: State?
    package var kind = Kind.subscription
    /// The token that it replaced.
    package var linked: String?
    /// The obfuscated account id; empty: the object that should hold it is there and empty.
    package var account: String?
    package var profile: String?
    /// The first order's number; derived from the token by default.
    package var orderID: String?
    /// Numbers of renewals by which it is found as well; the last one is the latest order.
    package var orderIDs: [String] = []
    package var started: Moment?
    package var expires: Moment?
    package var acknowledged = true
    package var prepaid = false
    package var test = false
    package var autoRenew: Bool?
    package var addons: [AddOn] = []
    package var outOfApp: OutOfApp?
    /// The product that a `deferred` one becomes.
    package var replacement: String?
    package var consumed = false
    /// When its last order was voided, and why by Google's number.
    package var voided: Moment?
    package var voidedReason = 0
    /// Digits of the fractions of its times: 0, 3, 6 or 9.
    package var fractionDigits = 3

    /// Makes a purchase.
    package init(token: String, state: State? = nil) {
        self.token = token
        self.state = state
    }

    package enum CodingKeys: String, CodingKey, CaseIterable {
        case token, product, plan, state, kind, linked, account, profile, started, expires, acknowledged, prepaid, test
        case addons, replacement, consumed, voided
        case orderID = "order_id"
        case orderIDs = "order_ids"
        case autoRenew = "auto_renew"
        case outOfApp = "out_of_app"
        case voidedReason = "voided_reason"
        case fractionDigits = "fraction_digits"
    }

    package init(from decoder: any Decoder) throws {
        let fields = try StrictFields<CodingKeys>(decoder)
        // The control endpoint takes it from the path.
        self.init(token: try fields.optional(.token) ?? "", state: try fields.optional(.state))
        product = try fields.optional(.product) ?? product
        plan = try fields.optional(.plan) ?? plan
        kind = try fields.optional(.kind) ?? .subscription
        linked = try fields.optional(.linked)
        account = try fields.optional(.account)
        profile = try fields.optional(.profile)
        orderID = try fields.optional(.orderID)
        orderIDs = try fields.optional(.orderIDs) ?? []
        started = try fields.optional(.started)
        expires = try fields.optional(.expires)
        acknowledged = try fields.optional(.acknowledged) ?? true
        prepaid = try fields.optional(.prepaid) ?? false
        test = try fields.optional(.test) ?? false
        autoRenew = try fields.optional(.autoRenew)
        addons = try fields.optional(.addons) ?? []
        outOfApp = try fields.optional(.outOfApp)
        replacement = try fields.optional(.replacement)
        consumed = try fields.optional(.consumed) ?? false
        voided = try fields.optional(.voided)
        voidedReason = try fields.integer(.voidedReason, in: 0...99) ?? 0
        fractionDigits = try fields.optional(.fractionDigits) ?? 3
        guard [0, 3, 6, 9].contains(fractionDigits) else {
            throw fields.fault(.fractionDigits, "is \(fractionDigits); use 0, 3, 6 or 9")
        }
    }
}
