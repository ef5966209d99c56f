internal import Crypto
internal import Foundation

/// Checks the tokens of requests as Onside does, and remembers each.
struct OnsideTokens: Sendable {
    /// How far the caller's clock may be off, in seconds.
    private static let tolerance: Int64 = 5
    /// The longest life of a token, in seconds.
    private static let longestLife: Int64 = 30

    private struct Header: Decodable {
        var alg: String
        var kid: String
    }

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
    mutating func take(_ authorization: String?, _ scenario: OnsideScenario, nowMs: Int64) -> StaticString? {
        guard let authorization, authorization.hasPrefix("Bearer ") else { return "no bearer token" }
        let parts = authorization.dropFirst(7).split(separator: ".", omittingEmptySubsequences: false)
        guard parts.count == 3, let header: Header = Self.read(parts[0]), let claims: Claims = Self.read(parts[1]),
            let signature = Self.bytes(parts[2])
        else { return "no token of three parts" }
        guard header.alg == "HS256", header.kid == scenario.keyID else { return "wrong algorithm or key" }
        let isSigned = HMAC<SHA256>.isValidAuthenticationCode(
            signature,
            authenticating: Data((parts[0] + "." + parts[1]).utf8),
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

    private static func read<Part: Decodable>(_ text: Substring) -> Part? {
        bytes(text).flatMap { try? JSONDecoder().decode(Part.self, from: $0) }
    }

    private static func bytes(_ text: Substring) -> Data? {
        let padding = String(repeating: "=", count: (4 - text.utf8.count % 4) % 4)
        return Data(base64Encoded: text.replacing("-", with: "+").replacing("_", with: "/") + padding)
    }
}
