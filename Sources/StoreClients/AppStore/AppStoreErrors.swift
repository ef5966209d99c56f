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
let appStoreErrors: [(code: Int64, class: AppStoreErrorClass)] =
    [
        (4_000_002, .misconfigured),  // invalid app identifier
        (4_040_001, .unknown),  // account not found
        (4_040_002, .passing),  // account not found, for now
        (4_040_003, .misconfigured),  // app not found
        (4_040_004, .passing),  // app not found, for now
        (4_040_005, .unknownHere),  // original transaction id not found
        (4_040_006, .passing),  // original transaction id not found, for now
        (4_040_010, .unknownHere),  // transaction id not found
        (4_290_000, .throttled),  // rate limit exceeded
        (5_000_000, .passing),  // internal error
        (5_000_001, .passing),  // internal error, for now
    ] + rejections.map { ($0, .rejected) }

/// What is wrong with the request itself: an id, a filter, a date, a state that does not allow it.
private let rejections: [Int64] = [
    4_000_000, 4_000_005, 4_000_006, 4_000_008, 4_000_009, 4_000_010, 4_000_011, 4_000_012, 4_000_013, 4_000_014,
    4_000_015, 4_000_016, 4_000_017, 4_000_018, 4_000_019, 4_000_020, 4_000_021, 4_000_022, 4_000_023, 4_000_024,
    4_000_025, 4_000_026, 4_000_027, 4_000_028, 4_000_030, 4_000_031, 4_000_032, 4_000_033, 4_000_034, 4_000_035,
    4_000_036, 4_000_037, 4_000_038, 4_000_039, 4_000_040, 4_000_041, 4_000_042, 4_000_043, 4_000_047, 4_000_048,
    4_000_183, 4_000_185, 4_000_187, 4_030_004, 4_030_005, 4_030_007, 4_040_007, 4_040_008, 4_040_009, 4_040_019,
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
