internal import CryptoExtras
internal import Foundation

extension StoreSimulator {
    /// The key file of the service account that every simulator of this process lets in.
    ///
    /// Its key is made on first use; only simulators trust it.
    package static var googleServiceAccount: String { GoogleServiceAccount.shared.keyFile }
}

/// The simulator's own service account, in the place of one of Google Cloud's.
struct GoogleServiceAccount: Sendable {
    static let shared = GoogleServiceAccount()
    static let email = "simulator@simulated-project.iam.gserviceaccount.com"

    let keyFile: String
    private let publicKey: _RSA.Signing.PublicKey

    private init() {
        guard let key = try? KeyRing.key("google-service-account"),
            let file = try? JSONSerialization.data(
                withJSONObject: [
                    "type": "service_account",
                    "project_id": "simulated-project",
                    "private_key_id": "0123456789abcdef0123456789abcdef01234567",
                    "private_key": key.pkcs8PEMRepresentation + "\n",
                    "client_email": Self.email,
                    "client_id": "100000000000000000001",
                    "auth_uri": "https://accounts.google.com/o/oauth2/auth",
                    "token_uri": "https://oauth2.googleapis.com/token",
                    "universe_domain": "googleapis.com",
                ],
                options: [.sortedKeys, .prettyPrinted, .withoutEscapingSlashes]
            )
        else { fatalError("no RSA key can be made") }
        keyFile = String(decoding: file, as: UTF8.self)
        publicKey = key.publicKey
    }

    private static let audience = "https://oauth2.googleapis.com/token"
    static let androidPublisher = "https://www.googleapis.com/auth/androidpublisher"
    static let identityToolkit = "https://www.googleapis.com/auth/identitytoolkit"

    /// Checks an assertion, a compact JWS, by the machine's clock in seconds since 1970; returns the scopes that it asks for.
    func check(_ assertion: String, at seconds: Int64) throws(GooglePlayFailure) -> [String] {
        guard let parts = SignedText.Parts(assertion), let header = Self.object(parts.header),
            let claims = Self.object(parts.claims)
        else { throw .grant("Bad Request") }
        guard claims["iss"] as? String == Self.email else { throw .grant("Invalid grant: account not found") }
        let isValid = publicKey.isValidSignature(
            _RSA.Signing.RSASignature(rawRepresentation: parts.signature),
            for: parts.signed,
            padding: .insecurePKCS1v1_5
        )
        guard header["alg"] as? String == "RS256", isValid else { throw .grant("Invalid JWT Signature.") }
        guard claims["aud"] as? String == Self.audience else { throw .grant("Invalid JWT: Failed audience check.") }
        guard let issued = claims["iat"] as? Int64 else { throw .grant("Invalid JWT: iat is not set.") }
        guard let expires = claims["exp"] as? Int64 else { throw .grant("Invalid JWT: exp is not set.") }
        // A clock may be five minutes fast.
        guard issued <= seconds + 300, expires > seconds, expires - issued <= 3_600, issued <= expires else {
            throw .grant(
                "Invalid JWT: Token must be a short-lived token (60 minutes) and in a reasonable timeframe. "
                    + "Check your iat and exp values in the JWT claim."
            )
        }
        let scopes = (claims["scope"] as? String ?? "").split(separator: " ").map(String.init)
        guard !scopes.isEmpty, Set(scopes).isSubset(of: [Self.androidPublisher, Self.identityToolkit]) else {
            throw GooglePlayFailure(400, "invalid_scope", "Invalid OAuth scope or ID token audience provided.")
        }
        return scopes
    }

    private static func object(_ part: Data) -> [String: Any]? {
        try? JSONSerialization.jsonObject(with: part) as? [String: Any]
    }
}

extension GooglePlayFailure {
    /// An assertion that the token endpoint refuses.
    fileprivate static func grant(_ message: String) -> Self { Self(400, "invalid_grant", message) }
}
