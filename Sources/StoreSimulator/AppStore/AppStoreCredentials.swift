internal import Crypto
internal import Foundation

/// The keys of the simulated App Store: one set for the process, for its certificates have to be handed to clients.
package enum AppStoreCredentials {
    /// Signs what the App Store signs; its certificates outlast every simulated time that tests need.
    package static let authority = Result {
        let decade: TimeInterval = 86_400 * 3650
        return try AppStoreAuthority(validFrom: Date() - decade, validUntil: Date() + decade)
    }

    /// Signs with a key that is not trusted.
    static let stranger = Result { try AppStoreAuthority() }

    /// The key that requests have to be signed with.
    static let requestKey = P256.Signing.PrivateKey()
}

/// Checks the tokens of requests.
struct AppStoreAdmission: Sendable {
    private struct Claims: Decodable {
        var iss: String
        var iat: Int64
        var exp: Int64
        var aud: String
        var bid: String
    }

    /// The longest life that a token may have, in seconds.
    private static let longestLife: Int64 = 3600
    /// Tokens that are remembered, so that one that is used again costs little.
    private static let capacity = 1000

    /// Until when known tokens are valid, in seconds.
    private var known: [String: Int64] = [:]

    /// Whether a token is good by the machine's time in seconds: a client's clock is not the simulated one.
    mutating func admits(_ token: String?, _ scenario: AppStoreScenario, at now: Int64) -> Bool {
        guard let token else { return false }
        if let end = known[token] { return now < end }
        guard let claims = verify(token, keyID: scenario.keyID), claims.iat <= now, now < claims.exp,
            claims.iat < claims.exp,
            claims.exp - claims.iat <= Self.longestLife, claims.iss == scenario.issuerID,
            claims.bid == scenario.bundleID,
            claims.aud == "appstoreconnect-v1"
        else { return false }
        if known.count >= Self.capacity { known = [:] }
        known[token] = claims.exp
        return true
    }

    private func verify(_ token: String, keyID: String) -> Claims? {
        guard !token.contains(where: { "+/=".contains($0) }), let parts = SignedText.Parts(token),
            let (head, claims): (SignedText.Parts.Header, Claims) = parts.decoded(), head.alg == "ES256",
            head.kid == keyID,
            let signature = try? P256.Signing.ECDSASignature(rawRepresentation: parts.signature),
            AppStoreCredentials.requestKey.publicKey.isValidSignature(signature, for: parts.signed)
        else { return nil }
        return claims
    }
}
