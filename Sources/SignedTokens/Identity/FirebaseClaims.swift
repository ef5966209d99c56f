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
    package var provider: String?
    package var tenant: String?

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
        do throws(JSONFault) { self = try Self.read(payload) } catch { throw .malformed }
    }

    private init(_ texts: [Field: String], _ times: [Field: Int64]) throws(JSONFault) {
        func text(_ field: Field) throws(JSONFault) -> String {
            guard let text = texts[field] else { throw .missing }
            return text
        }
        func time(_ field: Field) throws(JSONFault) -> Int64 {
            guard let time = times[field] else { throw .missing }
            guard (0...Self.latest).contains(time) else { throw .outOfRange }
            return time
        }
        issuer = try text(.iss)
        audience = try text(.aud)
        subject = try text(.sub)
        issuedAt = try time(.iat)
        expiresAt = try time(.exp)
        signedInAt = try time(.authTime)
    }

    private static func read(_ payload: [UInt8]) throws(JSONFault) -> FirebaseClaims {
        var reader = try JSONReader(payload)
        var texts: [Field: String] = [:]
        var times: [Field: Int64] = [:]
        var provider: String?
        var tenant: String?
        try reader.readObject(fields) { reader, field throws(JSONFault) in
            switch field {
            case .iss, .aud, .sub: texts[field] = try reader.readString()
            case .iat, .exp, .authTime: times[field] = try reader.readOptionalInteger()
            case .firebase:
                try reader.readObject(firebaseFields) { reader, field throws(JSONFault) in
                    switch field {
                    case .tenant: tenant = try reader.readOptionalString()
                    case .provider: provider = try reader.readOptionalString()
                    }
                }
            }
        }
        try reader.finish()
        var claims = try FirebaseClaims(texts, times)
        claims.provider = provider
        claims.tenant = tenant
        return claims
    }
}
