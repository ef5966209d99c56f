import Entitlements
import TextFormats
import Transport

/// What a refusal of the App Store comes to.
enum AppStoreErrorClass: String, Sendable, CaseIterable {
    /// The id is unknown here; the other environment may know it.
    case unknownHere
    /// There is no such customer.
    case unknown
    /// Said to be passing.
    case passing
    case throttled
    /// The same request would be refused again.
    case rejected
    /// The app that we ask for is none: our settings are wrong, and nothing follows for anybody's purchases.
    case misconfigured
}

/// Every error code of the App Store Server API that concerns us, and what it comes to.
///
/// - SeeAlso: https://developer.apple.com/documentation/appstoreserverapi/error-codes
let appStoreErrors: [(code: Int64, class: AppStoreErrorClass, meaning: String)] = [
    (4_000_000, .rejected, "general bad request"),
    (4_000_002, .misconfigured, "invalid app identifier"),
    (4_000_005, .rejected, "invalid revision"),
    (4_000_006, .rejected, "invalid transaction id"),
    (4_000_008, .rejected, "invalid original transaction id"),
    (4_000_009, .rejected, "extension: invalid number of days"),
    (4_000_010, .rejected, "extension: invalid reason"),
    (4_000_011, .rejected, "extension: invalid request identifier"),
    (4_000_012, .rejected, "start date too far in the past"),
    (4_000_013, .rejected, "end date not after the start date"),
    (4_000_014, .rejected, "invalid pagination token"),
    (4_000_015, .rejected, "start date not in milliseconds"),
    (4_000_016, .rejected, "end date not in milliseconds"),
    (4_000_017, .rejected, "pagination token expired"),
    (4_000_018, .rejected, "invalid notification type or subtype"),
    (4_000_019, .rejected, "both a transaction id and a notification type"),
    (4_000_020, .rejected, "invalid test notification token"),
    (4_000_021, .rejected, "history: invalid sort"),
    (4_000_022, .rejected, "history: invalid product type"),
    (4_000_023, .rejected, "history: invalid product id"),
    (4_000_024, .rejected, "history: invalid subscription group"),
    (4_000_025, .rejected, "history: invalid excludeRevoked"),
    (4_000_026, .rejected, "history: invalid ownership type"),
    (4_000_027, .rejected, "mass extension: empty list of storefronts"),
    (4_000_028, .rejected, "mass extension: invalid storefront"),
    (4_000_030, .rejected, "history: invalid revoked"),
    (4_000_031, .rejected, "invalid status filter"),
    (4_000_032, .rejected, "consumption: invalid account tenure"),
    (4_000_033, .rejected, "consumption: invalid app account token"),
    (4_000_034, .rejected, "consumption: invalid consumption status"),
    (4_000_035, .rejected, "consumption: invalid consent"),
    (4_000_036, .rejected, "consumption: invalid delivery status"),
    (4_000_037, .rejected, "consumption: invalid amount purchased"),
    (4_000_038, .rejected, "consumption: invalid amount refunded"),
    (4_000_039, .rejected, "consumption: invalid platform"),
    (4_000_040, .rejected, "consumption: invalid play time"),
    (4_000_041, .rejected, "consumption: invalid sample content"),
    (4_000_042, .rejected, "consumption: invalid user status"),
    (4_000_043, .rejected, "not a consumable"),
    (4_000_047, .rejected, "transaction type not supported"),
    (4_000_048, .rejected, "an app transaction's id is not taken here"),
    (4_000_183, .rejected, "app account token is no UUID"),
    (4_000_185, .rejected, "family-shared transaction not supported"),
    (4_000_187, .rejected, "not an original transaction id"),
    (4_030_004, .rejected, "extension: state does not allow it"),
    (4_030_005, .rejected, "extension: as many as there may be"),
    (4_030_007, .rejected, "extension: family-shared"),
    (4_040_001, .unknown, "account not found"),
    (4_040_002, .passing, "account not found, for now"),
    (4_040_003, .misconfigured, "app not found"),
    (4_040_004, .passing, "app not found, for now"),
    (4_040_005, .unknownHere, "original transaction id not found"),
    (4_040_006, .passing, "original transaction id not found, for now"),
    (4_040_007, .rejected, "no address for notifications is set"),
    (4_040_008, .rejected, "test notification expired or not there yet"),
    (4_040_009, .rejected, "mass extension not found"),
    (4_040_010, .unknownHere, "transaction id not found"),
    (4_040_019, .rejected, "the customer has no app transaction"),
    (4_290_000, .throttled, "rate limit exceeded"),
    (5_000_000, .passing, "internal error"),
    (5_000_001, .passing, "internal error, for now"),
]

private let classes = Dictionary(appStoreErrors.map { ($0.code, $0.class) }, uniquingKeysWith: { first, _ in first })

/// An answer's status and error object, understood.
enum AppStoreAnswer: Sendable {
    case content([UInt8])
    /// Nothing is wrong with the App Store: it does not know, or does not want, what was asked.
    case refused(AppStoreErrorClass, code: Int64?)

    /// Understands an answer; throws why it is no usable one.
    init(_ response: HTTPClientResponse) throws(ReadFailure) {
        let status = response.status
        switch status {
        case 200..<300: self = .content(response.body)
        case 401: throw ReadFailure(.unauthorized)
        case 429: throw ReadFailure(.throttled)
        case 400..<500:
            let code = Self.errorCode(response.body)
            // The App Store names an error for every refusal but that of a request that makes no sense to it: an answer
            // with a status alone is a proxy's.
            guard code != nil || status == 400 else { throw ReadFailure(status == 408 ? .timeout : .unavailable) }
            // The first three digits are the status; where they are not, it is the status that counts.
            let known = code.flatMap { $0 / 10_000 == status ? classes[$0] : nil }
            switch known ?? .rejected {
            case .passing: throw ReadFailure(.unavailable)
            case .throttled: throw ReadFailure(.throttled)
            case .misconfigured: throw ReadFailure(.unauthorized)
            case let kind: self = .refused(kind, code: code)
            }
        // Redirects are not followed: the App Store has none.
        case 300..<400, 500..<600: throw ReadFailure(.unavailable)
        default: throw ReadFailure(.malformed)
        }
    }

    private static let errorCode = JSONFields(only: "errorCode")

    /// The code of an error object; `nil` where the body is none.
    private static func errorCode(_ body: [UInt8]) -> Int64? {
        var code: Int64?
        do throws(JSONFault) {
            try JSONReader.readObject(in: body, errorCode) { reader, _ throws(JSONFault) in
                code = try reader.readOptionalInteger()
            }
        } catch { return nil }
        return code
    }
}
