import Entitlements
import TextFormats

/// A token as the endpoint gives it out.
struct GrantedToken: Sendable {
    var text: String
    /// How long it is good for from the time of asking, in seconds.
    var expiresIn: Int64

    private enum Field: String, CaseIterable {
        case text = "access_token"
        case expiresIn = "expires_in"
        case type = "token_type"
    }

    private static let fields = JSONFields<Field>()
    private static let maximumTokenBytes = 8 << 10

    /// Reads the body of a 2xx answer.
    init(_ body: [UInt8]) throws(JSONFault) {
        var text: String?
        var expiresIn: Int64?
        try JSONReader.readObject(in: body, Self.fields) { reader, field throws(JSONFault) in
            switch field {
            case .text: text = try reader.readString(upTo: Self.maximumTokenBytes)
            // Usually a number; Google's own library takes a text as well.
            case .expiresIn: expiresIn = try reader.readIntegerOrText()
            case .type:
                guard try (reader.readOptionalString() ?? "Bearer").lowercased() == "bearer" else { throw .wrongType }
            }
        }
        guard let text, !text.isEmpty, let expiresIn else { throw .missing }
        // It goes into a header as it is.
        guard text.utf8.allSatisfy(\.isVisible), (0...86_400 * 365).contains(expiresIn) else {
            throw .outOfRange
        }
        self.text = text
        self.expiresIn = expiresIn
    }
}

/// Every answer of the token endpoint, and what it means; the first row that holds decides.
///
/// `words` are those of the `error` member, `nil` being any or none; with `needsWord` there has to be one, whatever it
/// says. Where `failure` is `nil` the body holds a token.
///
/// - SeeAlso: https://developers.google.com/identity/protocols/oauth2/service-account
let tokenAnswerRules: [(statuses: ClosedRange<Int>, words: Set<String>?, needsWord: Bool, failure: ReadFailure.Code?)] =
    [
        // status  error  needs one  failure
        (200...299, nil, false, nil),
        (300...399, nil, false, .unavailable),
        (400...599, ["internal_failure", "server_error", "temporarily_unavailable"], false, .unavailable),
        (408...408, nil, false, .timeout),
        (429...429, nil, false, .throttled),
        // The key, the account, the clock or the scope is wrong: asking again does not help, an operator has to act.
        (400...499, nil, true, .unauthorized),
        // Some proxy's word, not Google's.
        (400...499, nil, false, .unavailable),
        (500...599, nil, false, .unavailable),
    ]

/// Finds an answer of the token endpoint, with its `error` member, in the table; `nil` where the body holds a token.
///
/// `unavailable` for statuses that HTTP does not have.
func tokenFailure(status: Int, word: String?) -> ReadFailure.Code? {
    let rule = tokenAnswerRules.first { rule in
        rule.statuses.contains(status) && (rule.words?.contains(word ?? "") ?? true) && (!rule.needsWord || word != nil)
    }
    guard let rule else { return .unavailable }
    return rule.failure
}

private let tokenError = JSONFields(only: "error")

/// The `error` member of an answer; `nil` where the body has none or is no JSON object.
func tokenErrorWord(_ body: [UInt8]) -> String? {
    var word: String?
    do throws(JSONFault) {
        try JSONReader.readObject(in: body, tokenError) { reader, _ throws(JSONFault) in
            word = try reader.readString()
        }
    } catch { return nil }
    return word
}

extension JSONReader {
    /// Reads a whole number that may also be written as a text, as 64-bit numbers are in Google's JSON.
    mutating func readIntegerOrText() throws(JSONFault) -> Int64 {
        guard try token() == UInt8(ascii: "\"") else { return try readInteger() }
        guard let value = Int64(try readString()) else { throw .outOfRange }
        return value
    }
}
