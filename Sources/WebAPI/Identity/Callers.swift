import Entitlements
import HTTPServing
import HTTPTypes
import Hummingbird
import SignedTokens

/// Finds out who calls, and whether they call too often.
struct Callers: Sendable {
    private static let keysWaitSeconds = 10

    let tokens: AppTokens
    let perUser: RequestLimit?
    let security: SecurityLog
    let known = KnownTokens()

    /// The user that the request's token names.
    ///
    /// - Throws: `Problem`: 401 for whatever is no valid token, whatever the reason; 429 beyond the
    ///   user's limit; 503 while the keys to verify with can't be had.
    func user(of request: Request, _ context: APIContext) async throws(Problem) -> String {
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
        return user.id
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

    /// What follows `Bearer`.
    static func bearer(_ header: String) -> String? {
        // By bytes: a token has a thousand.
        let parts = header.utf8.split(separator: UInt8(ascii: " "), omittingEmptySubsequences: true)
        guard parts.count == 2, Substring(parts[0]).lowercased() == "bearer" else { return nil }
        return String(Substring(parts[1]))
    }
}
