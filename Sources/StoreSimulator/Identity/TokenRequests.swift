/// How a token's signature is made.
package enum TokenAlgorithm: String, ScenarioWord {
    case rs256 = "RS256"
    /// With a code whose secret is the public key, which everybody knows.
    case hs256 = "HS256"
    /// Not at all.
    case unsigned = "none"
}

/// How a token is signed, so that a verifier can show what it notices.
struct TokenSigning {
    /// The key's name in the header; `nil`: that of the key which signs now, empty: the header has none.
    ///
    /// The name of an earlier key, or of a later one, makes that key sign.
    var keyName: String?
    var algorithm = TokenAlgorithm.rs256
    /// Whether a byte of the signature is altered.
    var isTampered = false
}

/// What an ID token is to say; also the body of `POST /control/identity/firebase-token`.
package struct FirebaseTokenRequest: ScenarioObject {
    /// The user's id.
    var subject = ""
    /// The project that issuer and audience name; the scenario's by default.
    var project: String?
    /// The project's id by default.
    var audience: String?
    /// Firebase's address of the project by default.
    var issuer: String?
    /// In Unix seconds; the simulated time by default.
    var issuedAt: Int64?
    /// In Unix seconds; an hour after it was issued by default.
    package var expiresAt: Int64?
    /// When the user signed in, in Unix seconds; when the token was issued by default.
    var signedInAt: Int64?
    /// How the user signed in, any text.
    var provider = "password"
    var tenant: String?
    var signing = TokenSigning()

    package init() {}

    package init(subject: String) {
        self.subject = subject
    }

    package static let fields: [ScenarioField<Self>] = [
        .required("sub", \.subject), .optional("project", \.project), .optional("aud", \.audience),
        .optional("iss", \.issuer), .optional("iat", \.issuedAt), .optional("exp", \.expiresAt),
        .optional("auth_time", \.signedInAt), .value("provider", \.provider), .optional("tenant", \.tenant),
        .optional("kid", \.signing.keyName), .value("alg", \.signing.algorithm),
        .value("tampered", \.signing.isTampered),
    ]

    /// The claims of a token that is made at a moment.
    func claims(usualProject: String, nowMs: Int64) -> [UInt8] {
        let project = project ?? usualProject
        let issuedAt = issuedAt ?? nowMs / 1000
        return JSONBytes.object { json in
            json.member("iss", issuer ?? "https://securetoken.google.com/\(project)")
            json.member("aud", audience ?? project)
            json.member("auth_time", signedInAt ?? issuedAt)
            json.member("user_id", subject)
            json.member("sub", subject)
            json.member("iat", issuedAt)
            json.member("exp", expiresAt ?? issuedAt &+ 3600)
            json.object("firebase") { json in
                json.object("identities")
                json.member("sign_in_provider", provider)
                json.optional("tenant", tenant)
            }
        }
    }
}

/// What the token of a push is to say; also the body of `POST /control/identity/push-token`.
struct PushTokenRequest: ScenarioObject {
    /// The token's audience; the scenario's by default.
    var audience: String?
    /// In whose name; the scenario's service account by default.
    var email: String?
    var isEmailVerified = true
    /// Google by default.
    var issuer: String?
    /// In Unix seconds; the simulated time by default.
    var issuedAt: Int64?
    /// In Unix seconds; an hour after it was issued by default.
    var expiresAt: Int64?
    var signing = TokenSigning()

    static let fields: [ScenarioField<Self>] = [
        .optional("audience", \.audience), .optional("email", \.email), .value("email_verified", \.isEmailVerified),
        .optional("iss", \.issuer), .optional("iat", \.issuedAt), .optional("exp", \.expiresAt),
        .optional("kid", \.signing.keyName), .value("alg", \.signing.algorithm),
        .value("tampered", \.signing.isTampered),
    ]

    /// The claims of a token that is made at a moment.
    func claims(usual: PubSubScenario, nowMs: Int64) -> [UInt8] {
        let issuedAt = issuedAt ?? nowMs / 1000
        return JSONBytes.object { json in
            json.member("aud", audience ?? usual.audience)
            json.member("azp", literal: "100000000000000000002")
            json.member("email", email ?? usual.serviceAccount)
            json.member("email_verified", isEmailVerified)
            json.member("exp", expiresAt ?? issuedAt &+ 3600)
            json.member("iat", issuedAt)
            json.member("iss", issuer ?? "https://accounts.google.com")
            json.member("sub", literal: "100000000000000000002")
        }
    }
}
