import Crypto
import Entitlements
import Foundation
import SignedTokens
import Synchronization

/// Tokens that were verified a moment ago: an app that waits for its restore shows the same one again and again.
final class KnownTokens: Sendable {
    /// How long a token is not verified again: a key that its signer withdraws is honoured no longer than that.
    private static let lifetime = Duration.seconds(30)
    private static let most = 20_000

    private struct Known {
        var user: TokenUser
        var until: ContinuousClock.Instant
    }

    private let known = Mutex<[SHA256Digest: Known]>([:])
    private let systemSeconds: @Sendable () -> Int64

    init(systemSeconds: @escaping @Sendable () -> Int64 = { Int64(Date().timeIntervalSince1970) }) {
        self.systemSeconds = systemSeconds
    }

    /// The user of a token, verified now or a moment ago.
    ///
    /// - Throws: what the verification throws; a token that was refused is verified again.
    func user(
        of token: String,
        _ verify: (String) async throws(TokenFailure) -> TokenUser
    ) async throws(TokenFailure) -> TokenUser {
        let digest = SHA256.hash(data: Data(token.utf8))
        let now = ContinuousClock.now
        let seconds = systemSeconds()
        let found = known.withLock { known -> TokenUser? in
            guard let entry = known[digest], entry.until > now, entry.user.expiresAt.microseconds / 1_000_000 > seconds
            else { return nil }
            return entry.user
        }
        if let found { return found }
        let user = try await verify(token)
        known.withLock { known in
            if known.count >= Self.most { known = known.filter { $0.value.until > now } }
            if known.count >= Self.most { known = [:] }
            known[digest] = Known(user: user, until: now + Self.lifetime)
        }
        return user
    }
}
