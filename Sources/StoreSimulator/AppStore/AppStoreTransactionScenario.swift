/// One transaction of an Apple account.
///
/// `{original: "2000000100000001", product: premium_monthly}` is enough: an active subscription that renews in 20 days.
package struct AppStoreTransactionScenario: Sendable, Codable {
    /// What was bought.
    package enum Kind: String, ScenarioWord {
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
        var filterWord: String {
            switch self {
            case .autoRenewable: "AUTO_RENEWABLE"
            case .nonConsumable: "NON_CONSUMABLE"
            case .consumable: "CONSUMABLE"
            case .nonRenewing: "NON_RENEWABLE"
            }
        }
    }

    /// What has become of it; it stays so, whatever the clock says.
    package enum State: String, ScenarioWord {
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
    package enum Flaw: String, ScenarioWord {
        case badSignature = "bad_signature"
        /// Signed by another key.
        case foreignRoot = "foreign_root"
        case foreignBundle = "foreign_bundle"
        case foreignEnvironment = "foreign_environment"
        /// The renewal info is about another line.
        case foreignRenewal = "foreign_renewal"
    }

    /// The original transaction's id, which names the purchase.
    package var original: String
    /// The id of this transaction; the original one by default.
    package var transaction: String
    package var product: String
    package var type: Kind
    package var state: State
    package var purchased: Moment
    package var originally: Moment?
    package var expires: Moment?
    /// End of the grace period.
    package var graceEnds: Moment?
    /// When it was refunded or withdrawn; an hour ago by default.
    package var revokedAt: Moment?
    package var accountToken: String?
    /// `PURCHASED` or `FAMILY_SHARED`; any other word is kept.
    package var ownership: String
    /// The number in the mail to the customer, which several transactions may share.
    package var orderID: String?
    /// Superseded by an upgrade.
    package var isUpgraded: Bool
    package var previousOriginal: String?
    package var autoRenew: Bool?
    /// 0: the customer was asked; 1: agreed.
    package var priceIncrease: Int?
    package var group: String
    package var flaw: Flaw?

    package enum CodingKeys: String, CodingKey, CaseIterable {
        case original, transaction, product, type, state, purchased, originally, expires, ownership, group, flaw
        case graceEnds = "grace_ends"
        case revokedAt = "revoked_at"
        case accountToken = "account_token"
        case orderID = "order_id"
        case isUpgraded = "upgraded"
        case previousOriginal = "previous_original"
        case autoRenew = "auto_renew"
        case priceIncrease = "price_increase"
    }

    /// Makes a transaction.
    package init(original: String, product: String, type: Kind = .autoRenewable, state: State = .active) {
        self.original = original
        transaction = original
        self.product = product
        self.type = type
        self.state = state
        purchased = .days(-10)
        ownership = "PURCHASED"
        isUpgraded = false
        group = "21000001"
    }

    package init(from decoder: any Decoder) throws {
        let fields = try StrictFields<CodingKeys>(decoder)
        self.init(
            original: try fields.required(.original),
            product: try fields.required(.product),
            type: try fields.optional(.type) ?? .autoRenewable,
            state: try fields.optional(.state) ?? .active
        )
        transaction = try fields.optional(.transaction) ?? original
        purchased = try fields.optional(.purchased) ?? purchased
        originally = try fields.optional(.originally)
        expires = try fields.optional(.expires)
        graceEnds = try fields.optional(.graceEnds)
        revokedAt = try fields.optional(.revokedAt)
        accountToken = try fields.optional(.accountToken)
        ownership = try fields.optional(.ownership) ?? ownership
        orderID = try fields.optional(.orderID)
        isUpgraded = try fields.optional(.isUpgraded) ?? false
        previousOriginal = try fields.optional(.previousOriginal)
        autoRenew = try fields.optional(.autoRenew)
        priceIncrease = try fields.integer(.priceIncrease, in: 0...1)
        group = try fields.optional(.group) ?? group
        flaw = try fields.optional(.flaw)
        for (key, id) in [(CodingKeys.original, original), (.transaction, transaction)]
        where AppStorePath.isID(id) == false {
            throw fields.fault(key, "is \"\(id)\"; use 1 to 32 digits, in quotation marks")
        }
    }
}
