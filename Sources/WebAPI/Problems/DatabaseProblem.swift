import Logging
import Postgres

/// What the caller hears of what the database said.
enum DatabaseProblem {
    /// The problem that an error comes to; the log has what is ours to mend.
    static func problem(_ error: PostgresError, _ logger: Logger) -> Problem {
        switch error.sqlState {
        case "ES001":
            return Problem(.unknownUser, fix: "Create the account first; the token's sub is its id.")
        case "ES002", "ES005":
            return invalid(error)
        case "ES003":
            return Problem(.invalidField, error.message, field: "Idempotency-Key", fix: error.hint)
        case "ES004":
            return Problem(.keyReused, field: "Idempotency-Key", fix: error.hint)
        case "ES008":
            // A day's limit: in an hour some of it may be over.
            return Problem(.tooManyRequests, error.message, fix: error.hint, retryAfterSeconds: 3600)
        // A value out of its range, or text that PostgreSQL does not hold.
        case let state? where state.hasPrefix("22"):
            return state == "22023"
                ? invalid(error) : Problem(.invalidField, "a text holds characters that can't be stored")
        default:
            logger.warning(
                "the database refused a request",
                metadata: ["error.code": "\(error.code.rawValue)", "error.sqlstate": "\(error.sqlState ?? "")"]
            )
            return error.isConnectionFailure || error.isRetryable || error.code == .closed
                ? Problem(.unavailable, retryAfterSeconds: 5) : Problem(.failed)
        }
    }

    /// Our own functions begin what they say with the field.
    private static func invalid(_ error: PostgresError) -> Problem {
        let field = error.message.split(separator: ":", maxSplits: 1).first.map(String.init)
        return Problem(.invalidField, error.message, field: field, fix: error.hint)
    }
}
