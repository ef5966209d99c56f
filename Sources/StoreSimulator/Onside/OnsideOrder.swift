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
        json.object { json in
            json.member("app_account_token", scenario.account)
            json.member("bundle_id", scenario.bundle ?? bundleID)
            json.member("currency", literal: "EUR")
            json.member("expires_at", expiresMs.map(Self.text))
            json.member("order_id", id)
            json.member("original_order_id", originalID)
            json.member("original_purchase_date", Self.text(boughtMs))
            json.member("price", 999)
            json.member("product_id", scenario.product)
            json.member("product_slug", scenario.product.replacing("_", with: "-"))
            json.member("product_type", scenario.type ?? (expiresMs == nil ? "NON_CONSUMABLE" : "SUBSCRIPTION"))
            json.member("purchase_date", Self.text(purchasedMs))
            json.member("quantity", 1)
            json.member("revocation_date", revokedMs.map(Self.text))
            json.member("revocation_reason", revokedMs == nil ? nil : scenario.revocationReason)
            json.member("fetched_at", Self.text(fetchedMs))
            json.member("subscription_id", scenario.subscription)
            json.member("transaction_reason", scenario.reason ?? (id == originalID ? "PURCHASE" : "RENEWAL"))
            json.member("user_country", literal: "DE")
        }
    }

    private static let style = Date.ISO8601FormatStyle(includingFractionalSeconds: true)

    private static func text(_ milliseconds: Int64) -> String {
        Date(timeIntervalSince1970: Double(milliseconds) / 1000).formatted(style)
    }
}
