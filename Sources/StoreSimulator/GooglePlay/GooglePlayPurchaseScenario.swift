/// One purchase of a scenario: a token, and what Google Play tells of it.
struct GooglePlayPurchaseScenario: ScenarioObject, Hashable {
    /// What a purchase has come to.
    enum State: String, ScenarioWord {
        case active, grace, paused, canceled, expired, pending, unknown, gone, deferred
        case onHold = "on_hold"
        /// Cancelled, over, and not said to be expired.
        case canceledPast = "canceled_past"
        case pendingCanceled = "pending_canceled"
        /// Active for a while after its period is over.
        case silentGrace = "silent_grace"
    }

    enum Kind: String, ScenarioWord {
        case subscription
        case oneTime = "one_time"
    }

    /// Another product of the same subscription.
    struct AddOn: ScenarioObject, Hashable {
        var product = ""
        var plan = "monthly"
        var expires: Moment?

        static let fields: [ScenarioField<Self>] = [
            .required("product", \.product), .value("plan", \.plan), .optional("expires", \.expires),
        ]
    }

    /// What a purchase made in Play tells of the expired one before it, until it is acknowledged.
    struct OutOfApp: ScenarioObject, Hashable {
        var expiredToken: String?
        var account: String?

        static let fields: [ScenarioField<Self>] = [
            .optional("expired_token", \.expiredToken), .optional("account", \.account),
        ]
    }

    /// May stay empty where the control path names it.
    var token = ""
    var product = "pro"
    var plan = "monthly"
    /// Absent: `active`, or replaced where another purchase is linked to it.
    var state: State?
    var kind = Kind.subscription
    /// The token that it replaced.
    var linked: String?
    /// The obfuscated account id; empty: the object that should hold it is there and empty.
    var account: String?
    var profile: String?
    /// The first order's number; derived from the token by default.
    var orderID: String?
    /// Numbers of renewals by which it is found as well; the last one is the latest order.
    var orderIDs: [String] = []
    var started: Moment?
    var expires: Moment?
    var acknowledged = true
    var prepaid = false
    var test = false
    var autoRenew: Bool?
    var addons: [AddOn] = []
    var outOfApp: OutOfApp?
    /// The product that a `deferred` one becomes.
    var replacement: String?
    var consumed = false
    /// When its last order was voided, and why by Google's number.
    var voided: Moment?
    var voidedReason = 0
    /// Digits of the fractions of its times: 0, 3, 6 or 9.
    var fractionDigits = 3

    static let fields: [ScenarioField<Self>] = [
        .value("token", \.token), .optional("state", \.state), .value("product", \.product), .value("plan", \.plan),
        .value("kind", \.kind), .optional("linked", \.linked), .optional("account", \.account),
        .optional("profile", \.profile), .optional("order_id", \.orderID), .value("order_ids", \.orderIDs),
        .optional("started", \.started), .optional("expires", \.expires), .value("acknowledged", \.acknowledged),
        .value("prepaid", \.prepaid), .value("test", \.test), .optional("auto_renew", \.autoRenew),
        .value("addons", \.addons), .optional("out_of_app", \.outOfApp), .optional("replacement", \.replacement),
        .value("consumed", \.consumed), .optional("voided", \.voided),
        .value("voided_reason", \.voidedReason, in: 0...99), .value("fraction_digits", \.fractionDigits),
    ]

    func check() throws {
        guard [0, 3, 6, 9].contains(fractionDigits) else {
            throw FieldFault(message: "is \(fractionDigits); use 0, 3, 6 or 9", at: "fraction_digits")
        }
    }
}
