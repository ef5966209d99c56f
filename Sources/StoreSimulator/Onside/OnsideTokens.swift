internal import Crypto
internal import Foundation

/// Checks the tokens of requests as Onside does, and remembers each.
struct OnsideTokens: Sendable {
    /// How far the caller's clock may be off, in seconds.
    private static let tolerance: Int64 = 5
    /// The longest life of a token, in seconds.
    private static let longestLife: Int64 = 30

    private struct Claims: Decodable {
        var aud: String
        var iss: String
        var sub: String
        var nbf: Int64
        var exp: Int64
        var jti: String
    }

    /// Tokens that were used, and when they would have ended.
    private var used: [String: Int64] = [:]

    /// Takes a token.
    ///
    /// - Returns: what is wrong with it; `nil`: nothing.
    mutating func take(_ token: String?, _ scenario: OnsideScenario, nowMs: Int64) -> String? {
        guard let token else { return "no bearer token" }
        guard let parts = SignedText.Parts(token),
            let (header, claims): (SignedText.Parts.Header, Claims) = parts.decoded()
        else { return "no token of three parts" }
        guard header.alg == "HS256", header.kid == scenario.keyID else { return "wrong algorithm or key" }
        let isSigned = HMAC<SHA256>.isValidAuthenticationCode(
            parts.signature,
            authenticating: parts.signed,
            using: SymmetricKey(data: Data(scenario.secret.utf8))
        )
        guard isSigned else { return "wrong signature" }
        guard claims.aud == "onside", claims.iss == "onside", claims.sub == scenario.merchantID else {
            return "wrong audience, issuer or merchant"
        }
        guard (1...Self.longestLife).contains(claims.exp - claims.nbf) else { return "lives too long" }
        let now = nowMs / 1000
        guard claims.nbf - Self.tolerance <= now, now <= claims.exp + Self.tolerance else { return "not valid now" }
        guard !claims.jti.isEmpty, used[claims.jti] == nil else { return "used before" }
        if used.count >= 100_000 { used = used.filter { $0.value + Self.tolerance >= now } }
        used[claims.jti] = claims.exp
        return nil
    }
}
