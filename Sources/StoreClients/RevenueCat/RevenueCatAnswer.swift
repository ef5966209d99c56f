import Entitlements
import TextFormats

/// The error object that RevenueCat sends with a status other than 2xx, as far as it is used.
struct RevenueCatError: Hashable, Sendable {
    /// The raw `type`; unknown ones are kept, and then the status alone decides.
    var type: String
    var retryable: Bool?
    /// How long to wait, in milliseconds; negative ones are dropped.
    var backoffMs: Int64?

    private enum Field: String, CaseIterable { case object, type, retryable, backoffMs = "backoff_ms" }
    private static let fields = JSONFields<Field>()
    /// An error object is small; a larger body is some proxy's page.
    private static let maximumBytes = 64 << 10
}

extension RevenueCatError {
    /// Reads the body of an error answer; `nil` where it is no error object, as with the pages of proxies.
    init?(body: [UInt8]) {
        guard !body.isEmpty, body.count <= Self.maximumBytes else { return nil }
        var type: String?
        var retryable: Bool?
        var backoffMs: Int64?
        do throws(JSONFault) {
            try JSONReader.readObject(in: body, Self.fields) { reader, field throws(JSONFault) in
                switch field {
                // Some documented samples leave `object` out, but where it stands it must fit.
                case .object: guard try reader.readOptionalString() ?? "error" == "error" else { throw .wrongType }
                case .type: type = try reader.readString()
                case .retryable: retryable = try reader.readNull() ? nil : reader.readBool()
                case .backoffMs: backoffMs = try reader.readOptionalInteger()
                }
            }
        } catch { return nil }
        guard let type else { return nil }
        self.init(type: type, retryable: retryable, backoffMs: backoffMs.flatMap { $0 < 0 ? nil : $0 })
    }
}

/// What an answer's status and error type come to.
enum AnswerClass: Hashable, Sendable {
    /// 200: the body is to be decoded.
    case content
    /// RevenueCat does not know the thing asked for. Whether that is an absence, the caller knows.
    case missing
    case failure(ReadFailure.Code)
}

private let credentials: Set = ["authentication_error", "authorization_error"]

/// A row of the table of answers; `nil` holds for any error type or none, and for whatever is said of retries.
typealias AnswerRule = (statuses: ClosedRange<Int>, types: Set<String>?, retryable: Bool?, outcome: AnswerClass)

/// Every answer, and what it means; the first row that holds decides.
let answerRules: [AnswerRule] = [
    // status  types  retryable  outcome
    (200...200, nil, nil, .content),
    // A list answers 200 or it is no list: 204 and 206 would be half the truth.
    (201...299, nil, nil, .failure(.malformed)),
    // Redirects are not followed: the key goes to the configured host alone.
    (300...399, nil, nil, .failure(.unavailable)),
    // Without RevenueCat's own word, a 401 or 403 is a firewall's or a proxy's, and says nothing about the key.
    (401...401, credentials, nil, .failure(.unauthorized)),
    (403...403, credentials, nil, .failure(.unauthorized)),
    (401...401, nil, nil, .failure(.unavailable)),
    (403...403, nil, nil, .failure(.unavailable)),
    (404...404, ["resource_missing"], nil, .missing),
    (404...404, nil, nil, .failure(.unavailable)),
    // A proxy wants a login.
    (407...407, nil, nil, .failure(.unavailable)),
    (408...408, nil, nil, .failure(.timeout)),
    (423...423, nil, nil, .failure(.locked)),
    (429...429, nil, nil, .failure(.throttled)),
    (400...499, nil, true, .failure(.unavailable)),
    (400...499, nil, false, .failure(.rejected)),
    // A store behind RevenueCat failed: normally worth another try, unless the answer said otherwise above.
    (422...422, ["store_error"], nil, .failure(.unavailable)),
    (400...499, nil, nil, .failure(.rejected)),
    (500...599, nil, nil, .failure(.unavailable)),
]

/// Finds an answer in the table; `unavailable` for statuses that HTTP does not have.
func classify(status: Int, error: RevenueCatError?) -> AnswerClass {
    answerRules.first { holds($0, status: status, error: error) }?.outcome ?? .failure(.unavailable)
}

func holds(_ rule: AnswerRule, status: Int, error: RevenueCatError?) -> Bool {
    rule.statuses.contains(status) && rule.types?.contains(error?.type ?? "") ?? true
        && (rule.retryable == nil || rule.retryable == error?.retryable)
}
