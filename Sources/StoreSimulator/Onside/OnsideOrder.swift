internal import Foundation

/// An order as the simulated Onside holds it: every time is absolute, every id in lower case.
struct OnsideOrder: Sendable {
    var scenario: OnsideOrderScenario
    var id: String
    var originalID: String
    var boughtMs: Int64
    var purchasedMs: Int64
    var expiresMs: Int64?
    var revokedMs: Int64?
    /// Requests for it so far.
    var requests = 0

    /// Places an order of a scenario in time.
    ///
    /// - Throws: `ScenarioError` for ids that are no UUIDs.
    init(_ scenario: OnsideOrderScenario, at keyPath: String, nowMs: Int64) throws {
        for (id, key) in [(scenario.order, "order"), (scenario.original ?? scenario.order, "original")]
        where UUID(uuidString: id) == nil {
            throw ScenarioError(keyPath: keyPath + key, message: "is \"\(id)\"; use a UUID")
        }
        self.scenario = scenario
        id = scenario.order.lowercased()
        originalID = (scenario.original ?? scenario.order).lowercased()
        purchasedMs = scenario.purchased?.milliseconds(from: nowMs) ?? nowMs
        boughtMs = scenario.bought?.milliseconds(from: nowMs) ?? purchasedMs
        expiresMs = scenario.expires?.milliseconds(from: nowMs)
        revokedMs = scenario.revoked?.milliseconds(from: nowMs)
    }

    /// Appends it as a transaction of a history.
    func write(to json: inout JSONBytes, bundleID: String, fetchedMs: Int64) {
        json.beginObject()
        json.key("app_account_token")
        json.value(scenario.account)
        json.key("bundle_id")
        json.value(scenario.bundle ?? bundleID)
        json.key("currency")
        json.literal("EUR")
        json.key("expires_at")
        json.value(expiresMs.map(Self.text))
        json.key("order_id")
        json.value(id)
        json.key("original_order_id")
        json.value(originalID)
        json.key("original_purchase_date")
        json.value(Self.text(boughtMs))
        json.key("price")
        json.value(999)
        json.key("product_id")
        json.value(scenario.product)
        json.key("product_slug")
        json.value(scenario.product.replacing("_", with: "-"))
        json.key("product_type")
        json.value(scenario.type ?? (expiresMs == nil ? "NON_CONSUMABLE" : "SUBSCRIPTION"))
        json.key("purchase_date")
        json.value(Self.text(purchasedMs))
        json.key("quantity")
        json.value(1)
        json.key("revocation_date")
        json.value(revokedMs.map(Self.text))
        json.key("revocation_reason")
        json.value(revokedMs == nil ? nil : scenario.revocationReason)
        json.key("fetched_at")
        json.value(Self.text(fetchedMs))
        json.key("subscription_id")
        json.value(scenario.subscription)
        json.key("transaction_reason")
        json.value(scenario.reason ?? (id == originalID ? "PURCHASE" : "RENEWAL"))
        json.key("user_country")
        json.literal("DE")
        json.endObject()
    }

    private static let style = Date.ISO8601FormatStyle(includingFractionalSeconds: true)

    private static func text(_ milliseconds: Int64) -> String {
        Date(timeIntervalSince1970: Double(milliseconds) / 1000).formatted(style)
    }
}
