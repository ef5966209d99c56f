package import Entitlements
package import SignedTokens
import TextFormats

/// What the App Store says of one transaction; only read, not yet verified.
///
/// A missing member means that it does not apply. Words are kept as they are written: an unknown one is no fault.
///
/// - SeeAlso: https://developer.apple.com/documentation/appstoreserverapi/jwstransactiondecodedpayload
package struct SignedTransaction: AppStorePayload, Hashable {
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
    /// When it was signed; no event happened then.
    package var signedAt: Instant

    private enum Field: String, CaseIterable {
        case transactionId, originalTransactionId, previousOriginalTransactionId, bundleId, productId
        case subscriptionGroupIdentifier, type, inAppOwnershipType, appAccountToken, appTransactionId, environment
        case purchaseDate, originalPurchaseDate, expiresDate, revocationDate, isUpgraded, signedDate
    }

    private static let fields = JSONFields<Field>()

    package init(payload: [UInt8]) throws(ProofRefusal) {
        do throws(JSONFault) {
            try self.init(reading: payload)
        } catch {
            throw ProofRefusal(.malformed, "The payload is not a transaction: \(error.clause).")
        }
    }

    private init(reading payload: [UInt8]) throws(JSONFault) {
        var members = Members<Field>()
        var hasOddPurchaseDate = false
        var isUpgraded = false
        try JSONReader.readObject(in: payload, Self.fields) { reader, field throws(JSONFault) in
            switch field {
            // Whether it gives access is no question of these dates.
            case .purchaseDate:
                guard try !reader.readNull() else { return }
                members.moments[field] = try reader.readIfSound(Self.moment)
                hasOddPurchaseDate = members.moments[field] == nil
            case .originalPurchaseDate, .expiresDate: members.moments[field] = try reader.readIfSound(Self.moment)
            case .revocationDate, .signedDate: members.moments[field] = try Self.moment(&reader)
            case .isUpgraded: isUpgraded = try reader.readNull() ? false : try reader.readBool()
            case .subscriptionGroupIdentifier, .appTransactionId, .previousOriginalTransactionId:
                members.texts[field] = try reader.readSoundString()
            default: members.texts[field] = try reader.readOptionalString()
            }
        }
        transactionID = try members.text(.transactionId)
        originalTransactionID = try members.text(.originalTransactionId)
        previousOriginalTransactionID = members.texts[.previousOriginalTransactionId]
        bundleID = try members.text(.bundleId)
        productID = try members.text(.productId)
        subscriptionGroupID = members.texts[.subscriptionGroupIdentifier]
        type = try members.text(.type)
        ownership = try members.text(.inAppOwnershipType)
        appAccountToken = members.texts[.appAccountToken]?.lowercased()
        appTransactionID = members.texts[.appTransactionId]
        environment = try members.text(.environment)
        originallyPurchasedAt = members.moments[.originalPurchaseDate]
        self.hasOddPurchaseDate = hasOddPurchaseDate
        if !hasOddPurchaseDate {
            purchasedAt = try members.moment(.purchaseDate)
        } else if let first = originallyPurchasedAt {
            purchasedAt = first
        } else {
            purchasedAt = try members.moment(.signedDate)
        }
        expiresAt = members.moments[.expiresDate]
        revokedAt = members.moments[.revocationDate]
        self.isUpgraded = isUpgraded
        signedAt = try members.moment(.signedDate)
    }

    private static func moment(_ reader: inout JSONReader) throws(JSONFault) -> Instant? {
        guard let written = try reader.readOptionalInteger() else { return nil }
        guard let moment = Instant(milliseconds: written) else { throw .outOfRange }
        return moment
    }
}

/// The members of an object that was read, by their fields.
struct Members<Field: Hashable> {
    var texts: [Field: String] = [:]
    var numbers: [Field: Int64] = [:]
    var moments: [Field: Instant] = [:]

    /// A text that must say something.
    func text(_ field: Field) throws(JSONFault) -> String {
        guard let text = texts[field], !text.isEmpty else { throw .missing }
        return text
    }

    func moment(_ field: Field) throws(JSONFault) -> Instant {
        guard let moment = moments[field] else { throw .missing }
        return moment
    }
}
