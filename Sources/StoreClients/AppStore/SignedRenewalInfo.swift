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

    /// Reads a payload.
    ///
    /// - Throws: `ProofRefusal`: `malformed`.
    package init(payload: [UInt8]) throws(ProofRefusal) {
        do throws(JSONFault) {
            self = try Self.read(payload)
        } catch {
            throw ProofRefusal(.malformed, "The payload is no renewal info: \(error.clause).")
        }
    }

    private static func read(_ payload: [UInt8]) throws(JSONFault) -> SignedRenewalInfo {
        var reader = try JSONReader(payload)
        var texts: [Field: String] = [:]
        var numbers: [Field: Int64] = [:]
        try reader.readObject(fields) { reader, field throws(JSONFault) in
            switch field {
            case .autoRenewStatus, .gracePeriodExpiresDate:
                numbers[field] = try reader.readIfSound { reader throws(JSONFault) in try reader.readOptionalInteger() }
            case .signedDate: numbers[field] = try reader.readOptionalInteger()
            default: texts[field] = try reader.readOptionalString()
            }
        }
        try reader.finish()
        guard let original = texts[.originalTransactionId], !original.isEmpty,
            let environment = texts[.environment], !environment.isEmpty,
            let signed = numbers[.signedDate]
        else { throw .missing }
        guard let signedAt = Instant(milliseconds: signed) else { throw .outOfRange }
        let graceEnd = numbers[.gracePeriodExpiresDate].flatMap { Instant(milliseconds: $0) }
        return SignedRenewalInfo(
            originalTransactionID: original,
            environment: environment,
            productID: texts[.productId],
            autoRenewProductID: texts[.autoRenewProductId],
            autoRenewStatus: numbers[.autoRenewStatus],
            gracePeriodExpiresAt: graceEnd,
            signedAt: signedAt
        )
    }

    private init(
        originalTransactionID: String,
        environment: String,
        productID: String?,
        autoRenewProductID: String?,
        autoRenewStatus: Int64?,
        gracePeriodExpiresAt: Instant?,
        signedAt: Instant
    ) {
        self.originalTransactionID = originalTransactionID
        self.environment = environment
        self.productID = productID
        self.autoRenewProductID = autoRenewProductID
        self.autoRenewStatus = autoRenewStatus
        self.gracePeriodExpiresAt = gracePeriodExpiresAt
        self.signedAt = signedAt
    }
}
