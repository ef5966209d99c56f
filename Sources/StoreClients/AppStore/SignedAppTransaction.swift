package import Entitlements
package import SignedTokens
import TextFormats

/// What the App Store says of an installed app, for the store account of the device; only read, not yet verified.
///
/// It names no purchase. Every account has one, also of a customer who never bought anything.
///
/// - SeeAlso: https://developer.apple.com/documentation/appstoreserverapi/jwsapptransactiondecodedpayload
package struct SignedAppTransaction: AppStorePayload, Hashable {
    package var bundleID: String
    /// `Production`, `Sandbox`: the receipt's type.
    package var environment: String
    /// The store's own name for the account in this app; `nil`: the system of the device is too old for one.
    package var appTransactionID: String?
    package var appVersion: String?
    package var originalAppVersion: String?
    package var originallyPurchasedAt: Instant?
    /// When it was signed.
    package var signedAt: Instant

    private enum Field: String, CaseIterable {
        case bundleId, receiptType, appTransactionId, applicationVersion, originalApplicationVersion
        case originalPurchaseDate, receiptCreationDate
    }

    private static let fields = JSONFields<Field>()

    package init(payload: [UInt8]) throws(ProofRefusal) {
        do throws(JSONFault) {
            try self.init(reading: payload)
        } catch {
            throw ProofRefusal(.malformed, "The payload is not an app transaction: \(error.clause).")
        }
    }

    private init(reading payload: [UInt8]) throws(JSONFault) {
        var members = Members<Field>()
        try JSONReader.readObject(in: payload, Self.fields) { reader, field throws(JSONFault) in
            switch field {
            case .receiptCreationDate: members.numbers[field] = try reader.readOptionalInteger()
            case .originalPurchaseDate: members.numbers[field] = try reader.readSoundInteger()
            case .appTransactionId, .applicationVersion, .originalApplicationVersion:
                members.texts[field] = try reader.readSoundString()
            case .bundleId, .receiptType: members.texts[field] = try reader.readOptionalString()
            }
        }
        bundleID = try members.text(.bundleId)
        environment = try members.text(.receiptType)
        // An id longer than any that the App Store has would be another thing.
        appTransactionID = members.texts[.appTransactionId].flatMap { (1...64).contains($0.utf8.count) ? $0 : nil }
        appVersion = members.texts[.applicationVersion]
        originalAppVersion = members.texts[.originalApplicationVersion]
        originallyPurchasedAt = members.numbers[.originalPurchaseDate].flatMap(Instant.init(milliseconds:))
        guard let signed = members.numbers[.receiptCreationDate] else { throw .missing }
        guard let signedAt = Instant(milliseconds: signed) else { throw .outOfRange }
        self.signedAt = signedAt
    }
}
