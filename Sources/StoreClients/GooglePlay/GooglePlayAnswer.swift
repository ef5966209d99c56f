import Entitlements
import TextFormats

/// The error object that the API sends with a status other than 2xx, as far as it is used.
struct GooglePlayError: Hashable, Sendable {
    /// What the error is, in one word: the first reason, else that of the details, else the canonical status.
    ///
    /// Empty where the object names none.
    var word: String

    private enum OuterField: String, CaseIterable { case error }
    private enum Field: String, CaseIterable { case status, errors, details }
    private enum ReasonField: String, CaseIterable { case reason }

    private static let outerFields = JSONFields<OuterField>()
    private static let fields = JSONFields<Field>()
    private static let reasonFields = JSONFields<ReasonField>()
    /// An error object is small; a larger body is some proxy's page.
    private static let maximumBytes = 64 << 10

    init(word: String) { self.word = word }

    /// Reads the body of an error answer; `nil` where it is no error object, as with the pages of front ends.
    init?(body: [UInt8]) {
        guard !body.isEmpty, body.count <= Self.maximumBytes else { return nil }
        var isError = false
        var reason: String?
        var detail: String?
        var status: String?
        do throws(JSONFault) {
            var reader = try JSONReader(body)
            try reader.readObject(Self.outerFields) { reader, _ throws(JSONFault) in
                isError = true
                try reader.readObject(Self.fields) { reader, field throws(JSONFault) in
                    switch field {
                    case .status: status = try reader.readOptionalString()
                    case .errors: reason = try Self.firstReason(&reader)
                    case .details: detail = try Self.firstReason(&reader)
                    }
                }
            }
            try reader.finish()
        } catch { return nil }
        guard isError else { return nil }
        word = reason ?? detail ?? status ?? ""
    }

    private static func firstReason(_ reader: inout JSONReader) throws(JSONFault) -> String? {
        guard try !reader.readNull() else { return nil }
        var reason: String?
        try reader.readArray { reader throws(JSONFault) in
            try reader.readObject(reasonFields) { reader, _ throws(JSONFault) in
                let text = try reader.readOptionalString()
                reason = reason ?? text
            }
        }
        return reason.flatMap { $0.isEmpty ? nil : $0 }
    }
}

/// What an answer's status and word come to.
enum GooglePlayAnswerClass: Hashable, Sendable {
    /// 2xx: the body is to be decoded, where one is expected.
    case content
    /// Google knows no such thing, or not for our app.
    case unknown
    /// Google will not tell about it any more.
    case gone
    /// The purchase is in no state for it, or another process was faster; only of use to what changes a purchase.
    case conflict(ReadFailure.Code)
    /// The access token is not good any more.
    case stale
    case failure(ReadFailure.Code)
}

/// One row of the table of answers.
struct GooglePlayAnswerRule: Sendable {
    enum Word: Hashable, Sendable {
        /// Any word, or no error object at all.
        case any
        /// An error object, whatever it says: Google's own answer.
        case some
        case oneOf(Set<String>)
    }

    var statuses: ClosedRange<Int>
    var word: Word
    var outcome: GooglePlayAnswerClass

    init(_ statuses: ClosedRange<Int>, _ word: Word, _ outcome: GooglePlayAnswerClass) {
        self.statuses = statuses
        self.word = word
        self.outcome = outcome
    }

    func holds(status: Int, error: GooglePlayError?) -> Bool {
        guard statuses.contains(status) else { return false }
        return switch word {
        case .any: true
        case .some: error != nil
        case .oneOf(let words): error.map { words.contains($0.word) } ?? false
        }
    }
}

private let badTokens: GooglePlayAnswerRule.Word = .oneOf([
    "invalid", "required", "INVALID_ARGUMENT", "purchaseTokenDoesNotMatchPackageName",
    "purchaseTokenDoesNotMatchProductId", "purchaseTokenNotFound", "notFound",
])

/// A rate limit in the form of a lack of permission.
private let quotas: GooglePlayAnswerRule.Word = .oneOf([
    "rateLimitExceeded", "userRateLimitExceeded", "dailyLimitExceeded", "quotaExceeded", "RATE_LIMIT_EXCEEDED",
    "RESOURCE_EXHAUSTED",
])

/// Rights that the account lacks: a new access token does not help.
private let rights: GooglePlayAnswerRule.Word = .oneOf([
    "permissionDenied", "PERMISSION_DENIED", "developerDoesNotOwnApplication", "projectNotLinked",
    "accessNotConfigured", "SERVICE_DISABLED", "insufficientPermissions", "forbidden",
])

/// Every answer, and what it means; the first row that holds decides.
///
/// - SeeAlso: https://developers.google.com/android-publisher/errors
let googlePlayAnswerRules: [GooglePlayAnswerRule] = [
    //                   status     word    outcome
    GooglePlayAnswerRule(200...299, .any, .content),
    // Redirects are not followed: the token goes to the configured host alone.
    GooglePlayAnswerRule(300...399, .any, .failure(.unavailable)),
    GooglePlayAnswerRule(400...400, badTokens, .unknown),
    GooglePlayAnswerRule(400...400, .some, .conflict(.rejected)),
    GooglePlayAnswerRule(401...401, rights, .failure(.unauthorized)),
    GooglePlayAnswerRule(401...401, .any, .stale),
    GooglePlayAnswerRule(403...403, quotas, .failure(.throttled)),
    GooglePlayAnswerRule(403...403, .some, .failure(.unauthorized)),
    // The package itself: our setting is wrong, and no purchase is any the less there.
    GooglePlayAnswerRule(404...404, .oneOf(["applicationNotFound"]), .failure(.unauthorized)),
    GooglePlayAnswerRule(404...404, .some, .unknown),
    GooglePlayAnswerRule(408...408, .any, .failure(.timeout)),
    GooglePlayAnswerRule(409...409, .some, .conflict(.unavailable)),
    GooglePlayAnswerRule(410...410, .some, .gone),
    GooglePlayAnswerRule(412...412, .some, .conflict(.rejected)),
    GooglePlayAnswerRule(429...429, .any, .failure(.throttled)),
    GooglePlayAnswerRule(400...499, .some, .failure(.rejected)),
    // Without Google's own word it is a front end's or a proxy's, and says nothing about a purchase or a key.
    GooglePlayAnswerRule(400...499, .any, .failure(.unavailable)),
    GooglePlayAnswerRule(500...599, .any, .failure(.unavailable)),
]

/// Finds an answer in the table.
///
/// - Returns: `unavailable` for statuses that HTTP does not have.
func classify(status: Int, error: GooglePlayError?) -> GooglePlayAnswerClass {
    let rule = googlePlayAnswerRules.first { $0.holds(status: status, error: error) }
    return rule?.outcome ?? .failure(.unavailable)
}

/// Finds an answer in the table, and weighs it by what was requested.
///
/// - Parameters:
///   - status: of HTTP.
///   - error: the body, where it is an error object.
///   - purpose: what our records hold is known to be of our app, and what a client has named need not make sense.
/// - Returns: what the answer comes to.
func classify(status: Int, error: GooglePlayError?, purpose: StoreCall.Purpose) -> GooglePlayAnswerClass {
    switch (classify(status: status, error: error), purpose) {
    // Our setting is wrong, and no purchase is any the less there.
    case (.unknown, .reading) where error?.word == "purchaseTokenDoesNotMatchPackageName": .failure(.unauthorized)
    case (.conflict(.rejected), .lookup): .unknown
    case (let outcome, _): outcome
    }
}
