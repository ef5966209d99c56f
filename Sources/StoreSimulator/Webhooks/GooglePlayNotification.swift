/// What Google Play says happened; kinds are Google's own numbers, and others are said as well.
package enum GooglePlayNotification: Sendable, Hashable {
    /// A subscription changed; the product is left out by default.
    case subscription(kind: Int, token: String, product: String? = nil)
    /// A one-time product was bought (1) or cancelled (2); the product is the purchase's by default.
    case oneTime(kind: Int, token: String, product: String? = nil)
    /// An order was voided; order and kind of product are the purchase's by default.
    case voided(token: String, order: String? = nil, productKind: Int? = nil, refundKind: Int = 1)
    /// A test of the connection.
    case test
    /// These bytes in the place of a notification.
    case raw(String)
}

/// What Pub/Sub is to push: the body of `POST /control/webhooks/google-play`.
struct GooglePlayWebhookRequest: ScenarioObject {
    /// A subscription changed.
    struct Subscription: ScenarioObject {
        var notificationType = 0
        var purchaseToken = ""
        var subscriptionId: String?

        static let fields: [ScenarioField<Self>] = [
            .required("notificationType", \.notificationType), .required("purchaseToken", \.purchaseToken),
            .optional("subscriptionId", \.subscriptionId),
        ]

        var notification: GooglePlayNotification {
            .subscription(kind: notificationType, token: purchaseToken, product: subscriptionId)
        }
    }

    /// A one-time product was bought or cancelled.
    struct OneTime: ScenarioObject {
        var notificationType = 0
        var purchaseToken = ""
        var sku: String?

        static let fields: [ScenarioField<Self>] = [
            .required("notificationType", \.notificationType), .required("purchaseToken", \.purchaseToken),
            .optional("sku", \.sku),
        ]

        var notification: GooglePlayNotification {
            .oneTime(kind: notificationType, token: purchaseToken, product: sku)
        }
    }

    /// An order was voided.
    struct Voided: ScenarioObject {
        var purchaseToken = ""
        var orderId: String?
        var productType: Int?
        var refundType = 1

        static let fields: [ScenarioField<Self>] = [
            .required("purchaseToken", \.purchaseToken), .optional("orderId", \.orderId),
            .optional("productType", \.productType), .value("refundType", \.refundType),
        ]

        var notification: GooglePlayNotification {
            .voided(token: purchaseToken, order: orderId, productKind: productType, refundKind: refundType)
        }
    }

    var subscription: Subscription?
    var oneTime: OneTime?
    var voided: Voided?
    var test: [String: JSONValue]?
    var raw: String?
    /// The app; the scenario's by default.
    var packageName: String?
    /// The same for every delivery of one message; a new one by default.
    var messageID: String?

    static let fields: [ScenarioField<Self>] = [
        .optional("subscription", \.subscription), .optional("one_time", \.oneTime), .optional("voided", \.voided),
        .optional("test", \.test), .optional("raw", \.raw), .optional("package", \.packageName),
        .optional("message_id", \.messageID),
    ]

    /// What happened; one, once the request is checked.
    var notifications: [GooglePlayNotification] {
        [
            subscription?.notification, oneTime?.notification, voided?.notification,
            test.map { _ in .test }, raw.map { .raw($0) },
        ].compactMap { $0 }
    }

    func check() throws {
        guard test?.isEmpty ?? true else { throw FieldFault(message: "has members; write {}", at: "test") }
        guard notifications.count == 1 else {
            throw FieldFault(message: "give one of subscription, one_time, voided, test and raw")
        }
    }
}

extension GooglePlaySimulation {
    /// A notification of a moment, as Google Play hands it to Pub/Sub; the app is the scenario's by default.
    ///
    /// - Throws: `ScenarioError` where there is no purchase to take a member from that was left out.
    func write(_ notification: GooglePlayNotification, packageName: String?, nowMs: Int64) throws -> [UInt8] {
        if case .raw(let text) = notification { return Array(text.utf8) }
        return try JSONBytes.object { json in
            json.member("version", literal: "1.0")
            json.member("packageName", packageName ?? settings.package)
            // Documented as a number, sent as a text.
            json.member("eventTimeMillis", "\(nowMs)")
            switch notification {
            case .subscription(let kind, let token, let product):
                json.notice("subscriptionNotification", kind: kind, token: token) { json in
                    json.optional("subscriptionId", product)
                }
            case .oneTime(let kind, let token, let product):
                guard let product = product ?? purchases[token]?.scenario.product else {
                    throw Self.missing("one_time.sku", token)
                }
                json.notice("oneTimeProductNotification", kind: kind, token: token) { $0.member("sku", product) }
            case .voided(let token, let order, let productKind, let refundKind):
                let purchase = purchases[token]
                guard let order = order ?? purchase?.latestOrderID(at: nowMs) else {
                    throw Self.missing("voided.orderId", token)
                }
                json.object("voidedPurchaseNotification") { json in
                    json.member("purchaseToken", token)
                    json.member("orderId", order)
                    json.member("productType", productKind ?? (purchase?.scenario.kind == .oneTime ? 2 : 1))
                    json.member("refundType", refundKind)
                }
            case .test: json.object("testNotification") { $0.member("version", literal: "1.0") }
            case .raw: break
            }
        }
    }

    private static func missing(_ keyPath: String, _ token: String) -> ScenarioError {
        ScenarioError(keyPath: keyPath, message: "is missing, and no purchase has the token \"\(token)\"; add it")
    }
}

extension JSONBytes {
    /// Writes what is said of a purchase that changed.
    fileprivate mutating func notice(
        _ name: StaticString,
        kind: Int,
        token: String,
        _ product: (inout JSONBytes) -> Void
    ) {
        object(name) { json in
            json.member("version", literal: "1.0")
            json.member("notificationType", kind)
            json.member("purchaseToken", token)
            product(&json)
        }
    }
}
