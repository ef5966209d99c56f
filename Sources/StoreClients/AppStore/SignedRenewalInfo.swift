package import Entitlements
package import SignedTokens
import TextFormats

/// What the App Store says of a subscription's next renewal; only read, not yet verified.
///
/// It names no app: it counts only beside the transaction of the same line.
///
/// - SeeAlso: https://developer.apple.com/documentation/appstoreserverapi/jwsrenewalinfodecodedpayload
package struct SignedRenewalInfo: Sendable, Hashable {
    package var originalTransactionID: String
    package var environment: String
    package var productID: String?
    /// The product at the next renewal.
    package var autoRenewProductID: String?
    /// 0 off, 1 on.
    package var autoRenewStatus: Int64?
    /// Until when the customer keeps access while payment fails; only during the grace period.
    package var gracePeriodExpiresAt: Instant?
    package var signedAt: Instant

    private enum Field: String, CaseIterable {
        case originalTransactionId, environment, productId, autoRenewProductId, autoRenewStatus
        case gracePeriodExpiresDate, signedDate
    }

    private static let fields = JSONFields<Field>()
}

extension SignedRenewalInfo: AppStorePayload {
    package init(payload: [UInt8]) throws(ProofRefusal) {
        do throws(JSONFault) {
            self = try Self.read(payload)
        } catch {
            throw ProofRefusal(.malformed, "The payload is no renewal info: \(error.clause).")
        }
    }

    private static func read(_ payload: [UInt8]) throws(JSONFault) -> SignedRenewalInfo {
        var members = Members<Field>()
        try JSONReader.readObject(in: payload, fields) { reader, field throws(JSONFault) in
            switch field {
            case .autoRenewStatus, .gracePeriodExpiresDate: members.numbers[field] = try reader.readSoundInteger()
            case .signedDate: members.numbers[field] = try reader.readOptionalInteger()
            default: members.texts[field] = try reader.readOptionalString()
            }
        }
        guard let signed = members.numbers[.signedDate] else { throw .missing }
        let environment = try members.text(.environment)
        let original = try members.text(.originalTransactionId)
        guard let signedAt = Instant(milliseconds: signed) else { throw .outOfRange }
        return SignedRenewalInfo(
            originalTransactionID: original,
            environment: environment,
            productID: members.texts[.productId],
            autoRenewProductID: members.texts[.autoRenewProductId],
            autoRenewStatus: members.numbers[.autoRenewStatus],
            gracePeriodExpiresAt: members.numbers[.gracePeriodExpiresDate].flatMap(Instant.init(milliseconds:)),
            signedAt: signedAt
        )
    }
}
