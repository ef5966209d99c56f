import Entitlements
import TextFormats

/// What an answer about an account comes to.
enum FirebaseAnswer: Hashable, Sendable {
    case content
    case noAccount
    case tooLong
    /// The access token is not good any more.
    case stale
    case failure(ReadFailure.Code)
}

/// Every answer, and what it means; the first row that holds decides.
///
/// `words`: the first word of the error's message, `nil` being any or none; with `needsError` the body has to be an error object of
/// Google's.
let firebaseAnswerRules:
    [(statuses: ClosedRange<Int>, words: Set<String>?, needsError: Bool, outcome: FirebaseAnswer)] =
        [
            // status  words  needs error  outcome
            (200...299, nil, false, .content),
            // Redirects are not followed: the token goes to the configured host alone.
            (300...399, nil, false, .failure(.unavailable)),
            (400...404, ["USER_NOT_FOUND"], true, .noAccount),
            (400...400, ["CLAIMS_TOO_LARGE"], true, .tooLong),
            (
                400...403, ["QUOTA_EXCEEDED", "RESOURCE_EXHAUSTED", "TOO_MANY_ATTEMPTS_TRY_LATER"], true,
                .failure(.throttled)
            ),
            // The project, or a right that the account lacks: a new access token does not help.
            (
                400...404, ["CONFIGURATION_NOT_FOUND", "INSUFFICIENT_PERMISSION", "PROJECT_NOT_FOUND"], true,
                .failure(.unauthorized)
            ),
            (401...401, nil, false, .stale),
            (403...404, nil, true, .failure(.unauthorized)),
            (408...408, nil, false, .failure(.timeout)),
            (429...429, nil, false, .failure(.throttled)),
            (400...499, nil, true, .failure(.rejected)),
            // Without Google's own word it is a proxy's, and says nothing about an account or a key.
            (400...499, nil, false, .failure(.unavailable)),
            (500...599, nil, false, .failure(.unavailable)),
        ]

/// Finds an answer in the table; `unavailable` for statuses that HTTP does not have.
func firebaseAnswer(status: Int, message: String?) -> FirebaseAnswer {
    let word = message.map { String($0.prefix { $0 != " " && $0 != ":" }) } ?? ""
    let rule = firebaseAnswerRules.first { rule in
        rule.statuses.contains(status) && (rule.words?.contains(word) ?? true) && (!rule.needsError || message != nil)
    }
    return rule?.outcome ?? .failure(.unavailable)
}

private let errorObject = JSONFields(only: "error")
private let errorMessage = JSONFields(only: "message")

/// The message of an error object; empty where it has none, `nil` where the body is no error object.
func firebaseMessage(_ body: [UInt8]) -> String? {
    var message: String?
    do throws(JSONFault) {
        try JSONReader.readObject(in: body, errorObject) { reader, _ throws(JSONFault) in
            message = ""
            try reader.readObject(errorMessage) { reader, _ throws(JSONFault) in
                message = try reader.readOptionalString() ?? ""
            }
        }
    } catch { return nil }
    return message
}
