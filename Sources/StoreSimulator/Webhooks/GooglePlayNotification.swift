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

extension GooglePlaySimulation {
    /// A notification of a moment.
    ///
    /// - Parameters:
    ///   - notification: what happened.
    ///   - packageName: the app; the scenario's by default.
    ///   - nowMs: simulated Unix milliseconds.
    /// - Returns: what Google Play hands to Pub/Sub.
    /// - Throws: `ScenarioError` where there is no purchase to take a member from that was left out.
    func write(_ notification: GooglePlayNotification, packageName: String?, nowMs: Int64) throws -> [UInt8] {
        if case .raw(let text) = notification { return Array(text.utf8) }
        var json = JSONBytes(capacity: 512)
        json.beginObject()
        json.key("version")
        json.literal("1.0")
        json.key("packageName")
        json.value(packageName ?? settings.package)
        // Documented as a number, sent as a text.
        json.key("eventTimeMillis")
        json.value("\(nowMs)")
        switch notification {
        case .subscription(let kind, let token, let product):
            json.key("subscriptionNotification")
            json.beginNotice(kind: kind, token: token)
            if let product {
                json.key("subscriptionId")
                json.value(product)
            }
            json.endObject()
        case .oneTime(let kind, let token, let product):
            guard let product = product ?? purchases[token]?.scenario.product else {
                throw Self.missing("one_time.sku", token)
            }
            json.key("oneTimeProductNotification")
            json.beginNotice(kind: kind, token: token)
            json.key("sku")
            json.value(product)
            json.endObject()
        case .voided(let token, let order, let productKind, let refundKind):
            let purchase = purchases[token]
            guard let order = order ?? purchase?.latestOrderID(at: nowMs) else {
                throw Self.missing("voided.orderId", token)
            }
            json.key("voidedPurchaseNotification")
            json.beginObject()
            json.key("purchaseToken")
            json.value(token)
            json.key("orderId")
            json.value(order)
            json.key("productType")
            json.value(productKind ?? (purchase?.scenario.kind == .oneTime ? 2 : 1))
            json.key("refundType")
            json.value(refundKind)
            json.endObject()
        case .test:
            json.key("testNotification")
            json.beginObject()
            json.key("version")
            json.literal("1.0")
            json.endObject()
        case .raw: break
        }
        json.endObject()
        return json.bytes
    }

    private static func missing(_ keyPath: String, _ token: String) -> ScenarioError {
        ScenarioError(keyPath: keyPath, message: "is missing, and no purchase has the token \"\(token)\"; add it")
    }
}

extension JSONBytes {
    /// Begins what is said of a purchase that changed.
    fileprivate mutating func beginNotice(kind: Int, token: String) {
        beginObject()
        key("version")
        literal("1.0")
        key("notificationType")
        value(kind)
        key("purchaseToken")
        value(token)
    }
}
