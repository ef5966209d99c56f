/// One transaction of an Apple account.
///
/// `{original: "2000000100000001", product: premium_monthly}` is enough: an active subscription that renews in 20 days.
struct AppStoreTransactionScenario: ScenarioObject {
    /// What was bought.
    enum Kind: String, ScenarioWord {
        case autoRenewable = "auto_renewable"
        case nonConsumable = "non_consumable"
        case consumable
        case nonRenewing = "non_renewing"

        /// The word of a signed transaction.
        var signedWord: StaticString {
            switch self {
            case .autoRenewable: "Auto-Renewable Subscription"
            case .nonConsumable: "Non-Consumable"
            case .consumable: "Consumable"
            case .nonRenewing: "Non-Renewing Subscription"
            }
        }

        /// The word of a filter.
        var filterWord: String { self == .nonRenewing ? "NON_RENEWABLE" : rawValue.uppercased() }
    }

    /// What has become of it; it stays so, whatever the clock says.
    enum State: String, ScenarioWord {
        case active, expired, grace, revoked, refunded, unknown
        case billingRetry = "billing_retry"

        /// The number in the list of statuses.
        var number: Int {
            switch self {
            case .active: 1
            case .expired: 2
            case .billingRetry: 3
            case .grace: 4
            case .revoked, .refunded: 5
            case .unknown: 9
            }
        }

        var isRevoked: Bool { self == .revoked || self == .refunded }
    }

    /// What is wrong with the signed texts, so that a client can show that it notices.
    enum Flaw: String, ScenarioWord {
        case badSignature = "bad_signature"
        /// Signed by another key.
        case foreignRoot = "foreign_root"
        case foreignBundle = "foreign_bundle"
        case foreignEnvironment = "foreign_environment"
        /// The renewal info is about another line.
        case foreignRenewal = "foreign_renewal"
    }

    /// The original transaction's id, which names the purchase.
    var original = ""
    /// The id of this transaction; the original one by default.
    var transaction: String?
    var product = ""
    var type = Kind.autoRenewable
    var state = State.active
    var purchased = Moment.days(-10)
    var originally: Moment?
    var expires: Moment?
    /// End of the grace period.
    var graceEnds: Moment?
    /// When it was refunded or withdrawn; an hour ago by default.
    var revokedAt: Moment?
    var accountToken: String?
    /// `PURCHASED` or `FAMILY_SHARED`; any other word is kept.
    var ownership = "PURCHASED"
    /// The number in the mail to the customer, which several transactions may share.
    var orderID: String?
    /// Superseded by an upgrade.
    var isUpgraded = false
    var previousOriginal: String?
    var autoRenew: Bool?
    /// 0: the customer was asked; 1: agreed.
    var priceIncrease: Int?
    var group = "21000001"
    var flaw: Flaw?

    static let fields: [ScenarioField<Self>] = [
        .required("original", \.original), .required("product", \.product), .value("type", \.type),
        .value("state", \.state), .optional("transaction", \.transaction), .value("purchased", \.purchased),
        .optional("originally", \.originally), .optional("expires", \.expires), .optional("grace_ends", \.graceEnds),
        .optional("revoked_at", \.revokedAt), .optional("account_token", \.accountToken),
        .value("ownership", \.ownership), .optional("order_id", \.orderID), .value("upgraded", \.isUpgraded),
        .optional("previous_original", \.previousOriginal), .optional("auto_renew", \.autoRenew),
        .optional("price_increase", \.priceIncrease, in: 0...1), .value("group", \.group), .optional("flaw", \.flaw),
    ]

    func check() throws {
        for (name, id) in [("original", original), ("transaction", transaction ?? original)]
        where !AppStorePath.isID(id) {
            throw FieldFault(message: "is \"\(id)\"; use 1 to 32 digits, in quotation marks", at: name)
        }
    }
}
