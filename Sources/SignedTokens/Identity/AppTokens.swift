package import Entitlements

/// The user that an app's token names.
package struct TokenUser: Hashable, Sendable {
    /// The user's id, 1 to 128 characters.
    package var id: String
    /// Until when the token says so.
    package var expiresAt: Instant
    /// How the user signed in, in Firebase's words such as `apple.com` or `password`; `nil`: the token does not say.
    package var signInProvider: String?
    /// When the user signed in last; `nil`: the token does not say.
    package var signedInAt: Instant?
}

/// Verifies the tokens of the app's users, by the configured issuer that they name.
package struct AppTokens: Sendable {
    private let firebase: FirebaseTokens?
    private let issuer: IssuerTokens?

    /// - Returns: `nil` where neither is given: users' apps are not answered then.
    package init?(firebase: FirebaseTokens?, issuer: IssuerTokens?) {
        guard firebase != nil || issuer != nil else { return nil }
        self.firebase = firebase
        self.issuer = issuer
    }

    /// Finds the user that a token names.
    ///
    /// - Throws: `TokenFailure`; the claim `iss` chooses who verifies it, and is verified with the rest.
    package func user(of token: String) async throws(TokenFailure) -> TokenUser {
        if let issuer, firebase == nil || Self.says(token, issuer.issuer) { return try await issuer.user(of: token) }
        guard let firebase else { throw .refused(.wrongIssuer) }
        return try await firebase.user(of: token)
    }

    private static func says(_ token: String, _ issuer: String) -> Bool {
        guard let signed = try? CompactJWS(token, upTo: SignerKeys.maximumBytes),
            let claims = try? IssuerClaims(payload: signed.payload, claim: "sub")
        else { return false }
        return claims.issuer == issuer
    }
}
