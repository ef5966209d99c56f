/// Writes and signs what the App Store says of transactions.
struct AppStoreWriter: Sendable {
    var bundleID: String
    var appID: Int64
    var nowMs: Int64

    // MARK: Signed texts

    /// A signed transaction.
    func transaction(_ purchase: AppStorePurchase, of account: AppStoreAccount) throws -> String {
        try sign(purchase.flaw) { json in
            json.key("transactionId")
            json.value(purchase.transaction)
            json.key("originalTransactionId")
            json.value(purchase.original)
            json.text("previousOriginalTransactionId", purchase.previousOriginal)
            json.key("bundleId")
            json.value(purchase.flaw == .foreignBundle ? bundleID + ".other" : bundleID)
            json.key("productId")
            json.value(purchase.product)
            json.key("purchaseDate")
            json.value(purchase.purchasedMs)
            json.key("originalPurchaseDate")
            json.value(purchase.originallyMs)
            if purchase.kind == .autoRenewable {
                json.key("subscriptionGroupIdentifier")
                json.value(purchase.group)
                json.key("webOrderLineItemId")
                json.value(purchase.transaction)
            }
            json.moment("expiresDate", purchase.expiresMs)
            json.key("quantity")
            json.value(1)
            json.key("type")
            json.literal(purchase.kind.signedWord)
            json.text("appAccountToken", purchase.accountToken)
            json.key("appTransactionId")
            json.value(account.appTransactionID)
            json.key("inAppOwnershipType")
            json.value(purchase.ownership)
            json.moment("revocationDate", purchase.revokedMs)
            if purchase.revokedMs != nil {
                json.key("revocationReason")
                json.value(0)
                json.key("revocationType")
                json.literal(purchase.state == .revoked ? "FAMILY_REVOKE" : "REFUND_FULL")
            }
            if purchase.isUpgraded {
                json.key("isUpgraded")
                json.value(true)
            }
            json.key("transactionReason")
            json.literal(purchase.transaction == purchase.original ? "PURCHASE" : "RENEWAL")
            json.key("storefront")
            json.literal("USA")
            json.key("storefrontId")
            json.literal("143441")
            json.key("price")
            json.value(4990)
            json.key("currency")
            json.literal("USD")
            signature(&json, purchase, account)
        }
    }

    /// Signed renewal info.
    func renewal(_ purchase: AppStorePurchase, of account: AppStoreAccount) throws -> String {
        try sign(purchase.flaw) { json in
            json.key("originalTransactionId")
            json.value(purchase.flaw == .foreignRenewal ? "9" + purchase.original : purchase.original)
            json.key("productId")
            json.value(purchase.product)
            json.key("autoRenewProductId")
            json.value(purchase.product)
            json.key("autoRenewStatus")
            json.value(purchase.autoRenews ? 1 : 0)
            json.moment("renewalDate", purchase.expiresMs)
            if purchase.state == .expired {
                json.key("expirationIntent")
                json.value(purchase.autoRenews ? 2 : 1)
            }
            if purchase.state == .billingRetry || purchase.state == .grace || purchase.state == .expired {
                json.key("isInBillingRetryPeriod")
                json.value(purchase.state != .expired)
            }
            json.moment("gracePeriodExpiresDate", purchase.graceEndsMs)
            json.moment("priceIncreaseStatus", purchase.priceIncrease.map(Int64.init))
            json.key("recentSubscriptionStartDate")
            json.value(purchase.originallyMs)
            json.text("appAccountToken", purchase.accountToken)
            json.key("appTransactionId")
            json.value(account.appTransactionID)
            signature(&json, purchase, account)
        }
    }

    /// A signed notification.
    ///
    /// - Parameters:
    ///   - notification: what happened.
    ///   - sentMs: when it was signed.
    ///   - subject: the transaction it is about, and its account.
    /// - Returns: the signed payload.
    /// - Throws: what the cryptography library does.
    func notification(
        _ notification: AppStoreNotificationScenario,
        sentMs: Int64,
        subject: (purchase: AppStorePurchase, account: AppStoreAccount)?
    ) throws -> String {
        let texts = try subject.map { subject in
            (try transaction(subject.purchase, of: subject.account), try renewal(subject.purchase, of: subject.account))
        }
        return try sign(subject?.purchase.flaw) { json in
            json.key("notificationType")
            json.value(notification.type)
            json.text("subtype", notification.subtype)
            json.key("notificationUUID")
            json.value(notification.uuid)
            json.key("version")
            json.literal("2.0")
            json.key("signedDate")
            json.value(sentMs)
            json.key("data")
            json.beginObject()
            identity(&json, notification.environment)
            if let subject, let texts {
                json.key("signedTransactionInfo")
                json.value(texts.0)
                if subject.purchase.kind == .autoRenewable {
                    json.key("status")
                    json.value(subject.purchase.state.number)
                    json.key("signedRenewalInfo")
                    json.value(texts.1)
                }
            }
            json.endObject()
        }
    }

    /// The members that say whose an answer is.
    func identity(_ json: inout JSONBytes, _ side: AppStoreSide) {
        json.key("environment")
        json.value(side.rawValue)
        json.key("bundleId")
        json.value(bundleID)
        if side == .production {
            json.key("appAppleId")
            json.value(appID)
        }
    }

    private func signature(_ json: inout JSONBytes, _ purchase: AppStorePurchase, _ account: AppStoreAccount) {
        let other: AppStoreSide = account.side == .production ? .sandbox : .production
        json.key("environment")
        json.value(purchase.flaw == .foreignEnvironment ? other.rawValue : account.side.rawValue)
        json.key("signedDate")
        json.value(nowMs)
    }

    private func sign(
        _ flaw: AppStoreTransactionScenario.Flaw?,
        _ body: (inout JSONBytes) -> Void
    ) throws -> String {
        var json = JSONBytes()
        json.beginObject()
        body(&json)
        json.endObject()
        let signer = try (flaw == .foreignRoot ? AppStoreCredentials.stranger : AppStoreCredentials.authority).get()
        let text = try signer.sign(String(decoding: json.bytes, as: UTF8.self))
        guard flaw == .badSignature, let dot = text.lastIndex(of: ".") else { return text }
        // The signature's first character: changing it leaves the text well formed.
        let first = text.index(after: dot)
        return text[..<first] + (text[first] == "A" ? "B" : "A") + text[text.index(after: first)...]
    }
}

extension JSONBytes {
    /// Writes a member where it applies.
    fileprivate mutating func text(_ name: StaticString, _ value: String?) {
        guard let value else { return }
        key(name)
        self.value(value)
    }

    /// Writes a member where it applies.
    fileprivate mutating func moment(_ name: StaticString, _ value: Int64?) {
        guard let value else { return }
        key(name)
        self.value(value)
    }
}
