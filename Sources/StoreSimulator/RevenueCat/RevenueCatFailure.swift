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

    static let unauthenticated = RevenueCatFailure(
        status: 401,
        type: "authentication_error",
        message: "Invalid API key"
    )

    static let forbidden = RevenueCatFailure(
        status: 403,
        type: "authorization_error",
        message: "API key not authorized to access the resource"
    )

    static let missing = RevenueCatFailure(status: 404, type: "resource_missing", message: "Resource not found")

    static let exists = RevenueCatFailure(
        status: 409,
        type: "resource_already_exists",
        message: "Resource already exists"
    )

    /// 429: the minute's budget is spent.
    static func throttled(backoffMs: Int64) -> RevenueCatFailure {
        .init(
            status: 429,
            type: "rate_limit_error",
            message: "Rate limit exceeded",
            retryable: true,
            backoffMs: backoffMs
        )
    }

    /// The usual error of a status, as the fault rules ask for it.
    static func usual(status: Int, backoffMs: Int64?) -> RevenueCatFailure {
        switch status {
        case 400: .invalidRequest("Invalid request")
        case 401: .unauthenticated
        case 403: .forbidden
        case 404: .missing
        case 409: .exists
        case 422:
            .init(
                status: 422,
                type: "store_error",
                message: "There was a problem with the store",
                retryable: true,
                backoffMs: backoffMs ?? 1000
            )
        case 423:
            .init(
                status: 423,
                type: "resource_locked_error",
                message: "The resource is locked by another request",
                retryable: true,
                backoffMs: backoffMs ?? 1000
            )
        case 429: .throttled(backoffMs: backoffMs ?? 2000)
        case 500...:
            .init(
                status: status,
                type: "server_error",
                message: "Internal server error",
                retryable: true,
                backoffMs: backoffMs
            )
        default: .init(status: status, type: "unprocessable_entity_error", message: "Unprocessable")
        }
    }

    /// The answer on the wire; `unit` is that of the `Retry-After` header, which only a 429 carries.
    func reply(unit: Scenario.RetryAfterUnit) -> Reply {
        var json = JSONBytes(capacity: 256)
        json.beginObject()
        json.key("object")
        json.literal("error")
        json.key("type")
        json.value(type)
        json.key("message")
        json.value(message)
        json.key("retryable")
        json.value(retryable)
        json.key("doc_url")
        json.value("https://errors.rev.cat/" + String(type.map { $0 == "_" ? "-" : $0 }))
        json.key("param")
        json.value(param)
        json.key("backoff_ms")
        json.value(backoffMs)
        json.endObject()
        var reply = Reply(status: status, body: json.bytes)
        if status == 429, let backoffMs {
            let seconds = (backoffMs + 999) / 1000
            reply.headers.append(Header("Retry-After", "\(unit == .seconds ? seconds : backoffMs)"))
        }
        return reply
    }
}
