/// An error answer of RevenueCat: status and error object.
struct RevenueCatFailure: Error, Sendable {
    var status: Int
    var type: String
    var message: String
    var retryable = false
    var param: String?
    /// Wait asked for, in milliseconds; only where the error is retryable.
    var backoffMs: Int64?

    /// 400: a parameter is missing or wrong.
    static func parameter(_ name: String, _ message: String) -> RevenueCatFailure {
        .init(status: 400, type: "parameter_error", message: message, param: name)
    }

    /// 400: the request as a whole cannot be understood.
    static func invalidRequest(_ message: String) -> RevenueCatFailure {
        .init(status: 400, type: "invalid_request", message: message)
    }

    static let unauthenticated = Self(status: 401, type: "authentication_error", message: "Invalid API key")
    static let forbidden = Self(
        status: 403,
        type: "authorization_error",
        message: "API key not authorized to access the resource"
    )
    static let missing = Self(status: 404, type: "resource_missing", message: "Resource not found")
    static let exists = Self(status: 409, type: "resource_already_exists", message: "Resource already exists")

    /// 422: the request can't be carried out.
    static func unprocessable(_ message: String, status: Int = 422) -> RevenueCatFailure {
        .init(status: status, type: "unprocessable_entity_error", message: message)
    }

    /// An error after which the request may be sent again.
    private static func passing(_ status: Int, _ type: String, _ message: String, _ backoffMs: Int64?) -> Self {
        .init(status: status, type: type, message: message, retryable: true, backoffMs: backoffMs)
    }

    /// 429: the minute's budget is spent.
    static func throttled(backoffMs: Int64) -> RevenueCatFailure {
        passing(429, "rate_limit_error", "Rate limit exceeded", backoffMs)
    }

    /// The usual error of a status, as the fault rules ask for it.
    static func usual(status: Int, backoffMs: Int64?) -> RevenueCatFailure {
        switch status {
        case 400: .invalidRequest("Invalid request")
        case 401: .unauthenticated
        case 403: .forbidden
        case 404: .missing
        case 409: .exists
        case 422: passing(422, "store_error", "There was a problem with the store", backoffMs ?? 1000)
        case 423:
            passing(423, "resource_locked_error", "The resource is locked by another request", backoffMs ?? 1000)
        case 429: .throttled(backoffMs: backoffMs ?? 2000)
        case 500...: passing(status, "server_error", "Internal server error", backoffMs)
        default: .unprocessable("Unprocessable", status: status)
        }
    }

    /// The answer on the wire; `unit` is that of the `Retry-After` header, which only a 429 carries.
    func reply(unit: Scenario.RetryAfterUnit) -> Reply {
        var reply = Reply.object(status) { json in
            json.member("object", literal: "error")
            json.member("type", type)
            json.member("message", message)
            json.member("retryable", retryable)
            json.member("doc_url", "https://errors.rev.cat/" + String(type.map { $0 == "_" ? "-" : $0 }))
            json.member("param", param)
            json.member("backoff_ms", backoffMs)
        }
        if status == 429, let backoffMs {
            let seconds = (backoffMs + 999) / 1000
            reply.headers.append(("Retry-After", "\(unit == .seconds ? seconds : backoffMs)"))
        }
        return reply
    }
}
