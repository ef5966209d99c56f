package import Entitlements
package import SignedTokens
import TextFormats

/// What the App Store says of one transaction; only read, not yet verified.
///
/// A missing member means that it does not apply. Words are kept as they are written: an unknown one is no fault.
///
/// - SeeAlso: https://developer.apple.com/documentation/appstoreserverapi/jwstransactiondecodedpayload
package struct SignedTransaction: Sendable, Hashable {
    /// One for each charge or restore.
    package var transactionID: String
    /// The same for all transactions of one purchase or subscription line.
    package var originalTransactionID: String
    /// The line that this one replaced.
    package var previousOriginalTransactionID: String?
    package var bundleID: String
    package var productID: String
    package var subscriptionGroupID: String?
    /// `Auto-Renewable Subscription`, `Non-Consumable`, `Consumable`, `Non-Renewing Subscription`.
    package var type: String
    /// `PURCHASED`, `FAMILY_SHARED`.
    package var ownership: String
    /// What the app said the buyer is to it: a UUID, in lower case.
    package var appAccountToken: String?
    package var appTransactionID: String?
    package var environment: String
    package var purchasedAt: Instant
    /// That date can't be read: the first purchase's stands in for it, or that of the signature.
    package var hasOddPurchaseDate: Bool
    package var originallyPurchasedAt: Instant?
    package var expiresAt: Instant?
    /// Its presence says that the purchase was refunded or withdrawn.
    package var revokedAt: Instant?
    package var isUpgraded: Bool
    package var offerType: Int64?
    /// When it was signed; no event happened then.
    package var signedAt: Instant

    private enum Field: String, CaseIterable {
        case transactionId, originalTransactionId, previousOriginalTransactionId, bundleId, productId
        case subscriptionGroupIdentifier, type, inAppOwnershipType, appAccountToken, appTransactionId, environment
        case purchaseDate, originalPurchaseDate, expiresDate, revocationDate, isUpgraded, offerType, signedDate
    }

    private static let fields = JSONFields<Field>()

    private struct Draft {
        var texts: [Field: String] = [:]
        var moments: [Field: Instant] = [:]
        var hasOddPurchaseDate = false
        var isUpgraded = false
        var offerType: Int64?

        func text(_ field: Field) throws(JSONFault) -> String {
            guard let text = texts[field], !text.isEmpty else { throw .missing }
            return text
        }

        func moment(_ field: Field) throws(JSONFault) -> Instant {
            guard let moment = moments[field] else { throw .missing }
            return moment
        }
    }

    /// Reads a payload.
    ///
    /// - Throws: `ProofRefusal`: `malformed`.
    package init(payload: [UInt8]) throws(ProofRefusal) {
        do throws(JSONFault) {
            self = try Self.read(payload)
        } catch {
            throw ProofRefusal(.malformed, "The payload is not a transaction: \(error.clause).")
        }
    }

    private static func read(_ payload: [UInt8]) throws(JSONFault) -> SignedTransaction {
        var reader = try JSONReader(payload)
        var draft = Draft()
        try reader.readObject(fields) { reader, field throws(JSONFault) in
            switch field {
            // Whether it gives access is no question of these dates.
            case .purchaseDate:
                guard try !reader.readNull() else { return }
                draft.moments[field] = try reader.readIfSound(moment)
                draft.hasOddPurchaseDate = draft.moments[field] == nil
            case .originalPurchaseDate, .expiresDate:
                draft.moments[field] = try reader.readIfSound(moment)
            case .revocationDate, .signedDate: draft.moments[field] = try moment(&reader)
            case .isUpgraded: draft.isUpgraded = try reader.readNull() ? false : try reader.readBool()
            case .offerType:
                draft.offerType = try reader.readIfSound { reader throws(JSONFault) in try reader.readOptionalInteger()
                }
            case .subscriptionGroupIdentifier, .appTransactionId, .previousOriginalTransactionId:
                draft.texts[field] = try reader.readIfSound { reader throws(JSONFault) in
                    try reader.readOptionalString()
                }
            default: draft.texts[field] = try reader.readOptionalString()
            }
        }
        try reader.finish()
        return try SignedTransaction(draft)
    }

    private static func moment(_ reader: inout JSONReader) throws(JSONFault) -> Instant? {
        guard let written = try reader.readOptionalInteger() else { return nil }
        guard let moment = Instant(milliseconds: written) else { throw .outOfRange }
        return moment
    }

    private init(_ draft: Draft) throws(JSONFault) {
        transactionID = try draft.text(.transactionId)
        originalTransactionID = try draft.text(.originalTransactionId)
        previousOriginalTransactionID = draft.texts[.previousOriginalTransactionId]
        bundleID = try draft.text(.bundleId)
        productID = try draft.text(.productId)
        subscriptionGroupID = draft.texts[.subscriptionGroupIdentifier]
        type = try draft.text(.type)
        ownership = try draft.text(.inAppOwnershipType)
        appAccountToken = draft.texts[.appAccountToken]?.lowercased()
        appTransactionID = draft.texts[.appTransactionId]
        environment = try draft.text(.environment)
        originallyPurchasedAt = draft.moments[.originalPurchaseDate]
        hasOddPurchaseDate = draft.hasOddPurchaseDate
        if !hasOddPurchaseDate {
            purchasedAt = try draft.moment(.purchaseDate)
        } else if let first = originallyPurchasedAt {
            purchasedAt = first
        } else {
            purchasedAt = try draft.moment(.signedDate)
        }
        expiresAt = draft.moments[.expiresDate]
        revokedAt = draft.moments[.revocationDate]
        isUpgraded = draft.isUpgraded
        offerType = draft.offerType
        signedAt = try draft.moment(.signedDate)
    }
}
