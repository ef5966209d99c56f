/// Writes and signs what the App Store says of transactions.
struct AppStoreWriter: Sendable {
    var bundleID: String
    var appID: Int64
    var nowMs: Int64

    /// A signed transaction.
    func transaction(_ purchase: AppStorePurchase, of account: AppStoreAccount) throws -> String {
        try sign(purchase.flaw) { json in
            json.member("transactionId", purchase.transaction)
            json.member("originalTransactionId", purchase.original)
            json.optional("previousOriginalTransactionId", purchase.previousOriginal)
            json.member("bundleId", purchase.flaw == .foreignBundle ? bundleID + ".other" : bundleID)
            json.member("productId", purchase.product)
            json.member("purchaseDate", purchase.purchasedMs)
            json.member("originalPurchaseDate", purchase.originallyMs)
            if purchase.kind == .autoRenewable {
                json.member("subscriptionGroupIdentifier", purchase.group)
                json.member("webOrderLineItemId", purchase.transaction)
            }
            json.optional("expiresDate", purchase.expiresMs)
            json.member("quantity", 1)
            json.member("type", literal: purchase.kind.signedWord)
            json.optional("appAccountToken", purchase.accountToken)
            json.optional("appTransactionId", account.appTransactionID)
            json.member("inAppOwnershipType", purchase.ownership)
            json.optional("revocationDate", purchase.revokedMs)
            if purchase.revokedMs != nil {
                json.member("revocationReason", 0)
                json.member("revocationType", literal: purchase.state == .revoked ? "FAMILY_REVOKE" : "REFUND_FULL")
            }
            if purchase.isUpgraded { json.member("isUpgraded", true) }
            json.member(
                "transactionReason",
                literal: purchase.transaction == purchase.original ? "PURCHASE" : "RENEWAL"
            )
            json.member("storefront", literal: "USA")
            json.member("storefrontId", literal: "143441")
            json.member("price", 4990)
            json.member("currency", literal: "USD")
            signature(&json, purchase, account)
        }
    }

    /// The signed app transaction of an account's devices.
    func appTransaction(of account: AppStoreAccount) throws -> String {
        let flaw = account.appTransactionFlaw
        let other: AppStoreSide = account.side == .production ? .sandbox : .production
        return try sign(flaw) { json in
            json.member("receiptType", flaw == .foreignEnvironment ? other.rawValue : account.side.rawValue)
            if account.side == .production { json.member("appAppleId", appID) }
            json.member("bundleId", flaw == .foreignBundle ? bundleID + ".other" : bundleID)
            json.member("applicationVersion", literal: "7")
            json.member("versionExternalIdentifier", 877_000_000)
            json.member("receiptCreationDate", nowMs)
            json.member("originalPurchaseDate", nowMs - 30 * TimeText.day)
            json.member("originalApplicationVersion", literal: "1")
            json.member("originalPlatform", literal: "iOS")
            json.optional("appTransactionId", account.appTransactionID)
        }
    }

    /// Signed renewal info.
    func renewal(_ purchase: AppStorePurchase, of account: AppStoreAccount) throws -> String {
        try sign(purchase.flaw) { json in
            json.member(
                "originalTransactionId",
                purchase.flaw == .foreignRenewal ? "9" + purchase.original : purchase.original
            )
            json.member("productId", purchase.product)
            json.member("autoRenewProductId", purchase.product)
            json.member("autoRenewStatus", purchase.autoRenews ? 1 : 0)
            json.optional("renewalDate", purchase.expiresMs)
            if purchase.state == .expired { json.member("expirationIntent", purchase.autoRenews ? 2 : 1) }
            if purchase.state == .billingRetry || purchase.state == .grace || purchase.state == .expired {
                json.member("isInBillingRetryPeriod", purchase.state != .expired)
            }
            json.optional("gracePeriodExpiresDate", purchase.graceEndsMs)
            json.optional("priceIncreaseStatus", purchase.priceIncrease.map(Int64.init))
            json.member("recentSubscriptionStartDate", purchase.originallyMs)
            json.optional("appAccountToken", purchase.accountToken)
            json.optional("appTransactionId", account.appTransactionID)
            signature(&json, purchase, account)
        }
    }

    /// A signed notification about a transaction of an account.
    func notification(
        _ notification: AppStoreNotificationScenario,
        sentMs: Int64,
        subject: (purchase: AppStorePurchase, account: AppStoreAccount)?
    ) throws -> String {
        let texts = try subject.map { subject in
            (try transaction(subject.purchase, of: subject.account), try renewal(subject.purchase, of: subject.account))
        }
        return try sign(subject?.purchase.flaw) { json in
            json.member("notificationType", notification.type)
            json.optional("subtype", notification.subtype)
            json.member("notificationUUID", notification.uuid)
            json.member("version", literal: "2.0")
            json.member("signedDate", sentMs)
            json.object("data") { json in
                identity(&json, notification.environment)
                if let subject, let texts {
                    json.member("signedTransactionInfo", texts.0)
                    if subject.purchase.kind == .autoRenewable {
                        json.member("status", subject.purchase.state.number)
                        json.member("signedRenewalInfo", texts.1)
                    }
                }
            }
        }
    }

    /// The members that say whose an answer is.
    func identity(_ json: inout JSONBytes, _ side: AppStoreSide) {
        json.member("environment", side.rawValue)
        json.member("bundleId", bundleID)
        if side == .production {
            json.member("appAppleId", appID)
        }
    }

    private func signature(_ json: inout JSONBytes, _ purchase: AppStorePurchase, _ account: AppStoreAccount) {
        let other: AppStoreSide = account.side == .production ? .sandbox : .production
        json.member("environment", purchase.flaw == .foreignEnvironment ? other.rawValue : account.side.rawValue)
        json.member("signedDate", nowMs)
    }

    private func sign(
        _ flaw: AppStoreTransactionScenario.Flaw?,
        _ body: (inout JSONBytes) -> Void
    ) throws -> String {
        let signer = try (flaw == .foreignRoot ? AppStoreCredentials.stranger : AppStoreCredentials.authority).get()
        let text = try signer.sign(String(decoding: JSONBytes.object(body), as: UTF8.self))
        guard flaw == .badSignature, let dot = text.lastIndex(of: ".") else { return text }
        // The signature's first character: changing it leaves the text well formed.
        let first = text.index(after: dot)
        return text[..<first] + (text[first] == "A" ? "B" : "A") + text[text.index(after: first)...]
    }
}
