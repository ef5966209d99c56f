import Entitlements
import TextFormats

/// The error object that the API sends with a status other than 2xx, as far as it is used.
struct GooglePlayError: Hashable, Sendable {
    /// What the error is, in one word: the first reason, else that of the details, else the canonical status.
    ///
    /// Empty where the object names none.
    var word: String

    private enum Field: String, CaseIterable { case status, errors, details }

    private static let object = JSONFields(only: "error")
    private static let fields = JSONFields<Field>()
    private static let reason = JSONFields(only: "reason")
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
            try JSONReader.readObject(in: body, Self.object) { reader, _ throws(JSONFault) in
                isError = true
                try reader.readObject(Self.fields) { reader, field throws(JSONFault) in
                    switch field {
                    case .status: status = try reader.readOptionalString()
                    case .errors: reason = try Self.firstReason(&reader)
                    case .details: detail = try Self.firstReason(&reader)
                    }
                }
            }
        } catch { return nil }
        guard isError else { return nil }
        word = reason ?? detail ?? status ?? ""
    }

    private static func firstReason(_ reader: inout JSONReader) throws(JSONFault) -> String? {
        guard try !reader.readNull() else { return nil }
        var reason: String?
        try reader.readArray { reader throws(JSONFault) in
            try reader.readObject(Self.reason) { reader, _ throws(JSONFault) in
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

/// What an error object has to say for a row of the table of answers to hold.
enum GooglePlayErrorWord: Hashable, Sendable {
    /// Any word, or no error object at all.
    case any
    /// An error object, whatever it says: Google's own answer.
    case some
    case oneOf(Set<String>)

    func holds(for error: GooglePlayError?) -> Bool {
        switch self {
        case .any: true
        case .some: error != nil
        case .oneOf(let words): error.map { words.contains($0.word) } ?? false
        }
    }
}

private let badTokens: GooglePlayErrorWord = .oneOf([
    "invalid", "required", "INVALID_ARGUMENT", "purchaseTokenDoesNotMatchPackageName",
    "purchaseTokenDoesNotMatchProductId", "purchaseTokenNotFound", "notFound",
])

/// A rate limit in the form of a lack of permission.
private let quotas: GooglePlayErrorWord = .oneOf([
    "rateLimitExceeded", "userRateLimitExceeded", "dailyLimitExceeded", "quotaExceeded", "RATE_LIMIT_EXCEEDED",
    "RESOURCE_EXHAUSTED",
])

/// Rights that the account lacks: a new access token does not help.
private let rights: GooglePlayErrorWord = .oneOf([
    "permissionDenied", "PERMISSION_DENIED", "developerDoesNotOwnApplication", "projectNotLinked",
    "accessNotConfigured", "SERVICE_DISABLED", "insufficientPermissions", "forbidden",
])

/// Every answer, and what it means; the first row that holds decides.
///
/// - SeeAlso: https://developers.google.com/android-publisher/errors
let googlePlayAnswerRules: [(statuses: ClosedRange<Int>, word: GooglePlayErrorWord, outcome: GooglePlayAnswerClass)] = [
    // status  word  outcome
    (200...299, .any, .content),
    // Redirects are not followed: the token goes to the configured host alone.
    (300...399, .any, .failure(.unavailable)),
    (400...400, badTokens, .unknown),
    (400...400, .some, .conflict(.rejected)),
    (401...401, rights, .failure(.unauthorized)),
    (401...401, .any, .stale),
    (403...403, quotas, .failure(.throttled)),
    (403...403, .some, .failure(.unauthorized)),
    // The package itself: our setting is wrong, and no purchase is any the less there.
    (404...404, .oneOf(["applicationNotFound"]), .failure(.unauthorized)),
    (404...404, .some, .unknown),
    (408...408, .any, .failure(.timeout)),
    (409...409, .some, .conflict(.unavailable)),
    (410...410, .some, .gone),
    (412...412, .some, .conflict(.rejected)),
    (429...429, .any, .failure(.throttled)),
    (400...499, .some, .failure(.rejected)),
    // Without Google's own word it is a front end's or a proxy's, and says nothing about a purchase or a key.
    (400...499, .any, .failure(.unavailable)),
    (500...599, .any, .failure(.unavailable)),
]

/// Finds an answer in the table; `unavailable` for statuses that HTTP does not have.
func classify(status: Int, error: GooglePlayError?) -> GooglePlayAnswerClass {
    let rule = googlePlayAnswerRules.first { $0.statuses.contains(status) && $0.word.holds(for: error) }
    return rule?.outcome ?? .failure(.unavailable)
}

/// Finds an answer in the table, and weighs it by what was requested.
///
/// What our records hold is known to be of our app, and what a client has named need not make sense.
func classify(status: Int, error: GooglePlayError?, purpose: StoreCall.Purpose) -> GooglePlayAnswerClass {
    switch (classify(status: status, error: error), purpose) {
    // Our setting is wrong, and no purchase is any the less there.
    case (.unknown, .reading) where error?.word == "purchaseTokenDoesNotMatchPackageName": .failure(.unauthorized)
    case (.conflict(.rejected), .lookup): .unknown
    case (let outcome, _): outcome
    }
}
