package import Entitlements
import SignedTokens
import TextFormats

/// What Onside says of one transaction: a purchase or a renewal.
///
/// A missing member means that it does not apply. Words are kept as they are written: an unknown one is no fault.
package struct OnsideTransaction: Sendable, Hashable {
    /// What the app said the buyer is to it: our user's id, if the app is the genuine one.
    ///
    /// Never shown, never logged.
    package var appAccountToken: String?
    package var bundleID: String
    /// ISO 4217.
    package var currency: String?
    /// The end of the paid period; `nil`: it is no subscription.
    package var expiresAt: Instant?
    /// A UUID, in lower case.
    package var orderID: String
    /// The id of the line's first order: a UUID, in lower case.
    package var originalOrderID: String
    package var originallyPurchasedAt: Instant?
    /// In the smallest unit of the currency.
    package var price: Int64?
    package var productID: String
    package var productSlug: String?
    /// `NON_CONSUMABLE` and others, which Onside has not documented.
    package var productType: String?
    /// When it was bought or renewed.
    package var purchasedAt: Instant
    package var quantity: Int64?
    package var revokedAt: Instant?
    package var revocationReason: String?
    /// When Onside made this statement.
    package var fetchedAt: Instant
    /// The subscription's group.
    package var subscriptionID: String?
    /// `PURCHASE` and others, which Onside has not documented.
    package var reason: String?
    package var country: String?

    private enum Field: String, CaseIterable {
        case appAccountToken = "app_account_token"
        case bundleID = "bundle_id"
        case currency
        case expiresAt = "expires_at"
        case orderID = "order_id"
        case originalOrderID = "original_order_id"
        case originallyPurchasedAt = "original_purchase_date"
        case price
        case productID = "product_id"
        case productSlug = "product_slug"
        case productType = "product_type"
        case purchasedAt = "purchase_date"
        case quantity
        case revokedAt = "revocation_date"
        case revocationReason = "revocation_reason"
        case fetchedAt = "fetched_at"
        case subscriptionID = "subscription_id"
        case reason = "transaction_reason"
        case country = "user_country"
    }

    private static let fields = JSONFields<Field>()

    /// Reads one transaction.
    init(_ reader: inout JSONReader) throws(JSONFault) {
        var members = Members<Field>()
        try reader.readObject(Self.fields) { reader, field throws(JSONFault) in
            switch field {
            // These dates decide.
            case .expiresAt, .purchasedAt, .revokedAt, .fetchedAt:
                members.moments[field] = try reader.readOptionalTime()
            case .originallyPurchasedAt: members.moments[field] = try reader.readSoundTime()
            case .price, .quantity: members.numbers[field] = try reader.readSoundInteger()
            case .currency, .productSlug, .revocationReason, .reason, .country:
                members.texts[field] = try reader.readSoundString()
            default: members.texts[field] = try reader.readOptionalString()
            }
        }
        try self.init(members)
    }

    private init(_ members: Members<Field>) throws(JSONFault) {
        func order(_ field: Field) throws(JSONFault) -> String {
            guard let id = OnsideOrderID(try members.text(field)) else { throw .wrongType }
            return id.text
        }
        appAccountToken = members.texts[.appAccountToken]
        bundleID = try members.text(.bundleID)
        currency = members.texts[.currency]
        expiresAt = members.moments[.expiresAt]
        orderID = try order(.orderID)
        originalOrderID = try order(.originalOrderID)
        originallyPurchasedAt = members.moments[.originallyPurchasedAt]
        price = members.numbers[.price]
        productID = try members.text(.productID)
        productSlug = members.texts[.productSlug]
        productType = members.texts[.productType]
        purchasedAt = try members.moment(.purchasedAt)
        quantity = members.numbers[.quantity]
        revokedAt = members.moments[.revokedAt]
        revocationReason = members.texts[.revocationReason]
        fetchedAt = try members.moment(.fetchedAt)
        subscriptionID = members.texts[.subscriptionID]
        reason = members.texts[.reason]
        country = members.texts[.country]
    }
}

/// The transactions that one signed text tells of.
package struct OnsideHistory: Sendable, Hashable {
    package var transactions: [OnsideTransaction]
    /// One of them is nothing that can be read.
    package var hasOdd = false

    /// The longest signed text that is read, in bytes; a line that was renewed each week for years fits in.
    static let maximumBytes = 1 << 20
    /// The most transactions that are read.
    private static let maximumCount = 5_000

    private static let list = JSONFields(only: "transactions")

    /// Reads a payload; one that can't be read is `malformed`.
    init(payload: [UInt8]) throws(ProofRefusal) {
        do throws(JSONFault) {
            (transactions, hasOdd) = try Self.read(payload)
        } catch {
            throw ProofRefusal(.malformed, "The payload is not a history: \(error.clause).")
        }
    }

    private static func read(_ payload: [UInt8]) throws(JSONFault) -> ([OnsideTransaction], hasOdd: Bool) {
        var transactions: [OnsideTransaction]?
        var hasOdd = false
        try JSONReader.readObject(in: payload, list) { reader, _ throws(JSONFault) in
            var read: [OnsideTransaction] = []
            try reader.readArray { reader throws(JSONFault) in
                guard read.count < maximumCount else { throw .outOfRange }
                let transaction = try reader.readIfSound { reader throws(JSONFault) in try OnsideTransaction(&reader) }
                if let transaction { read.append(transaction) } else { hasOdd = true }
            }
            transactions = read
        }
        guard let transactions else { throw .missing }
        return (transactions, hasOdd)
    }

    /// Checks that all of it is about one app.
    func isAbout(_ bundleID: String) -> Bool { transactions.allSatisfy { $0.bundleID == bundleID } }
}
