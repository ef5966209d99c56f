import Composition
import Configuring
import Entitlements
import Foundation
import SignedTokens
import StoreClients

/// What is found out about a proof; what it says is shown also where it does not verify.
struct Inspection: Encodable {
    /// Everything that a restore takes.
    enum Kind: String, Encodable, CaseIterable {
        case storeKit = "storekit_jws"
        case appReceipt = "app_receipt"
        case purchaseToken = "purchase_token"
        case onsideHistory = "onside_history"
        /// Names the store account of a device, and no purchase.
        case appTransaction = "app_transaction"
        // Claims, which are no proofs.
        case onsideOrderID = "onside_order_id"
        case transactionID = "transaction_id"
        case orderID = "order_id"
    }

    var kind: Kind
    var store: String
    var verifies: Bool
    var reasons: [String]
    var facts: [String: String]

    init(_ kind: Kind, of store: String, verifies: Bool, reasons: [String], facts: [String: String?] = [:]) {
        self.kind = kind
        self.store = store
        self.verifies = verifies
        self.reasons = reasons
        self.facts = facts.compactMapValues { $0 }
    }

    func show() {
        Output.line("\(kind.rawValue) of \(store): \(verifies ? "verifies" : "does not verify")")
        for reason in reasons { Output.line("  \(reason)") }
        if !facts.isEmpty { Output.line(verifies ? "It says:" : "It says, without anybody who vouches for it:") }
        let names = facts.keys.sorted { $0.compare($1, options: .numeric) == .orderedAscending }
        for name in names { Output.line("  \(name.padded(to: 36))  \(facts[name] ?? "")") }
    }
}

extension Inspection {
    /// The purchases of a receipt, and the orders of a history, that are shown.
    private static let shownParts = 20

    /// Inspects a signed transaction.
    init(storeKit text: String, _ settings: AppStoreSettings) async throws {
        let proofs = AppStoreProofs(
            roots: try StoreRoots(settings).transactions(),
            expected: AppStoreProofs.Expectation(bundleIDs: settings.bundleIDs)
        )
        await self.init(
            .storeKit,
            settings,
            root: settings.rootCertificates.contains { $0 != nil } ? "APP_STORE_ROOT_CERTIFICATES" : nil,
            facts: AppStoreProofs.unverified(text).map(Self.facts)
        ) { () throws(ProofRefusal) in _ = try await proofs.transaction(text) }
    }

    /// Inspects a signed app transaction.
    init(appTransaction text: String, _ settings: AppStoreSettings) async throws {
        let proofs = AppStoreProofs(
            roots: try StoreRoots(settings).transactions(),
            expected: AppStoreProofs.Expectation(bundleIDs: settings.bundleIDs)
        )
        await self.init(
            .appTransaction,
            settings,
            root: settings.rootCertificates.contains { $0 != nil } ? "APP_STORE_ROOT_CERTIFICATES" : nil,
            facts: AppStoreProofs.unverifiedApp(text).map(Self.facts)
        ) { () throws(ProofRefusal) in _ = try await proofs.appTransaction(text) }
    }

    /// Inspects an app receipt.
    init(appReceipt text: String, _ settings: AppStoreSettings) async throws {
        let proofs = AppReceiptProofs(
            roots: try StoreRoots(settings).receipts(),
            expected: AppStoreProofs.Expectation(bundleIDs: settings.bundleIDs)
        )
        await self.init(
            .appReceipt,
            settings,
            root: settings.receiptRootCertificates.contains { $0 != nil } ? "RECEIPT_ROOT_CERTIFICATES" : nil,
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
            reasons: [refusal?.detail ?? signer] + (settings.bundleIDs == nil ? [anyApp] : []),
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
            "environment": transaction.environment, "purchased_at": transaction.purchasedAt.machineText,
            "expires_at": transaction.expiresAt?.machineText, "revoked_at": transaction.revokedAt?.machineText,
            "signed_at": transaction.signedAt.machineText,
        ]
    }

    private static func facts(_ transaction: SignedAppTransaction) -> [String: String?] {
        [
            "app_transaction_id": transaction.appTransactionID, "bundle_id": transaction.bundleID,
            "environment": transaction.environment, "app_version": transaction.appVersion,
            "original_app_version": transaction.originalAppVersion,
            "originally_purchased_at": transaction.originallyPurchasedAt?.machineText,
            "signed_at": transaction.signedAt.machineText,
        ]
    }

    private static func facts(_ receipt: AppReceipt) -> [String: String?] {
        var facts: [String: String?] = [
            "environment": receipt.environment, "bundle_id": receipt.bundleID, "app_version": receipt.appVersion,
            "original_app_version": receipt.originalAppVersion, "created_at": receipt.createdAt.machineText,
            "expires_at": receipt.expiresAt?.machineText, "app_id": receipt.appID.map(String.init),
            "purchases": String(receipt.purchases.count),
        ]
        for (number, purchase) in zip(1...shownParts, receipt.purchases) {
            for (name, value) in Self.facts(purchase) { facts["purchase_\(number)_\(name)"] = value }
        }
        return facts
    }

    private static func facts(_ purchase: AppReceipt.InApp) -> [String: String?] {
        [
            "quantity": purchase.quantity.map(String.init), "product_id": purchase.productID,
            "transaction_id": purchase.transactionID, "original_transaction_id": purchase.originalTransactionID,
            "purchased_at": purchase.purchasedAt?.machineText,
            "originally_purchased_at": purchase.originallyPurchasedAt?.machineText,
            "expires_at": purchase.expiresAt?.machineText, "canceled_at": purchase.canceledAt?.machineText,
            "kind": purchase.kind.map(String.init), "is_trial": purchase.isTrial.map(String.init),
            "web_order_line_item_id": purchase.webOrderLineItemID.map(String.init),
            "is_intro_offer": purchase.isIntroOffer.map(String.init),
            "promotional_offer_id": purchase.promotionalOfferID,
        ]
    }

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
            for (number, transaction) in zip(1...Self.shownParts, history.transactions) {
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
            "purchased_at": transaction.purchasedAt.machineText, "expires_at": transaction.expiresAt?.machineText,
            "revoked_at": transaction.revokedAt?.machineText, "fetched_at": transaction.fetchedAt.machineText,
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
