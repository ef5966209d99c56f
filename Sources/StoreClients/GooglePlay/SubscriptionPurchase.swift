import Entitlements

/// A subscription as Google Play tells of it, found by its purchase token.
///
/// A missing member means that it does not apply, or has its type's default: proto3 leaves those out. Words are kept as
/// they are written: an unknown one is no fault.
///
/// - SeeAlso: https://developers.google.com/android-publisher/api-ref/rest/v3/purchases.subscriptionsv2
struct SubscriptionPurchase: Hashable, Sendable {
    /// `subscriptionState`, typed where it is a known one.
    enum State: String, Sendable, CaseIterable {
        case unspecified = "SUBSCRIPTION_STATE_UNSPECIFIED"
        case pending = "SUBSCRIPTION_STATE_PENDING"
        case active = "SUBSCRIPTION_STATE_ACTIVE"
        case inGracePeriod = "SUBSCRIPTION_STATE_IN_GRACE_PERIOD"
        case onHold = "SUBSCRIPTION_STATE_ON_HOLD"
        case paused = "SUBSCRIPTION_STATE_PAUSED"
        case canceled = "SUBSCRIPTION_STATE_CANCELED"
        case expired = "SUBSCRIPTION_STATE_EXPIRED"
        case pendingCanceled = "SUBSCRIPTION_STATE_PENDING_PURCHASE_CANCELED"
    }

    /// One product within the subscription: the plan itself or an add-on.
    struct Item: Hashable, Sendable {
        var productID: String?
        var basePlanID: String?
        var expiresAt: Instant?
        /// The last order that was paid; missing while the item is not owned yet.
        var orderID: String?
        var isAutoRenewing = false
        var isPrepaid = false
        /// The product that this item becomes at its next renewal.
        var replacement: String?
    }

    var stateText = State.unspecified.rawValue
    var startedAt: Instant?
    var acknowledgementState: String?
    var latestOrderID: String?
    var linkedToken: String?
    var items: [Item] = []
    var accountID: String?
    var profileID: String?
    var isTest = false
    /// A change of plans put another purchase in its place.
    var isReplaced = false
    /// When a pause ends by itself.
    var resumesAt: Instant?
    /// What a purchase made in Play tells of the expired one before it.
    var expiredToken: String?
    var expiredAccountID: String?
    var expiredProfileID: String?
    /// It was made in Play and not in the app, and not acknowledged yet.
    var isOutOfApp = false

    /// `nil`: a word we have not met.
    var state: State? { State(rawValue: stateText) }
    var awaitsAcknowledgement: Bool { acknowledgementState == AcknowledgementWord.pending }

    /// Whether the purchase stands in the place of the one that its link names.
    ///
    /// A purchase that is not paid, or that never will be, leaves the older one as it is; so does a state we do not know.
    var replacesLinked: Bool {
        switch state {
        case .active, .inGracePeriod, .onHold, .paused, .canceled, .expired: true
        case .pending, .pendingCanceled, .unspecified, nil: false
        }
    }
}

/// The words of `acknowledgementState`.
enum AcknowledgementWord {
    static let pending = "ACKNOWLEDGEMENT_STATE_PENDING"
    static let acknowledged = "ACKNOWLEDGEMENT_STATE_ACKNOWLEDGED"
}

// MARK: Reading

private enum Field: String, CaseIterable {
    case kind, startTime, subscriptionState, acknowledgementState, latestOrderId, linkedPurchaseToken, lineItems
    case externalAccountIdentifiers, testPurchase, outOfAppPurchaseContext
    case canceledStateContext, pausedStateContext
}

private enum ItemField: String, CaseIterable {
    case productId, expiryTime, latestSuccessfulOrderId, autoRenewingPlan, prepaidPlan, offerDetails
    case deferredItemReplacement
}

private enum RenewalField: String, CaseIterable { case autoRenewEnabled }
private enum OfferField: String, CaseIterable { case basePlanId }
private enum ReplacementField: String, CaseIterable { case productId }
private enum AccountField: String, CaseIterable { case obfuscatedExternalAccountId, obfuscatedExternalProfileId }
private enum CancellationField: String, CaseIterable { case replacementCancellation }
private enum PauseField: String, CaseIterable { case autoResumeTime }
private enum ContextField: String, CaseIterable { case expiredPurchaseToken, expiredExternalAccountIdentifiers }

private let fields = JSONFields<Field>()
private let itemFields = JSONFields<ItemField>()
private let renewalFields = JSONFields<RenewalField>()
private let offerFields = JSONFields<OfferField>()
private let replacementFields = JSONFields<ReplacementField>()
private let accountFields = JSONFields<AccountField>()
private let cancellationFields = JSONFields<CancellationField>()
private let pauseFields = JSONFields<PauseField>()
private let contextFields = JSONFields<ContextField>()

extension SubscriptionPurchase {
    private static let kind = "androidpublisher#subscriptionPurchaseV2"

