package import Entitlements

/// What the App Store says in an app receipt; only read, not yet verified.
///
/// It is a snapshot of the day it was made. A missing attribute means that it does not apply. Words are kept as they
/// are written: an unknown one is no fault.
///
/// - SeeAlso: https://developer.apple.com/library/archive/releasenotes/General/ValidateAppStoreReceipt/Chapters/ReceiptFields.html
package struct AppReceipt: Sendable, Hashable {
    /// The most purchases of a receipt that is read.
    package static let maximumPurchases = 5_000

    /// The receipt's type: `Production`, `ProductionSandbox`, `ProductionVPP`, `ProductionVPPSandbox`, `Xcode`.
    package var environment: String
    package var bundleID: String
    package var appVersion: String?
    /// The version that was bought first; `1.0` in the sandbox.
    package var originalAppVersion: String?
    /// When it was made, and signed.
    package var createdAt: Instant
    /// Until when an app counts that was bought in volume.
    package var expiresAt: Instant?
    /// The app's number; the sandbox does not say it.
    package var appID: Int64?
    /// Consumables stand here until the app has finished them, the others for ever.
    package var purchases: [InApp]

    /// One purchase in the app.
    package struct InApp: Sendable, Hashable {
        package var quantity: Int64?
        package var productID: String
        /// One for each charge or restore.
        package var transactionID: String
        /// The same for all transactions of one purchase or subscription line; Xcode leaves it out.
        package var originalTransactionID: String?
        package var purchasedAt: Instant?
        package var originallyPurchasedAt: Instant?
        /// The end of a subscription's period, as it was known then.
        package var expiresAt: Instant?
        /// Its presence says that the purchase was refunded or withdrawn.
        package var canceledAt: Instant?
        /// 0 non-consumable, 1 consumable, 2 non-renewing, 3 auto-renewable; not published.
        package var kind: Int64?
        package var webOrderLineItemID: Int64?
        package var isTrial: Bool?
        package var isIntroOffer: Bool?
        package var promotionalOfferID: String?
    }

    /// The environments of the types that the App Store makes; those of a developer's machine have none.
    private static let storeEnvironments = [
        "Production": "Production", "ProductionVPP": "Production", "ProductionSandbox": "Sandbox",
        "ProductionVPPSandbox": "Sandbox",
    ]

    /// What the store's other texts call the environment; `nil` where it is none of the store's.
    package var storeEnvironment: String? { Self.storeEnvironments[environment] }

    /// Whether no money was paid: all but what is known to be the store's production.
    package var isSandbox: Bool { storeEnvironment != "Production" }

    /// Reads a payload.
    package init(payload: [UInt8]) throws(ProofRefusal) {
        do throws(ASN1Fault) {
            self = try AppReceipt(AppReceiptAttributes(payload[...]))
        } catch {
            guard error != .tooDeep else {
                throw ProofRefusal(.malformed, "The payload is not a receipt: it is nested too deep.")
            }
            throw ProofRefusal(
                .malformed,
                "The payload is not a receipt: it is no set of attributes, or one is missing, says two things or is "
                    + "of a wrong type."
            )
        }
        guard purchases.count <= Self.maximumPurchases else {
            throw ProofRefusal(.tooLarge, "It has more than \(Self.maximumPurchases) purchases.")
        }
    }

    private init(_ attributes: AppReceiptAttributes) throws(ASN1Fault) {
        environment = try attributes.requiredText(.environment)
        bundleID = try attributes.requiredText(.bundleID)
        appVersion = try attributes.text(.appVersion)
        originalAppVersion = try attributes.text(.originalAppVersion)
        guard let createdAt = try attributes.moment(.createdAt) else { throw .wrongType }
        self.createdAt = createdAt
        expiresAt = try attributes.moment(.expiresAt)
        appID = try attributes.identifier(.appID)
        purchases = []
        purchases.reserveCapacity(attributes.purchases.count)
        for written in attributes.purchases { purchases.append(try InApp(AppReceiptAttributes(written))) }
    }
}

extension AppReceipt.InApp {
    fileprivate init(_ attributes: AppReceiptAttributes) throws(ASN1Fault) {
        quantity = try attributes.integer(.quantity)
        productID = try attributes.requiredText(.productID)
        transactionID = try attributes.requiredText(.transactionID)
        originalTransactionID = try attributes.text(.originalTransactionID)
        purchasedAt = try attributes.moment(.purchasedAt)
        originallyPurchasedAt = try attributes.moment(.originallyPurchasedAt)
        expiresAt = try attributes.moment(.subscriptionExpiresAt)
        canceledAt = try attributes.moment(.canceledAt)
        kind = try attributes.integer(.productKind)
        webOrderLineItemID = try attributes.identifier(.webOrderLineItemID)
        isTrial = try attributes.integer(.isTrial).map { $0 != 0 }
        isIntroOffer = try attributes.integer(.isIntroOffer).map { $0 != 0 }
        promotionalOfferID = try attributes.text(.promotionalOfferID)
    }
}
