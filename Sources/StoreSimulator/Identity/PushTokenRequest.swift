/// What the token of a push is to say; also the body of `POST /control/identity/push-token`.
package struct PushTokenRequest: Sendable, Hashable {
    /// The token's audience; the scenario's by default.
    package var audience: String?
    /// In whose name; the scenario's service account by default.
    package var email: String?
    package var isEmailVerified = true
    /// Google by default.
    package var issuer: String?
    /// In Unix seconds; the simulated time by default.
    package var issuedAt: Int64?
    /// In Unix seconds; an hour after it was issued by default.
    package var expiresAt: Int64?
    package var signing = TokenSigning()

    /// Makes a request for the token that goes with pushes.
    package init(audience: String? = nil, email: String? = nil) {
        self.audience = audience
        self.email = email
    }

    /// The claims of a token that is made at a moment.
    ///
    /// - Parameters:
    ///   - usual: the scenario's subscription.
    ///   - nowMs: simulated Unix milliseconds.
    /// - Returns: a JSON object.
    func claims(usual: PubSubScenario, nowMs: Int64) -> [UInt8] {
        let issuedAt = issuedAt ?? nowMs / 1000
        var json = JSONBytes(capacity: 512)
        json.beginObject()
        json.key("aud")
        json.value(audience ?? usual.audience)
        json.key("azp")
        json.literal("100000000000000000002")
        json.key("email")
        json.value(email ?? usual.serviceAccount)
        json.key("email_verified")
        json.value(isEmailVerified)
        json.key("exp")
        json.value(expiresAt ?? issuedAt &+ 3600)
        json.key("iat")
        json.value(issuedAt)
        json.key("iss")
        json.value(issuer ?? "https://accounts.google.com")
        json.key("sub")
        json.literal("100000000000000000002")
        json.endObject()
        return json.bytes
    }
}

extension PushTokenRequest: Decodable {
    enum CodingKeys: String, CodingKey, CaseIterable {
        case audience, email, iss, iat, exp, kid, alg, tampered
        case emailVerified = "email_verified"
    }

    package init(from decoder: any Decoder) throws {
        let fields = try StrictFields<CodingKeys>(decoder)
        self.init(audience: try fields.optional(.audience), email: try fields.optional(.email))
        isEmailVerified = try fields.optional(.emailVerified) ?? true
        issuer = try fields.optional(.iss)
        issuedAt = try fields.optional(.iat)
        expiresAt = try fields.optional(.exp)
        signing.keyName = try fields.optional(.kid)
        signing.algorithm = try fields.optional(.alg) ?? .rs256
        signing.isTampered = try fields.optional(.tampered) ?? false
    }
}
