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
    /// The end of the paid period; `nil`: it is no subscription.
    package var expiresAt: Instant?
    /// A UUID, in lower case.
    package var orderID: String
    /// The id of the line's first order: a UUID, in lower case.
    package var originalOrderID: String
    package var originallyPurchasedAt: Instant?
    package var productID: String
    /// `NON_CONSUMABLE` and others, which Onside has not documented.
    package var productType: String?
    /// When it was bought or renewed.
    package var purchasedAt: Instant
    package var revokedAt: Instant?
    /// When Onside made this statement.
    package var fetchedAt: Instant
    /// The subscription's group.
    package var subscriptionID: String?

    private enum Field: String, CaseIterable {
        case appAccountToken = "app_account_token"
        case bundleID = "bundle_id"
        case expiresAt = "expires_at"
        case orderID = "order_id"
        case originalOrderID = "original_order_id"
        case originallyPurchasedAt = "original_purchase_date"
        case productID = "product_id"
        case productType = "product_type"
        case purchasedAt = "purchase_date"
        case revokedAt = "revocation_date"
        case fetchedAt = "fetched_at"
        case subscriptionID = "subscription_id"
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
            default: members.texts[field] = try reader.readOptionalString()
            }
        }
        func order(_ field: Field) throws(JSONFault) -> String {
            guard let id = OnsideOrderID(try members.text(field)) else { throw .wrongType }
            return id.text
        }
        appAccountToken = members.texts[.appAccountToken]
        bundleID = try members.text(.bundleID)
        expiresAt = members.moments[.expiresAt]
        orderID = try order(.orderID)
        originalOrderID = try order(.originalOrderID)
        originallyPurchasedAt = members.moments[.originallyPurchasedAt]
        productID = try members.text(.productID)
        productType = members.texts[.productType]
        purchasedAt = try members.moment(.purchasedAt)
        revokedAt = members.moments[.revokedAt]
        fetchedAt = try members.moment(.fetchedAt)
        subscriptionID = members.texts[.subscriptionID]
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
