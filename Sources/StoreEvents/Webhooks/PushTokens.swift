package import Entitlements
import Foundation
package import Logging
package import SignedTokens
import TextFormats
package import Transport

/// Verifies that a push comes from Google Pub/Sub in the name of our own service account.
///
/// Any service account can have a token made for any audience: what proves that it is ours is its address. One token
/// may serve many pushes for up to an hour.
///
/// - SeeAlso: https://cloud.google.com/pubsub/docs/authenticate-push-subscriptions
package struct PushTokens: Sendable {
    /// What may be wrong with the settings.
    package enum Fault: String, Sendable, CaseIterable {
        case audience = "the audience is empty"
        case serviceAccount = "the service account is no address"
        case keysURL = "the keys' URL is not of the form https://host[:port]/path"
        case insecureKeysURL = "the keys' URL is plain http to a host other than loopback"
    }

    /// Google's key set for such tokens.
    package static let usualKeysURL = "https://www.googleapis.com/oauth2/v3/certs"
    /// How far Google's clocks and ours may differ, in seconds.
    private static let skew: Int64 = 300
    /// The longest that such a token may live, in seconds.
    private static let longestLife: Int64 = 86_400
    private static let issuers: Set<String> = ["https://accounts.google.com", "accounts.google.com"]

    private let audience: String
    private let serviceAccount: String
    private let keys: SignerKeys
    private let systemSeconds: @Sendable () -> Int64

    /// Makes a verifier; throws every fault of the settings at once.
    ///
    /// The audience is as the subscription has it, byte for byte, and `serviceAccount` the address of the account in whose name it
    /// pushes. `keysURL` is a JWK set; plain http is taken for loopback hosts only. The logger hears that keys can't be had; of
    /// no token. `systemSeconds` is the system's clock, in seconds since 1970.
    package init(
        audience: String,
        serviceAccount: String,
        keysURL: String = usualKeysURL,
        http: HTTPClient,
        logger: Logger,
        systemSeconds: @escaping @Sendable () -> Int64 = { Int64(Date().timeIntervalSince1970) }
    ) throws(SettingFaults<Fault>) {
        var faults: [Fault] = []
        if audience.isEmpty { faults.append(.audience) }
        let sides = serviceAccount.split(separator: "@", omittingEmptySubsequences: false)
        if sides.count != 2 || sides.contains("") { faults.append(.serviceAccount) }
        let address = BaseURL.Fault.noting(.keysURL, .insecureKeysURL, &faults) { () throws(BaseURL.Fault) in
            try EndpointURL(keysURL)
        }
        guard let address, faults.isEmpty else { throw SettingFaults(faults: faults) }
        self.audience = audience
        self.serviceAccount = serviceAccount
        keys = .google(address, http: http, logger: logger)
        self.systemSeconds = systemSeconds
    }

    /// Makes sure that a token is one of our subscription's.
    ///
    /// - Parameter token: a compact JWS of at most 8 KiB.
    /// - Throws: `TokenFailure`: `refused` for what is no valid token of ours, `unread` while keys are missing.
    package func check(_ token: String) async throws(TokenFailure) {
        _ = try await keys.verified(token) { payload throws(TokenRefusal) in
            let claims = try PushClaims(payload: payload)
            try check(claims)
            return claims
        }
    }

    /// Requests the keys, to check whether they can be had; returns how many seconds Google's clock is ahead of ours.
    package func probeKeys() async throws(ReadFailure) -> Int64? {
        try await keys.probe(systemSeconds: systemSeconds())
    }

    private func check(_ claims: PushClaims) throws(TokenRefusal) {
        guard claims.audience == audience else { throw .wrongAudience }
        guard Self.issuers.contains(claims.issuer) else { throw .wrongIssuer }
        guard claims.email == serviceAccount, claims.isVerified else { throw .wrongSubject }
        let now = systemSeconds()
        guard claims.expiresAt > now - Self.skew else { throw .expired }
        guard claims.issuedAt <= now + Self.skew else { throw .fromTheFuture }
        guard claims.expiresAt - claims.issuedAt <= Self.longestLife else { throw .malformed }
    }
}

/// What a push's token says; it proves nothing before its signature is verified.
private struct PushClaims: Sendable {
    var issuer = ""
    var audience = ""
    var email = ""
    var isVerified = false
    var issuedAt: Int64 = -1
    var expiresAt: Int64 = -1

    private enum Field: String, CaseIterable {
        case iss, aud, email, iat, exp
        case isVerified = "email_verified"
    }

    private static let fields = JSONFields<Field>()

    /// Reads a payload; `malformed`: it is no JSON object, or a member is missing or of a wrong type.
    init(payload: [UInt8]) throws(TokenRefusal) {
        do throws(JSONFault) {
            var reader = try JSONReader(payload)
            try reader.readObject(Self.fields) { reader, field throws(JSONFault) in
                switch field {
                case .iss: issuer = try reader.readString()
                case .aud: audience = try reader.readString()
                case .email: email = try reader.readString()
                case .isVerified: isVerified = try reader.readBool()
                case .iat: issuedAt = try reader.readOptionalInteger() ?? -1
                case .exp: expiresAt = try reader.readOptionalInteger() ?? -1
                }
            }
            try reader.finish()
        } catch { throw .malformed }
        guard issuedAt >= 0, expiresAt >= issuedAt else { throw .malformed }
    }
}
