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

    private struct Draft {
        var texts: [Field: String] = [:]
        var moments: [Field: Instant] = [:]
        var numbers: [Field: Int64] = [:]

        func text(_ field: Field) throws(JSONFault) -> String {
            guard let text = texts[field], !text.isEmpty else { throw .missing }
            return text
        }

        func moment(_ field: Field) throws(JSONFault) -> Instant {
            guard let moment = moments[field] else { throw .missing }
            return moment
        }

        func order(_ field: Field) throws(JSONFault) -> String {
            guard let id = OnsideOrderID(try text(field)) else { throw .wrongType }
            return id.text
        }
    }

    /// Reads one transaction.
    init(_ reader: inout JSONReader) throws(JSONFault) {
        var draft = Draft()
        try reader.readObject(Self.fields) { reader, field throws(JSONFault) in
            switch field {
            // These dates decide.
            case .expiresAt, .purchasedAt, .revokedAt, .fetchedAt: draft.moments[field] = try reader.readOptionalTime()
            case .originallyPurchasedAt:
                draft.moments[field] = try reader.readIfSound { reader throws(JSONFault) in
                    try reader.readOptionalTime()
                }
            case .price, .quantity:
                draft.numbers[field] = try reader.readIfSound { reader throws(JSONFault) in
                    try reader.readOptionalInteger()
                }
            case .currency, .productSlug, .revocationReason, .reason, .country:
                draft.texts[field] = try reader.readIfSound { reader throws(JSONFault) in
                    try reader.readOptionalString()
                }
            default: draft.texts[field] = try reader.readOptionalString()
            }
        }
        try self.init(draft)
    }

    private init(_ draft: Draft) throws(JSONFault) {
        appAccountToken = draft.texts[.appAccountToken]
        bundleID = try draft.text(.bundleID)
        currency = draft.texts[.currency]
        expiresAt = draft.moments[.expiresAt]
        orderID = try draft.order(.orderID)
        originalOrderID = try draft.order(.originalOrderID)
        originallyPurchasedAt = draft.moments[.originallyPurchasedAt]
        price = draft.numbers[.price]
        productID = try draft.text(.productID)
        productSlug = draft.texts[.productSlug]
        productType = draft.texts[.productType]
        purchasedAt = try draft.moment(.purchasedAt)
        quantity = draft.numbers[.quantity]
        revokedAt = draft.moments[.revokedAt]
        revocationReason = draft.texts[.revocationReason]
        fetchedAt = try draft.moment(.fetchedAt)
        subscriptionID = draft.texts[.subscriptionID]
        reason = draft.texts[.reason]
        country = draft.texts[.country]
    }
}

/// The transactions that one signed text tells of.
package struct OnsideHistory: Sendable, Hashable {
    package var transactions: [OnsideTransaction]
    /// One of them is nothing that can be read.
    package var hasOdd = false

    package init(transactions: [OnsideTransaction]) { self.transactions = transactions }

    /// The longest signed text that is read, in bytes; a line that was renewed each week for years fits in.
    static let maximumBytes = 1 << 20
    /// The most transactions that are read.
    private static let maximumCount = 5_000

    private enum Field: String, CaseIterable { case transactions }
    private static let fields = JSONFields<Field>()

    /// Reads a payload.
    ///
    /// - Throws: `ProofRefusal`: `malformed`.
    init(payload: [UInt8]) throws(ProofRefusal) {
        do throws(JSONFault) {
            (transactions, hasOdd) = try Self.read(payload)
        } catch {
            throw ProofRefusal(.malformed, "The payload is not a history: \(error.clause).")
        }
    }

    private static func read(_ payload: [UInt8]) throws(JSONFault) -> ([OnsideTransaction], hasOdd: Bool) {
        var reader = try JSONReader(payload)
        var transactions: [OnsideTransaction]?
        var hasOdd = false
        try reader.readObject(fields) { reader, _ throws(JSONFault) in
            var read: [OnsideTransaction] = []
            try reader.readArray { reader throws(JSONFault) in
                guard read.count < maximumCount else { throw .outOfRange }
                let transaction = try reader.readIfSound { reader throws(JSONFault) in try OnsideTransaction(&reader) }
                if let transaction { read.append(transaction) } else { hasOdd = true }
            }
            transactions = read
        }
        try reader.finish()
        guard let transactions else { throw .missing }
        return (transactions, hasOdd)
    }

    /// Checks that all of it is about one app.
    func isAbout(_ bundleID: String) -> Bool { transactions.allSatisfy { $0.bundleID == bundleID } }
}
