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
        var reader = try JSONReader(body)
        try reader.readObject(Self.fields) { reader, field throws(JSONFault) in
            switch field {
            case .text: text = try reader.readString(upTo: Self.maximumTokenBytes)
            // Usually a number; Google's own library takes a text as well.
            case .expiresIn: expiresIn = try reader.readIntegerOrText()
            case .type:
                guard try (reader.readOptionalString() ?? "Bearer").lowercased() == "bearer" else { throw .wrongType }
            }
        }
        try reader.finish()
        guard let text, !text.isEmpty, let expiresIn else { throw .missing }
        // It goes into a header as it is.
        guard text.utf8.allSatisfy({ (0x21...0x7E).contains($0) }), (0...86_400 * 365).contains(expiresIn) else {
            throw .outOfRange
        }
        self.text = text
        self.expiresIn = expiresIn
    }
}

/// One row of the table of the token endpoint's answers.
struct TokenAnswerRule: Sendable {
    var statuses: ClosedRange<Int>
    /// The `error` member; `nil`: any word, or none.
    var words: Set<String>?
    /// Whether there has to be an `error` member, whatever it says.
    var needsWord: Bool
    /// `nil`: the body holds a token.
    var failure: ReadFailure.Code?

    init(
        _ statuses: ClosedRange<Int>,
        _ words: Set<String>?,
        needsWord: Bool = false,
        _ failure: ReadFailure.Code?
    ) {
        self.statuses = statuses
        self.words = words
        self.needsWord = needsWord
        self.failure = failure
    }
}

/// Every answer of the token endpoint, and what it means; the first row that holds decides.
///
/// - SeeAlso: https://developers.google.com/identity/protocols/oauth2/service-account
let tokenAnswerRules: [TokenAnswerRule] = [
    //              status     error                                                     failure
    TokenAnswerRule(200...299, nil, nil),
    TokenAnswerRule(300...399, nil, .unavailable),
    TokenAnswerRule(400...599, ["internal_failure", "server_error", "temporarily_unavailable"], .unavailable),
    TokenAnswerRule(408...408, nil, .timeout),
    TokenAnswerRule(429...429, nil, .throttled),
    // The key, the account, the clock or the scope is wrong: asking again does not help, an operator has to act.
    TokenAnswerRule(400...499, nil, needsWord: true, .unauthorized),
    // Some proxy's word, not Google's.
    TokenAnswerRule(400...499, nil, .unavailable),
    TokenAnswerRule(500...599, nil, .unavailable),
]

/// Finds an answer of the token endpoint in the table.
///
/// - Parameters:
///   - status: the HTTP status.
///   - word: the `error` member, where the body has one.
/// - Returns: `nil` where the body holds a token; `unavailable` for statuses that HTTP does not have.
func tokenFailure(status: Int, word: String?) -> ReadFailure.Code? {
    let rule = tokenAnswerRules.first { rule in
        rule.statuses.contains(status) && (rule.words?.contains(word ?? "") ?? true) && (!rule.needsWord || word != nil)
    }
    guard let rule else { return .unavailable }
    return rule.failure
}

private enum TokenErrorField: String, CaseIterable { case error }
private let tokenErrorFields = JSONFields<TokenErrorField>()

/// The `error` member of an answer; `nil` where the body has none or is no JSON object.
func tokenErrorWord(_ body: [UInt8]) -> String? {
    var word: String?
    do throws(JSONFault) {
        var reader = try JSONReader(body)
        try reader.readObject(tokenErrorFields) { reader, _ throws(JSONFault) in word = try reader.readString() }
        try reader.finish()
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
