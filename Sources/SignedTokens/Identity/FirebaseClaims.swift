import TextFormats

/// What an ID token says; it proves nothing before its signature is verified.
package struct FirebaseClaims: Sendable {
    package var issuer: String
    package var audience: String
    package var subject: String
    /// Seconds since 1970.
    package var issuedAt: Int64
    package var expiresAt: Int64
    package var signedInAt: Int64
    package var tenant: String?
    /// How the user signed in, 1 to 64 visible ASCII characters such as `apple.com`; `nil` where it is none of these.
    package var signInProvider: String?

    private enum Field: String, CaseIterable {
        case iss, aud, sub, iat, exp, firebase
        case authTime = "auth_time"
    }
    private enum FirebaseField: String, CaseIterable {
        case tenant
        case provider = "sign_in_provider"
    }

    private static let fields = JSONFields<Field>()
    private static let firebaseFields = JSONFields<FirebaseField>()
    /// The year 10,000: later times are none.
    private static let latest: Int64 = 253_402_300_800

    /// Reads a payload.
    ///
    /// - Throws: `malformed` where it is no JSON object, or a member is missing or of a wrong type.
    package init(payload: [UInt8]) throws(TokenRefusal) {
        var texts: [Field: String] = [:]
        var times: [Field: Int64] = [:]
        var tenant: String?
        var provider: String?
        do throws(JSONFault) {
            try JSONReader.readObject(in: payload, Self.fields) { reader, field throws(JSONFault) in
                switch field {
                case .iss, .aud, .sub: texts[field] = try reader.readString()
                case .iat, .exp, .authTime: times[field] = try reader.readOptionalInteger()
                case .firebase:
                    try reader.readObject(Self.firebaseFields) { reader, field throws(JSONFault) in
                        let text = try reader.readOptionalString()
                        switch field {
                        case .tenant: tenant = text
                        case .provider: provider = text
                        }
                    }
                }
            }
        } catch { throw .malformed }
        guard let issuer = texts[.iss], let audience = texts[.aud], let subject = texts[.sub],
            let issuedAt = times[.iat], let expiresAt = times[.exp], let signedInAt = times[.authTime],
            times.values.allSatisfy((0...Self.latest).contains)
        else { throw .malformed }
        self.issuer = issuer
        self.audience = audience
        self.subject = subject
        self.issuedAt = issuedAt
        self.expiresAt = expiresAt
        self.signedInAt = signedInAt
        self.tenant = tenant
        signInProvider = provider.flatMap { text in
            (1...64).contains(text.utf8.count) && text.utf8.allSatisfy { (0x21...0x7E).contains($0) } ? text : nil
        }
    }
}
