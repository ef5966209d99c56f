internal import Foundation

extension AppStoreAccount {
    /// The app receipt of the account's device.
    ///
    /// - Parameters:
    ///   - bundleID: the app.
    ///   - nowMs: when it is made, in Unix milliseconds.
    /// - Returns: its base64.
    /// - Throws: what the cryptography does.
    func receipt(bundleID: String, nowMs: Int64) throws -> String {
        func date(_ milliseconds: Int64) -> Date { Date(timeIntervalSince1970: Double(milliseconds) / 1000) }
        let kinds: [AppStoreTransactionScenario.Kind: Int64] = [
            .nonConsumable: 0, .consumable: 1, .nonRenewing: 2, .autoRenewable: 3,
        ]
        return try ReceiptAuthority.shared().receipt(
            ReceiptDescription(
                type: side == .production ? "Production" : "ProductionSandbox",
                bundleID: bundleID,
                createdAt: date(nowMs),
                purchases: purchases.map { purchase in
                    var item = ReceiptDescription.Purchase(
                        productID: purchase.product,
                        transactionID: purchase.transaction,
                        originalTransactionID: purchase.original,
                        purchasedAt: date(purchase.purchasedMs),
                        kind: kinds[purchase.kind] ?? 0
                    )
                    item.expiresAt = purchase.expiresMs.map(date)
                    item.canceledAt = purchase.revokedMs.map(date)
                    return item
                }
            )
        )
    }
}
