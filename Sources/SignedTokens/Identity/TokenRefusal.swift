package import Entitlements

/// Why a token says nothing about who sends it; for security logs, never for the sender.
package enum TokenRefusal: String, Error, Sendable, CaseIterable {
    case tooLarge = "too_large"
    /// Not three parts, no JSON, or a member is missing or of a wrong type.
    case malformed
    case wrongAlgorithm = "wrong_algorithm"
    case wrongAudience = "wrong_audience"
    case wrongIssuer = "wrong_issuer"
    case wrongSubject = "wrong_subject"
    /// It answers another request than ours.
    case wrongNonce = "wrong_nonce"
    case expired
    /// Issued, or signed in, after now.
    case fromTheFuture = "from_the_future"
    /// No key of the signer has the name in the header.
    case unknownKey = "unknown_key"
    case badSignature = "bad_signature"
    /// Of a tenant, of which this project has none.
    case tenant
}

/// Why a token names no user.
package enum TokenFailure: Error, Hashable, Sendable {
    case refused(TokenRefusal)
    /// It may be genuine: the keys to verify it with could not be had.
    case unread(ReadFailure)
}