    /// Reads a whole answer.
    ///
    /// - Throws: where the text is no JSON object, a member is of a wrong type, or it says nothing of a subscription.
    init(_ body: [UInt8]) throws(JSONFault) {
        var reader = try JSONReader(body)
        var purchase = SubscriptionPurchase()
        var hasState = false
        try reader.readObject(fields) { reader, field throws(JSONFault) in
            switch field {
            case .kind: guard try reader.readOptionalString() ?? Self.kind == Self.kind else { throw .wrongType }
            case .startTime: purchase.startedAt = try reader.readOptionalTime()
            case .subscriptionState:
                guard let text = try reader.readOptionalString() else { return }
                purchase.stateText = text
                hasState = true
            case .acknowledgementState: purchase.acknowledgementState = try reader.readOptionalString()
            case .latestOrderId: purchase.latestOrderID = try reader.readOptionalString()
            case .linkedPurchaseToken: purchase.linkedToken = try reader.readOptionalName()
            case .lineItems:
                guard try !reader.readNull() else { return }
                try reader.readArray { reader throws(JSONFault) in purchase.items.append(try Item(&reader)) }
            case .externalAccountIdentifiers:
                (purchase.accountID, purchase.profileID) = try Self.readAccount(&reader)
            case .testPurchase: purchase.isTest = try reader.readPresence()
            case .canceledStateContext:
                try reader.readOptionalObject(cancellationFields) { reader, _ throws(JSONFault) in
                    purchase.isReplaced = try reader.readPresence()
                }
            case .pausedStateContext:
                try reader.readOptionalObject(pauseFields) { reader, _ throws(JSONFault) in
                    purchase.resumesAt = try reader.readOptionalTime()
                }
            case .outOfAppPurchaseContext:
                guard try !reader.readNull() else { return }
                purchase.isOutOfApp = true
                try reader.readOptionalObject(contextFields) { reader, field throws(JSONFault) in
                    switch field {
                    case .expiredPurchaseToken: purchase.expiredToken = try reader.readOptionalName()
                    case .expiredExternalAccountIdentifiers:
                        (purchase.expiredAccountID, purchase.expiredProfileID) = try Self.readAccount(&reader)
                    }
                }
            }
        }
        try reader.finish()
        // A subscription that runs is one of something: without items, or without anything, it is some other text.
        let needsItems = purchase.state == .active || purchase.state == .inGracePeriod || purchase.state == .canceled
        guard hasState || !purchase.items.isEmpty, !needsItems || !purchase.items.isEmpty else { throw .missing }
        self = purchase
    }

    private static func readAccount(_ reader: inout JSONReader) throws(JSONFault) -> (String?, String?) {
        var account: String?
        var profile: String?
        try reader.readOptionalObject(accountFields) { reader, field throws(JSONFault) in
            switch field {
            case .obfuscatedExternalAccountId: account = try reader.readOptionalAccount()
            case .obfuscatedExternalProfileId: profile = try reader.readOptionalAccount()
            }
        }
        return (account, profile)
    }
}

extension SubscriptionPurchase.Item {
    fileprivate init(_ reader: inout JSONReader) throws(JSONFault) {
        var item = Self()
        try reader.readObject(itemFields) { reader, field throws(JSONFault) in
            switch field {
            case .productId: item.productID = try reader.readOptionalName()
            case .expiryTime: item.expiresAt = try reader.readOptionalTime()
            case .latestSuccessfulOrderId: item.orderID = try reader.readOptionalName()
            case .autoRenewingPlan:
                try reader.readOptionalObject(renewalFields) { reader, _ throws(JSONFault) in
                    item.isAutoRenewing = try reader.readNull() ? false : reader.readBool()
                }
            case .prepaidPlan: item.isPrepaid = try reader.readPresence()
            case .offerDetails:
                try reader.readOptionalObject(offerFields) { reader, _ throws(JSONFault) in
                    item.basePlanID = try reader.readOptionalName()
                }
            case .deferredItemReplacement:
                try reader.readOptionalObject(replacementFields) { reader, _ throws(JSONFault) in
                    item.replacement = try reader.readOptionalName()
                }
            }
        }
        self = item
    }
}

extension JSONReader {
    /// Reads a string; an empty one is proto3's way of saying nothing.
    mutating func readOptionalName() throws(JSONFault) -> String? {
        try readOptionalString().flatMap { $0.isEmpty ? nil : $0 }
    }

    /// Reads an id that the app gave the store; one that is no text is none of ours, and spoils nothing.
    mutating func readOptionalAccount() throws(JSONFault) -> String? {
        do throws(JSONFault) {
            return try readOptionalName()
        } catch {
            guard error == .badString else { throw error }
            return nil
        }
    }

    /// Reads an object or `null`.
    mutating func readOptionalObject<Field>(
        _ fields: JSONFields<Field>,
        _ read: (inout JSONReader, Field) throws(JSONFault) -> Void
    ) throws(JSONFault) {
        guard try !readNull() else { return }
        try readObject(fields, read)
    }
}
