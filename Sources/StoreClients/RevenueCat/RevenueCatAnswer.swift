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

    init(type: String, retryable: Bool? = nil, backoffMs: Int64? = nil) {
        self.type = type
        self.retryable = retryable
        self.backoffMs = backoffMs
    }

    /// Reads the body of an error answer; `nil` where it is no error object, as with the pages of proxies.
    init?(body: [UInt8]) {
        guard !body.isEmpty, body.count <= Self.maximumBytes else { return nil }
        var type: String?
        var retryable: Bool?
        var backoffMs: Int64?
        do throws(JSONFault) {
            var reader = try JSONReader(body)
            try reader.readObject(Self.fields) { reader, field throws(JSONFault) in
                switch field {
                // Some documented samples leave `object` out, but where it stands it must fit.
                case .object: guard try reader.readOptionalString() ?? "error" == "error" else { throw .wrongType }
                case .type: type = try reader.readString()
                case .retryable: retryable = try reader.readNull() ? nil : reader.readBool()
                case .backoffMs: backoffMs = try reader.readOptionalInteger()
                }
            }
            try reader.finish()
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

/// One row of the table of answers; an empty or `nil` condition holds for all.
struct AnswerRule: Sendable {
    var statuses: ClosedRange<Int>
    /// Error types; `nil`: any type, or no error object at all.
    var types: Set<String>?
    var retryable: Bool?
    var outcome: AnswerClass

    init(_ statuses: ClosedRange<Int>, _ types: Set<String>?, _ retryable: Bool?, _ outcome: AnswerClass) {
        self.statuses = statuses
        self.types = types
        self.retryable = retryable
        self.outcome = outcome
    }

    func holds(status: Int, error: RevenueCatError?) -> Bool {
        guard statuses.contains(status) else { return false }
        if let types, !types.contains(error?.type ?? "") { return false }
        return retryable == nil || retryable == error?.retryable
    }
}

private let credentials: Set = ["authentication_error", "authorization_error"]

/// Every answer, and what it means; the first row that holds decides.
let answerRules: [AnswerRule] = [
    //         status     types                 retryable outcome
    AnswerRule(200...200, nil, nil, .content),
    // A list answers 200 or it is no list: 204 and 206 would be half the truth.
    AnswerRule(201...299, nil, nil, .failure(.malformed)),
    // Redirects are not followed: the key goes to the configured host alone.
    AnswerRule(300...399, nil, nil, .failure(.unavailable)),
    // Without RevenueCat's own word, a 401 or 403 is a firewall's or a proxy's, and says nothing about the key.
    AnswerRule(401...401, credentials, nil, .failure(.unauthorized)),
    AnswerRule(403...403, credentials, nil, .failure(.unauthorized)),
    AnswerRule(401...401, nil, nil, .failure(.unavailable)),
    AnswerRule(403...403, nil, nil, .failure(.unavailable)),
    AnswerRule(404...404, ["resource_missing"], nil, .missing),
    AnswerRule(404...404, nil, nil, .failure(.unavailable)),
    // A proxy wants a login.
    AnswerRule(407...407, nil, nil, .failure(.unavailable)),
    AnswerRule(408...408, nil, nil, .failure(.timeout)),
    AnswerRule(423...423, nil, nil, .failure(.locked)),
    AnswerRule(429...429, nil, nil, .failure(.throttled)),
    AnswerRule(400...499, nil, true, .failure(.unavailable)),
    AnswerRule(400...499, nil, false, .failure(.rejected)),
    // A store behind RevenueCat failed: normally worth another try, unless the answer said otherwise above.
    AnswerRule(422...422, ["store_error"], nil, .failure(.unavailable)),
    AnswerRule(400...499, nil, nil, .failure(.rejected)),
    AnswerRule(500...599, nil, nil, .failure(.unavailable)),
]

/// Finds an answer in the table.
///
/// - Returns: `unavailable` for statuses that HTTP does not have.
func classify(status: Int, error: RevenueCatError?) -> AnswerClass {
    let rule = answerRules.first { $0.holds(status: status, error: error) }
    return rule?.outcome ?? .failure(.unavailable)
}
