package import Entitlements
import Foundation
package import Logging
package import Transport

/// Verifies the tokens by which apps of one issuer name their users.
///
/// - SeeAlso: RFC 8725
package struct IssuerTokens: Sendable {
    /// What tokens may be signed with: no shared secret, and nothing that a header could talk us into.
    package static let algorithms: Set<String> = ["RS256", "ES256", "EdDSA"]
    /// How far the issuer's clocks and ours may differ, in seconds.
    private static let skew: Int64 = 60

    package let issuer: String
    private let audience: String
    private let claim: String
    private let keys: SignerKeys
    private let systemSeconds: @Sendable () -> Int64

    /// Makes a verifier; throws every fault of the settings at once.
    ///
    /// The issuer is as tokens have it, byte for byte; an address of https, or of http to a loopback host. The audience
    /// is one of those that tokens have to name. Without `keysURL`, a JWK set, the issuer's discovery document names
    /// one. `claim` is the user's id. The logger hears that keys can't be had; of no token.
    package init(
        issuer: String,
        audience: String,
        keysURL: String? = nil,
        claim: String = "sub",
        http: HTTPClient,
        logger: Logger,
        systemSeconds: @escaping @Sendable () -> Int64 = { Int64(Date().timeIntervalSince1970) }
    ) throws(SettingFaults<Fault>) {
        var faults: [Fault] = []
        if audience.isEmpty { faults.append(.audience) }
        if claim.isEmpty { faults.append(.claim) }
        let discovery = BaseURL.Fault.noting(.issuer, .insecureIssuer, &faults) { () throws(BaseURL.Fault) in
            try IssuerDiscovery(issuer: issuer, http: http)
        }
        var fixed: EndpointURL?
        if let keysURL {
            fixed = BaseURL.Fault.noting(.keysURL, .insecureKeysURL, &faults) { () throws(BaseURL.Fault) in
                try EndpointURL(keysURL)
            }
        }
        guard let discovery, faults.isEmpty else { throw SettingFaults(faults: faults) }
        self.issuer = issuer
        self.audience = audience
        self.claim = claim
        keys = SignerKeys(
            address: { [fixed] () throws(ReadFailure) in
                if let fixed { return fixed }
                return try await discovery.metadata().keysURL
            },
            algorithms: Self.algorithms,
            http: http,
            logger: logger
        )
        self.systemSeconds = systemSeconds
    }

    /// Finds the user that a token, a compact JWS of at most 8 KiB, names.
    ///
    /// `refused` for whatever is no valid token of this issuer for this audience, `unread` where keys are missing that
    /// may be had later.
    package func user(of token: String) async throws(TokenFailure) -> TokenUser {
        try await keys.verified(token) { payload throws(TokenRefusal) in
            let claims = try IssuerClaims(payload: payload, claim: claim)
            guard claims.issuer == issuer else { throw .wrongIssuer }
            guard claims.audiences.contains(audience) else { throw .wrongAudience }
            guard let named = claims.named, named.count == 1, let id = named.first, (1...128).contains(id.count) else {
                throw .wrongSubject
            }
            let now = systemSeconds()
            guard let expiresAt = claims.expiresAt else { throw .malformed }
            guard expiresAt > now - Self.skew else { throw .expired }
            guard [claims.issuedAt, claims.notBefore].allSatisfy({ $0 ?? 0 <= now + Self.skew }) else {
                throw .fromTheFuture
            }
            return TokenUser(id: id, expiresAt: Instant(microseconds: expiresAt * 1_000_000))
        }
    }

    /// Requests the keys, as ``SignerKeys/probe(systemSeconds:)`` does.
    package func probeKeys() async throws(ReadFailure) -> Int64? {
        try await keys.probe(systemSeconds: systemSeconds())
    }
}

extension IssuerTokens {
    /// What may be wrong with the settings.
    package enum Fault: String, Sendable, CaseIterable {
        case issuer = "the issuer is not of the form https://host[:port][/path]"
        case insecureIssuer = "the issuer is plain http to a host other than loopback"
        case audience = "the audience is empty"
        case claim = "the claim has no name"
        case keysURL = "the keys' URL is not of the form https://host[:port]/path"
        case insecureKeysURL = "the keys' URL is plain http to a host other than loopback"
    }
}
