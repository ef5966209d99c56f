import Composition
import Configuring
import SignedTokens
import StoreClients

extension Inspection {
    /// The purchases of a receipt that are shown.
    private static let shownPurchases = 20

    /// Inspects a signed transaction.
    init(storeKit text: String, _ settings: AppStoreSettings) async throws {
        let proofs = AppStoreProofs(
            roots: try StoreRoots(settings).transactions(),
            expected: AppStoreProofs.Expectation(bundleID: settings.bundleID)
        )
        await self.init(
            .storeKit,
            settings,
            root: settings.rootCertificates.map { _ in "APP_STORE_ROOT_CERTIFICATES" },
            facts: AppStoreProofs.unverified(text).map(Self.facts)
        ) { () throws(ProofRefusal) in _ = try await proofs.transaction(text) }
    }

    /// Inspects an app receipt.
    init(appReceipt text: String, _ settings: AppStoreSettings) async throws {
        let proofs = AppReceiptProofs(
            roots: try StoreRoots(settings).receipts(),
            expected: AppStoreProofs.Expectation(bundleID: settings.bundleID)
        )
        await self.init(
            .appReceipt,
            settings,
            root: settings.receiptRootCertificates.map { _ in "RECEIPT_ROOT_CERTIFICATES" },
            facts: AppReceiptProofs.unverified(text).map(Self.facts)
        ) { () throws(ProofRefusal) in _ = try await proofs.receipt(text) }
    }

    private init(
        _ kind: Kind,
        _ settings: AppStoreSettings,
        root: String?,
        facts: [String: String?]?,
        verify: () async throws(ProofRefusal) -> Void
    ) async {
        var refusal: ProofRefusal?
        do throws(ProofRefusal) { try await verify() } catch { refusal = error }
        let signer = root.map { "It was signed under a root of \($0)." } ?? "The App Store signed it."
        let anyApp = "APP_STORE_BUNDLE_ID is not set: it may be about any app."
        self.init(
            kind,
            of: "app_store",
            verifies: refusal == nil,
            reasons: [refusal?.detail ?? signer] + (settings.bundleID == nil ? [anyApp] : []),
            facts: facts ?? [:]
        )
    }

    private static func facts(_ transaction: SignedTransaction) -> [String: String?] {
        [
            "transaction_id": transaction.transactionID,
            "original_transaction_id": transaction.originalTransactionID,
            "previous_original_transaction_id": transaction.previousOriginalTransactionID,
            "bundle_id": transaction.bundleID, "product_id": transaction.productID,
            "subscription_group_id": transaction.subscriptionGroupID, "type": transaction.type,
            "ownership": transaction.ownership, "app_account_token": transaction.appAccountToken,
            "environment": transaction.environment, "purchased_at": text(transaction.purchasedAt),
            "expires_at": transaction.expiresAt.map(text), "revoked_at": transaction.revokedAt.map(text),
            "signed_at": text(transaction.signedAt),
        ]
    }

    private static func facts(_ receipt: AppReceipt) -> [String: String?] {
        var facts: [String: String?] = [
            "environment": receipt.environment, "bundle_id": receipt.bundleID, "app_version": receipt.appVersion,
            "original_app_version": receipt.originalAppVersion, "created_at": text(receipt.createdAt),
            "expires_at": receipt.expiresAt.map(text), "app_id": receipt.appID.map(String.init),
            "purchases": String(receipt.purchases.count),
        ]
        for (number, purchase) in zip(1...shownPurchases, receipt.purchases) {
            for (name, value) in Self.facts(purchase) { facts["purchase_\(number)_\(name)"] = value }
        }
        return facts
    }

    private static func facts(_ purchase: AppReceipt.InApp) -> [String: String?] {
        [
            "quantity": purchase.quantity.map(String.init), "product_id": purchase.productID,
            "transaction_id": purchase.transactionID, "original_transaction_id": purchase.originalTransactionID,
            "purchased_at": purchase.purchasedAt.map(text),
            "originally_purchased_at": purchase.originallyPurchasedAt.map(text),
            "expires_at": purchase.expiresAt.map(text), "canceled_at": purchase.canceledAt.map(text),
            "kind": purchase.kind.map(String.init), "is_trial": purchase.isTrial.map(String.init),
            "web_order_line_item_id": purchase.webOrderLineItemID.map(String.init),
            "is_intro_offer": purchase.isIntroOffer.map(String.init),
            "promotional_offer_id": purchase.promotionalOfferID,
        ]
    }
}
