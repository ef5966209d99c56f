import Entitlements
import TextFormats

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
        /// The end of its own period; `nil` where there is none.
        var expiresAt: Instant?
        /// There is an end, of which nothing can be made.
        var hasOddEnd = false
        /// The last order that was paid; missing while the item is not owned yet, and for what was never paid.
        var orderID: String?
        var isAutoRenewing = false
        var isPrepaid = false
        /// Another product takes its place at its next renewal.
        var isReplacedLater = false
        /// The product that takes its place, where it is named.
        var replacement: String?
        /// It leaves at its next renewal.
        var isRemovedLater = false
        /// It takes another item's place, at that one's next renewal.
        var isDeferred = false
    }

    var stateText = State.unspecified.rawValue
    var startedAt: Instant?
    var acknowledgementState: String?
    var latestOrderID: String?
    var linkedToken: String?
    var items: [Item] = []
    /// One of the items, or their list, is nothing that can be read.
    var hasOddItems = false
    /// The state, or whose the purchase is, can't be read.
    var isOdd = false
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
    /// A purchase that is not paid, or that never will be, leaves the older one as it is; so does a state we do not
    /// know.
    var replacesLinked: Bool {
        switch state {
        case .active, .inGracePeriod, .canceled: items.isEmpty || items.contains(where: isOwned)
        case .onHold, .paused, .expired: true
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
    case deferredItemReplacement, deferredItemRemoval, itemReplacement
}

private enum AccountField: String, CaseIterable { case obfuscatedExternalAccountId, obfuscatedExternalProfileId }
private enum ContextField: String, CaseIterable { case expiredPurchaseToken, expiredExternalAccountIdentifiers }

private let fields = JSONFields<Field>()
private let itemFields = JSONFields<ItemField>()
private let autoRenewal = JSONFields(only: "autoRenewEnabled")
private let offer = JSONFields(only: "basePlanId")
private let replacementProduct = JSONFields(only: "productId")
private let mode = JSONFields(only: "replacementMode")
private let accountFields = JSONFields<AccountField>()
private let cancellation = JSONFields(only: "replacementCancellation")
private let pause = JSONFields(only: "autoResumeTime")
private let contextFields = JSONFields<ContextField>()

extension SubscriptionPurchase {
    private static let kind = "androidpublisher#subscriptionPurchaseV2"

    /// Reads a whole answer; what is odd in one member says nothing of the others.
    ///
    /// - Throws: where the text is no JSON object, or it says nothing of a subscription.
    init(_ body: [UInt8]) throws(JSONFault) {
        var purchase = SubscriptionPurchase()
        var hasState = false
        var hasItems = false
        try JSONReader.readObject(in: body, fields) { reader, field throws(JSONFault) in
            switch field {
            case .kind: guard try reader.readOptionalString() ?? Self.kind == Self.kind else { throw .wrongType }
            case .startTime: purchase.startedAt = try reader.readSoundTime()
            case .subscriptionState:
                guard try !reader.readNull() else { return }
                hasState = true
                if let text = try reader.readSoundString() {
                    purchase.stateText = text
                } else {
                    purchase.isOdd = true
                }
            case .acknowledgementState: purchase.acknowledgementState = try reader.readSoundString()
            case .latestOrderId: purchase.latestOrderID = try reader.readSoundString()
            case .linkedPurchaseToken: purchase.linkedToken = try reader.readSoundName()
            case .lineItems:
                (purchase.items, purchase.hasOddItems) = try reader.readSoundElements { reader throws(JSONFault) in
                    try Item(&reader)
                }
                hasItems = !purchase.items.isEmpty || purchase.hasOddItems
            case .externalAccountIdentifiers:
                let ids = try reader.readIfSound { reader throws(JSONFault) in
                    try .some(Self.readAccount(&reader))
                }
                // It names some user: a first proof must not stand in for what can't be read.
                if let ids { (purchase.accountID, purchase.profileID) = ids } else { purchase.isOdd = true }
            case .testPurchase: purchase.isTest = try reader.readPresence()
            case .canceledStateContext:
                let isReplaced = try reader.readIfSound { reader throws(JSONFault) in
                    try reader.readMember(cancellation) { reader throws(JSONFault) in try reader.readPresence() }
                }
                purchase.isReplaced = isReplaced ?? false
            case .pausedStateContext:
                purchase.resumesAt = try reader.readIfSound { reader throws(JSONFault) in
                    try reader.readMember(pause) { reader throws(JSONFault) in try reader.readOptionalTime() }
                }
            case .outOfAppPurchaseContext:
                guard try !reader.readNull() else { return }
                purchase.isOutOfApp = true
                let expired = try reader.readIfSound(Self.readExpired)
                purchase.expiredToken = expired?.token
                (purchase.expiredAccountID, purchase.expiredProfileID) = expired?.ids ?? (nil, nil)
            }
        }
        // Without a state and items, it is some other text.
        guard hasState || hasItems else { throw .missing }
        self = purchase
    }

    private static func readExpired(
        _ reader: inout JSONReader
    ) throws(JSONFault) -> (token: String?, ids: (String?, String?))? {
        var expired: (token: String?, ids: (String?, String?)) = (nil, (nil, nil))
        try reader.readOptionalObject(contextFields) { reader, field throws(JSONFault) in
            switch field {
            case .expiredPurchaseToken: expired.token = try reader.readOptionalName()
            case .expiredExternalAccountIdentifiers: expired.ids = try readAccount(&reader)
            }
        }
        return expired
    }

    /// The ids of the account and the profile that the app gave.
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
            case .expiryTime:
                guard try !reader.readNull() else { return }
                item.expiresAt = try reader.readSoundTime()
                item.hasOddEnd = item.expiresAt == nil
            case .latestSuccessfulOrderId: item.orderID = try reader.readSoundName()
            case .autoRenewingPlan:
                let isOn = try reader.readIfSound { reader throws(JSONFault) in
                    try reader.readMember(autoRenewal) { reader throws(JSONFault) in
                        try reader.readNull() ? false : try reader.readBool()
                    }
                }
                item.isAutoRenewing = isOn ?? false
            case .prepaidPlan: item.isPrepaid = try reader.readPresence()
            case .offerDetails: item.basePlanID = try reader.readSoundName(in: offer)
            case .deferredItemReplacement:
                guard try !reader.readNull() else { return }
                item.isReplacedLater = true
                item.replacement = try reader.readSoundName(in: replacementProduct)
            case .deferredItemRemoval: item.isRemovedLater = try reader.readPresence()
            case .itemReplacement: item.isDeferred = try reader.readSoundName(in: mode) == "DEFERRED"
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

    /// Reads a name; `nil` as well for anything else.
    mutating func readSoundName() throws(JSONFault) -> String? {
        try readIfSound { reader throws(JSONFault) in try reader.readOptionalName() }
    }

    /// Reads the name that is the only member of an object that matters; one of an odd shape says nothing.
    mutating func readSoundName(in member: JSONFields<Void>) throws(JSONFault) -> String? {
        try readIfSound { reader throws(JSONFault) in
            try reader.readMember(member) { reader throws(JSONFault) in try reader.readOptionalName() }
        }
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
