import Foundation
import HTTPTypes
import Hummingbird
import Logging
import Postgres

/// Why a request is not answered as asked, as a problem of RFC 9457.
struct Problem: Error, Hashable, Sendable {
    /// The kinds of problems; each is documented in the OpenAPI document under its name.
    enum Kind: String, Sendable, CaseIterable {
        case malformedBody = "malformed-body"
        case invalidField = "invalid-field"
        case unauthenticated
        case unknownUser = "unknown-user"
        case notFound = "not-found"
        case methodNotAllowed = "method-not-allowed"
        case caseDecided = "case-decided"
        case questionChanged = "question-changed"
        case bodyTooLarge = "body-too-large"
        case unsupportedMediaType = "unsupported-media-type"
        case keyReused = "key-reused"
        case tooManyRequests = "too-many-requests"
        case failed
        case unavailable

        var status: HTTPResponse.Status { facts.status }
        var title: String { facts.title }

        private var facts: (status: HTTPResponse.Status, title: String) {
            switch self {
            case .malformedBody: (.badRequest, "The body is not what this route takes")
            case .invalidField: (.badRequest, "A field of the request is wrong")
            case .unauthenticated: (.unauthorized, "The request shows no valid token")
            case .unknownUser: (.notFound, "The token's user has no account here yet")
            case .notFound: (.notFound, "There is nothing here")
            case .methodNotAllowed: (.methodNotAllowed, "This route knows other methods")
            case .caseDecided: (.conflict, "Support is through with this case")
            case .questionChanged: (.conflict, "What was agreed to is not asked now")
            case .bodyTooLarge: (.contentTooLarge, "The body is too large")
            case .unsupportedMediaType: (.unsupportedMediaType, "The body's media type is not taken")
            case .keyReused: (.unprocessableContent, "The idempotency key was used before with other content")
            case .tooManyRequests: (.tooManyRequests, "Too many requests")
            case .failed: (.internalServerError, "The request failed on our side")
            case .unavailable: (.serviceUnavailable, "The service is not available at the moment")
            }
        }
    }

    var kind: Kind
    /// What is wrong here, for the developer of the app; names no id and no user.
    var detail: String?
    var field: String?
    var fix: String?
    /// When to come again, in seconds.
    var retryAfterSeconds: Int?
    var headers: HTTPFields = [:]

    init(_ kind: Kind, _ detail: String? = nil, field: String? = nil, fix: String? = nil, retryAfterSeconds: Int? = nil)
    {
        self.kind = kind
        self.detail = detail
        self.field = field
        self.fix = fix
        self.retryAfterSeconds = retryAfterSeconds
    }
}

extension Problem {
    /// The answer that says what is wrong; `requestID` names the request in the log.
    func response(requestID: String) -> Response {
        var headers = headers
        headers[.contentType] = "application/problem+json"
        if let retryAfterSeconds { headers[.retryAfter] = "\(retryAfterSeconds)" }
        if kind == .unauthenticated, headers[.wwwAuthenticate] == nil { headers[.wwwAuthenticate] = "Bearer" }
        let written = Written(
            type: "urn:entitlement-sync:problem:" + kind.rawValue,
            title: kind.title,
            status: kind.status.code,
            detail: detail,
            field: field,
            fix: fix,
            instance: "urn:entitlement-sync:request:" + requestID
        )
        return Response(status: kind.status, headers: headers, body: .init(byteBuffer: JSONText.buffer(written)))
    }

    private struct Written: Encodable {
        var type: String
        var title: String
        var status: Int
        var detail: String?
        var field: String?
        var fix: String?
        var instance: String
    }
}

extension PostgresError {
    /// Whether the same request may be served in a moment, as once a failover is over.
    ///
    /// Not a lock or a full pool, for which those that come later would wait as well.
    var isDatabaseUnavailable: Bool { isConnectionFailure }
}

/// What the caller is answered where the database refuses.
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
