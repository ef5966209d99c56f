import TextFormats

/// What a token, or the user info, of an OpenID Connect issuer says; it counts once its signature is verified.
///
/// - SeeAlso: RFC 7519, section 4.1; OpenID Connect Core 1.0, section 2
package struct IssuerClaims: Sendable {
    private(set) var issuer = ""
    private(set) var audiences: [String] = []
    private(set) var subject = ""
    /// Seconds since 1970.
    private(set) var expiresAt: Int64?
    private(set) var issuedAt: Int64?
    private(set) var notBefore: Int64?
    private(set) var signedInAt: Int64?
    private(set) var authorizedParty: String?
    private(set) var nonce: String?
    /// Of the claim that a setting names; more than one where it is a list.
    private(set) var named: [String]?
    /// What people are called, in order of preference: `preferred_username`, `email`, `name`.
    private(set) var names: [String] = []

    private enum Field: Sendable {
        case iss, aud, sub, exp, iat, nbf, authTime, azp, nonce, username, email, name
        case named
    }

    /// The most values of a claim that are read; a person is in a few groups that matter here.
    private static let mostValues = 1_000
    /// The year 10,000: later times are none.
    private static let latest: Int64 = 253_402_300_800

    /// Reads a payload, with one claim more, of text or of a list of texts.
    ///
    /// `malformed` where it is no JSON object, or a member is missing or of a wrong type.
    package init(payload: [UInt8], claim: String) throws(TokenRefusal) {
        do throws(JSONFault) { try read(payload, claim) } catch { throw .malformed }
        let times = [expiresAt, issuedAt, notBefore, signedInAt].compactMap(\.self)
        guard times.allSatisfy({ (0...Self.latest).contains($0) }) else { throw .malformed }
    }

    private mutating func read(_ payload: [UInt8], _ claim: String) throws(JSONFault) {
        var found: [Int: String] = [:]
        try JSONReader.readObject(in: payload, Self.fields(claim)) { reader, field throws(JSONFault) in
            switch field {
            case .iss: issuer = try reader.readString()
            case .aud: audiences = try Self.texts(&reader)
            case .sub: subject = try reader.readString()
            case .exp: expiresAt = try reader.readOptionalInteger()
            case .iat: issuedAt = try reader.readOptionalInteger()
            case .nbf: notBefore = try reader.readOptionalInteger()
            case .authTime: signedInAt = try reader.readOptionalInteger()
            case .azp: authorizedParty = try reader.readOptionalString()
            case .nonce: nonce = try reader.readOptionalString()
            case .username: found[0] = try reader.readOptionalString()
            case .email: found[1] = try reader.readOptionalString()
            case .name: found[2] = try reader.readOptionalString()
            case .named: named = try Self.texts(&reader)
            }
        }
        names = found.sorted { $0.key < $1.key }.map(\.value)
        // A setting may name a claim that is read anyway.
        let own = [
            "sub": subject.isEmpty ? nil : subject, "preferred_username": found[0], "email": found[1], "name": found[2],
        ]
        if named == nil, let text = own[claim] ?? nil { named = [text] }
    }

    /// A text, or a list of texts.
    private static func texts(_ reader: inout JSONReader) throws(JSONFault) -> [String] {
        if try reader.readNull() { return [] }
        let start = reader
        do throws(JSONFault) { return [try reader.readString()] } catch {
            guard error == .wrongType else { throw error }
            reader = start
        }
        var texts: [String] = []
        try reader.readArray { reader throws(JSONFault) in
            guard texts.count < mostValues else { throw .outOfRange }
            texts.append(try reader.readString())
        }
        return texts
    }

    private static func fields(_ claim: String) -> JSONFields<Field> {
        JSONFields([
            ("iss", .iss), ("aud", .aud), ("sub", .sub), ("exp", .exp), ("iat", .iat), ("nbf", .nbf),
            ("auth_time", .authTime), ("azp", .azp), ("nonce", .nonce), ("preferred_username", .username),
            ("email", .email), ("name", .name), (claim, .named),
        ])
    }
}
