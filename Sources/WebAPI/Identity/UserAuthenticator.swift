import Crypto
import Entitlements
import Foundation
import HTTPServing
import HTTPTypes
import Hummingbird
import SignedTokens
import Synchronization

/// Finds out which user calls, and whether they call too often.
struct UserAuthenticator: Sendable {
    private static let keysWaitSeconds = 10

    let tokens: AppTokens
    let perUser: RequestLimit?
    let security: SecurityLog
    let known = KnownTokens()

    /// The user that the request's token names.
    ///
    /// - Throws: `Problem`: 401 for all that is no valid token; 429 beyond the user's limit; 503 while the keys to
    ///   verify with can't be had.
    func user(of request: Request, _ context: APIContext) async throws(Problem) -> String {
        try await caller(of: request, context).id
    }

    /// The same, with what else the token says of the user.
    func caller(of request: Request, _ context: APIContext) async throws(Problem) -> TokenUser {
        guard let header = request.headers[.authorization] else {
            security.refused("app", "missing", context)
            throw Problem(
                .unauthenticated,
                "the Authorization header is missing",
                fix: "Send Bearer and the token of the signed-in user."
            )
        }
        guard let token = Self.bearer(header) else {
            security.refused("app", "malformed", context)
            throw Self.invalid
        }
        let user: TokenUser
        do throws(TokenFailure) {
            user = try await known.user(of: token) { token throws(TokenFailure) in try await tokens.user(of: token) }
        } catch {
            switch error {
            case .refused(let refusal):
                security.refused("app", refusal.rawValue, context)
                throw Self.invalid
            case .unread:
                throw Problem(.unavailable, retryAfterSeconds: Self.keysWaitSeconds)
            }
        }
        try await perUser?.count(user.id)
        return user
    }

    private static var invalid: Problem {
        var problem = Problem(
            .unauthenticated,
            "the token is not valid",
            fix: "Get a fresh token from where the user signs in, and send the request again."
        )
        problem.headers[.wwwAuthenticate] = "Bearer error=\"invalid_token\""
        return problem
    }

    static func bearer(_ header: String) -> String? {
        // By bytes: a token has a thousand.
        let parts = header.utf8.split(separator: UInt8(ascii: " "), omittingEmptySubsequences: true)
        guard parts.count == 2, Substring(parts[0]).lowercased() == "bearer" else { return nil }
        return String(Substring(parts[1]))
    }
}

/// Tokens that were verified a moment ago: an app that waits for its restore sends the same one again and again.
final class KnownTokens: Sendable {
    /// How long a token is not verified again: a key that its signer withdraws is honoured no longer than that.
    private static let lifetime = Duration.seconds(30)
    private static let most = 20_000

    private let known = Mutex<[SHA256Digest: (user: TokenUser, until: ContinuousClock.Instant)]>([:])

    /// The user of a token, verified now or a moment ago.
    ///
    /// - Throws: what the verification throws; a token that was refused is verified again.
    func user(
        of token: String,
        _ verify: (String) async throws(TokenFailure) -> TokenUser
    ) async throws(TokenFailure) -> TokenUser {
        let digest = SHA256.hash(data: Data(token.utf8))
        let now = ContinuousClock.now
        let seconds = Int64(Date().timeIntervalSince1970)
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
            known[digest] = (user, now + Self.lifetime)
        }
        return user
    }
}
