import SignedTokens
import StoreClients

extension Inspection {
    /// The orders of a history that are shown.
    private static let shownOrders = 20

    /// Inspects a signed history of Onside; without a key set (JSON) its signer stays unknown.
    init(onsideHistory text: String, keySet: String?, bundleID: String?) {
        var refusal: String?
        if let keySet {
            do throws(ProofRefusal) {
                _ = try OnsideClient.history(text, keySet: keySet, bundleID: bundleID)
            } catch {
                refusal = error.detail
            }
        } else {
            refusal =
                "Whether Onside signed it can't be checked without its keys: pass --keys FILE with what"
                + " https://onside.io/.well-known/jwks.json answers."
        }
        var reasons = [refusal ?? "A key of the key set signed it."]
        if bundleID == nil { reasons.append("ONSIDE_BUNDLE_ID is not set: it may be about any app.") }
        var facts: [String: String?] = [:]
        if let history = OnsideClient.unverified(text) {
            facts["transactions"] = String(history.transactions.count)
            for (number, transaction) in zip(1...Self.shownOrders, history.transactions) {
                for (name, value) in Self.facts(transaction) { facts["transaction_\(number)_\(name)"] = value }
            }
        }
        self.init(.onsideHistory, of: "onside", verifies: refusal == nil, reasons: reasons, facts: facts)
    }

    private static func facts(_ transaction: OnsideTransaction) -> [String: String?] {
        [
            "order_id": transaction.orderID, "original_order_id": transaction.originalOrderID,
            "product_id": transaction.productID, "product_type": transaction.productType,
            "bundle_id": transaction.bundleID, "app_account_token": transaction.appAccountToken,
            "purchased_at": text(transaction.purchasedAt), "expires_at": transaction.expiresAt.map(text),
            "revoked_at": transaction.revokedAt.map(text), "fetched_at": text(transaction.fetchedAt),
        ]
    }

    /// Inspects what holds nothing that could be read: a store has to be asked about it.
    init(opaque kind: Kind, of store: String, _ value: String) {
        let isToken = kind == .purchaseToken
        self.init(
            kind,
            of: store,
            verifies: false,
            reasons: [
                isToken
                    ? "A purchase token says nothing by itself: Google Play tells what it stands for when it is asked."
                    : "It is a claim: an id that anybody can type. It proves nothing, and decides nothing by itself."
            ],
            facts: isToken ? ["length": String(value.utf8.count)] : ["id": value]
        )
    }
}
