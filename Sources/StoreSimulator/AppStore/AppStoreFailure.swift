/// An error answer of the App Store.
struct AppStoreFailure: Error, Sendable {
    var status: Int
    /// `nil`: an answer without an error object.
    var code: Int64?
    /// When the next request may be sent, in Unix milliseconds.
    var retryAtMs: Int64?

    static let unauthenticated = AppStoreFailure(status: 401)

    /// The usual error of a status, as the fault rules ask for it.
    static func usual(status: Int, code: Int64?, retryAtMs: Int64) -> AppStoreFailure {
        guard status != 401 else { return unauthenticated }
        let usual: Int64? =
            switch status {
            case 400: 4_000_000
            case 404: 4_040_010
            case 429: 4_290_000
            case 500: 5_000_000
            default: nil
            }
        return AppStoreFailure(status: status, code: code ?? usual, retryAtMs: status == 429 ? retryAtMs : nil)
    }

    func reply() -> Reply {
        // The one error without an error object.
        guard status != 401 else {
            let text = "Unauthenticated\n\nRequest ID: SIMULATED\n"
            return Reply(status: 401, body: Array(text.utf8), contentType: "text/plain; charset=utf-8")
        }
        var reply = Reply(status: status)
        if let code {
            reply.body = JSONBytes.object { json in
                json.member("errorCode", code)
                json.member("errorMessage", Self.messages[code] ?? "Invalid request.")
            }
        }
        if let retryAtMs { reply.headers.append(("Retry-After", "\(retryAtMs)")) }
        return reply
    }

    private static let messages: [Int64: String] = [
        4_000_000: "Bad request.",
        4_000_005: "Invalid request revision.",
        4_000_006: "Invalid transaction id.",
        4_000_048: "Invalid request. App transaction ids are not supported by this endpoint.",
        4_000_183: "Invalid app account token. It must be a UUID.",
        4_000_185: "Invalid request. Family Sharing transactions are not supported by this endpoint.",
        4_000_187: "Invalid request. The transaction id is not an original transaction id.",
        4_040_001: "Account not found.",
        4_040_002: "Account not found. Please try again.",
        4_040_003: "App not found.",
        4_040_004: "App not found. Please try again.",
        4_040_005: "Original transaction id not found.",
        4_040_006: "Original transaction id not found. Please try again.",
        4_000_020: "Invalid request. The test notification token is invalid.",
        4_040_007: "The notification URL is missing.",
        4_040_008:
            "Either the test notification token is expired or the notification and status are not yet available.",
        4_040_010: "Transaction id not found.",
        4_290_000: "Rate limit exceeded.",
        5_000_000: "An unknown error occurred.",
        5_000_001: "An unknown error occurred. Please try again.",
    ]
}

extension AppStoreFailure {
    init(_ code: Int64) {
        self.init(status: Int(code / 10_000), code: code)
    }
}
