/// An error answer of the API, or of the token endpoint.
struct GooglePlayFailure: Error, Sendable {
    var status: Int
    var reason: String
    var message: String
    /// The wait asked for, in milliseconds.
    var backoffMs: Int64?

    init(_ status: Int, _ reason: String, _ message: String, backoffMs: Int64? = nil) {
        self.status = status
        self.reason = reason
        self.message = message
        self.backoffMs = backoffMs
    }

    static let noToken = Self(
        401,
        "authError",
        "Request had invalid authentication credentials. Expected OAuth 2 access token."
    )
    static let noPackage = Self(404, "applicationNotFound", "No application was found for the given package name.")
    static let badToken = Self(400, "invalid", "Invalid Value")
    static let unknownToken = Self(404, "purchaseTokenNotFound", "The purchase token was not found.")
    static let gone = Self(
        410,
        "subscriptionPurchaseNoLongerAvailable",
        "The subscription purchase is no longer available for query because it has been expired for too long."
    )
    static let invalidToken = Self(410, "purchaseTokenNoLongerValid", "The purchase token is no longer valid.")
    static let wrongProduct = Self(
        400,
        "purchaseTokenDoesNotMatchProductId",
        "The purchase token does not match the product ID."
    )
    static let wrongState = Self(
        400,
        "invalidPurchaseState",
        "The purchase is not in a valid state to perform the desired operation."
    )
    static let noOrder = Self(404, "notFound", "The order was not found.")

    /// The usual error of a status, as the fault rules ask for it.
    static func usual(_ status: Int, reason: String?, backoffMs: Int64?) -> GooglePlayFailure {
        let usual =
            switch status {
            case 400: "invalid"
            case 401: "authError"
            case 403: "permissionDenied"
            case 404: "purchaseTokenNotFound"
            case 409: "concurrentUpdate"
            case 410: "purchaseTokenNoLongerValid"
            case 429: "rateLimitExceeded"
            case 500: "internalError"
            default: "backendError"
            }
        return GooglePlayFailure(status, reason ?? usual, "Simulated failure.", backoffMs: backoffMs)
    }

    /// The canonical status that goes with the error; the API leaves it out of some.
    private var canonical: String? {
        switch (status, reason) {
        case (401, "authError"): "UNAUTHENTICATED"
        // Of missing rights it says nothing more, though the status is the same.
        case (401, _): nil
        case (403, _): "PERMISSION_DENIED"
        case (404, _): "NOT_FOUND"
        case (429, _): "RESOURCE_EXHAUSTED"
        case (500, _): "INTERNAL"
        case (503, _): "UNAVAILABLE"
        default: nil
        }
    }

    /// The token endpoint's words are written like_this, the API's likeThis.
    private var isOAuth: Bool {
        reason.utf8.contains(UInt8(ascii: "_"))
            && reason.utf8.allSatisfy { $0 == UInt8(ascii: "_") || (0x61...0x7A).contains($0) }
    }

    /// The answer on the wire.
    var reply: Reply {
        Reply.object(status) { json in
            if isOAuth {
                json.member("error", reason)
                json.member("error_description", message)
                return
            }
            json.object("error") { json in
                json.member("code", status)
                json.member("message", message)
                json.array("errors") { json in
                    json.object { json in
                        json.member("message", message)
                        json.member("domain", reason.hasSuffix("Exceeded") ? "usageLimits" : "androidpublisher")
                        json.member("reason", reason)
                    }
                }
                json.optional("status", canonical)
            }
        }
        .waiting(backoffMs)
    }
}
