package import Entitlements
import Foundation
package import Logging
import TextFormats
package import Transport

/// Verifies the ID tokens of one Firebase project, here, with Google's public keys alone.
///
/// All projects share those keys: issuer and audience alone tell whose a token is. That a user signed out, or is no
/// more, a token does not know for up to an hour.
///
/// - SeeAlso: https://firebase.google.com/docs/auth/admin/verify-id-tokens
package struct FirebaseTokens: Sendable {
    /// Google's key set for ID tokens.
    package static let usualKeysURL =
        "https://www.googleapis.com/service_accounts/v1/jwk/securetoken@system.gserviceaccount.com"
    /// How far Google's clocks and ours may differ, in seconds.
    private static let skew: Int64 = 60

    private let issuer: String
    private let audience: String
    private let keys: SignerKeys
    private let systemSeconds: @Sendable () -> Int64

    /// Makes a verifier for a project by its id, not its number; throws every fault of the settings at once.
    ///
    /// `keysURL` is a JWK set; plain http is taken for loopback hosts only. The logger hears that keys can't be had; of
    /// no token. `systemSeconds` is the system's clock, in seconds since 1970. The key set is empty at first.
    package init(
        projectID: String,
        keysURL: String = usualKeysURL,
        http: HTTPClient,
        logger: Logger,
        systemSeconds: @escaping @Sendable () -> Int64 = { Int64(Date().timeIntervalSince1970) },
        keys: KeySet = KeySet(of: nil, pause: SignerKeys.pause)
    ) throws(SettingFaults<Fault>) {
        var faults: [Fault] = []
        if !Self.isProjectID(projectID) { faults.append(.projectID) }
        let address = BaseURL.Fault.noting(.keysURL, .insecureKeysURL, &faults) { () throws(BaseURL.Fault) in
            try EndpointURL(keysURL)
        }
        guard let address, faults.isEmpty else { throw SettingFaults(faults: faults) }
        issuer = "https://securetoken.google.com/" + projectID
        audience = projectID
        self.keys = .google(address, http: http, logger: logger, keys: keys)
        self.systemSeconds = systemSeconds
    }

    /// Finds out which user a token, a compact JWS of at most 8 KiB, names.
    ///
    /// `refused` for whatever is no valid token of this project, `unread` where keys are missing that may be had later.
    package func user(of token: String) async throws(TokenFailure) -> TokenUser {
        let claims = try await keys.verified(token) { payload throws(TokenRefusal) in
            let claims = try FirebaseClaims(payload: payload)
            try check(claims)
            return claims
        }
        guard claims.tenant == nil else { throw .refused(.tenant) }
        return TokenUser(
            id: claims.subject,
            expiresAt: Instant(microseconds: claims.expiresAt * 1_000_000),
            signInProvider: claims.signInProvider,
            signedInAt: Instant(microseconds: claims.signedInAt * 1_000_000)
        )
    }

    /// Requests the keys, as ``SignerKeys/probe(systemSeconds:)`` does.
    package func probeKeys() async throws(ReadFailure) -> Int64? {
        try await keys.probe(systemSeconds: systemSeconds())
    }

    private func check(_ claims: FirebaseClaims) throws(TokenRefusal) {
        guard claims.audience == audience else { throw .wrongAudience }
        guard claims.issuer == issuer else { throw .wrongIssuer }
        guard (1...128).contains(claims.subject.count) else { throw .wrongSubject }
        let now = systemSeconds()
        guard claims.expiresAt > now - Self.skew else { throw .expired }
        guard claims.issuedAt <= now + Self.skew, claims.signedInAt <= now + Self.skew else { throw .fromTheFuture }
    }

    private static func isProjectID(_ text: String) -> Bool {
        (1...128).contains(text.utf8.count)
            && text.utf8.allSatisfy { $0.isLetterOrDigit || "-.:".utf8.contains($0) }
    }
}

extension FirebaseTokens {
    /// What may be wrong with the settings.
    package enum Fault: String, Sendable, CaseIterable {
        case projectID = "the project id is empty or holds characters that no project's id has"
        case keysURL = "the keys' URL is not of the form https://host[:port]/path"
        case insecureKeysURL = "the keys' URL is plain http to a host other than loopback"
    }
}
