/// What an ID token is to say; also the body of `POST /control/identity/firebase-token`.
package struct FirebaseTokenRequest: Sendable, Hashable {
    /// The user's id.
    package var subject: String
    /// The project that issuer and audience name; the scenario's by default.
    package var project: String?
    /// The project's id by default.
    package var audience: String?
    /// Firebase's address of the project by default.
    package var issuer: String?
    /// In Unix seconds; the simulated time by default.
    package var issuedAt: Int64?
    /// In Unix seconds; an hour after it was issued by default.
    package var expiresAt: Int64?
    /// When the user signed in, in Unix seconds; when the token was issued by default.
    package var signedInAt: Int64?
    /// How the user signed in, any text.
    package var provider = "password"
    package var tenant: String?
    package var signing = TokenSigning()

    /// Makes a request for the usual token of a user.
    package init(subject: String) {
        self.subject = subject
    }

    /// The claims of a token that is made at a moment.
    ///
    /// - Parameters:
    ///   - usualProject: the scenario's.
    ///   - nowMs: simulated Unix milliseconds.
    /// - Returns: a JSON object.
    func claims(usualProject: String, nowMs: Int64) -> [UInt8] {
        let project = project ?? usualProject
        let issuedAt = issuedAt ?? nowMs / 1000
        var json = JSONBytes(capacity: 512)
        json.beginObject()
        json.key("iss")
        json.value(issuer ?? "https://securetoken.google.com/\(project)")
        json.key("aud")
        json.value(audience ?? project)
        json.key("auth_time")
        json.value(signedInAt ?? issuedAt)
        json.key("user_id")
        json.value(subject)
        json.key("sub")
        json.value(subject)
        json.key("iat")
        json.value(issuedAt)
        json.key("exp")
        json.value(expiresAt ?? issuedAt &+ 3600)
        json.key("firebase")
        json.beginObject()
        json.key("identities")
        json.beginObject()
        json.endObject()
        json.key("sign_in_provider")
        json.value(provider)
        if let tenant {
            json.key("tenant")
            json.value(tenant)
        }
        json.endObject()
        json.endObject()
        return json.bytes
    }
}

extension FirebaseTokenRequest: Decodable {
    enum CodingKeys: String, CodingKey, CaseIterable {
        case sub, project, aud, iss, iat, exp, provider, tenant, kid, alg, tampered
        case authTime = "auth_time"
    }

    package init(from decoder: any Decoder) throws {
        let fields = try StrictFields<CodingKeys>(decoder)
        self.init(subject: try fields.required(.sub))
        project = try fields.optional(.project)
        audience = try fields.optional(.aud)
        issuer = try fields.optional(.iss)
        issuedAt = try fields.optional(.iat)
        expiresAt = try fields.optional(.exp)
        signedInAt = try fields.optional(.authTime)
        provider = try fields.optional(.provider) ?? provider
        tenant = try fields.optional(.tenant)
        signing.keyName = try fields.optional(.kid)
        signing.algorithm = try fields.optional(.alg) ?? .rs256
        signing.isTampered = try fields.optional(.tampered) ?? false
    }
}
