import Entitlements
import Testing

@Suite struct ClientErrorTests {
    static let spellings: [(ClientError, [String])] = [
        (
            .receiptAlreadyInUse,
            [
                "receipt_already_in_use", "RECEIPT_ALREADY_IN_USE", "Receipt_Already_In_Use",
                "ReceiptAlreadyInUseError",
                "receiptAlreadyInUse", "receipt-already-in-use", "7", "7102", " 7 ", #"{"receiptAlreadyInUse":{}}"#,
            ]
        ),
        (
            .loginDiscarded,
            [
                "login_discarded", "loginDiscarded", "LOGIN_DISCARDED", "notLoggedIn", #"{"loginDiscarded":{}}"#,
                #" { "loginDiscarded" : {} }"#, #"{"loginDiscarded":{"reason":"closed"}}"#,
            ]
        ),
        (.appNotRegistered, ["app_not_registered", "appNotRegistered", #"{"appNotRegistered":{}}"#]),
        (
            .cancelled,
            [
                "cancelled", "canceled", "USER_CANCELED", "userCancelled", "PURCHASE_CANCELLED",
                "PurchaseCancelledError",
                "paymentCancelled", "SKErrorPaymentCancelled", "1", #"{"cancelled":{}}"#,
            ]
        ),
        (
            .connectionError,
            [
                "connection_error", "connectionError", "networkError", "NETWORK_ERROR", "OfflineConnectionError",
                "SERVICE_DISCONNECTED", "cloudServiceNetworkConnectionFailed", "10", "35", "-1",
            ]
        ),
        (
            .serviceUnavailable,
            [
                "service_unavailable", "serviceUnavailable", "SERVICE_UNAVAILABLE", "STORE_PROBLEM",
                "StoreProblemError",
                "SERVICE_TIMEOUT", "BILLING_UNAVAILABLE", "2", "-3", #"{"serviceUnavailable":{}}"#,
            ]
        ),
        (
            .internalError,
            ["internal_error", "internalError", "UnknownError", "UNKNOWN_BACKEND_ERROR", "systemError", "ERROR", "16"]
        ),
        (
            .other,
            [
                "", " ", "{}", "{", "\"", "-7", "-7102", "71020", "77", "receipt", "login", "нет", "presentationFailed",
                "\u{0}",
            ]
        ),
    ]

    @Test(arguments: spellings)
    func `174, 175: an error is known in every SDK's spelling`(error: ClientError, texts: [String]) {
        for text in texts { #expect(ClientError(text) == error, "\(text)") }
    }

    @Test(arguments: ClientError.allCases)
    func `Every error is known by the contract's own name`(error: ClientError) {
        #expect(ClientError(error.rawValue) == error)
        #expect(ClientError(error.rawValue.uppercased()) == error)
    }
}
