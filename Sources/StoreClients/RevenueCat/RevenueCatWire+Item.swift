import Entitlements
import TextFormats

private enum ItemField: String, CaseIterable {
    case id, status, environment, store, ownership, entitlements
    case customerID = "customer_id"
    case productID = "product_id"
    case givesAccess = "gives_access"
    case pendingPayment = "pending_payment"
    case renewal = "auto_renewal_status"
    case periodStartsAt = "current_period_starts_at"
    case periodEndsAt = "current_period_ends_at"
    case purchasedAt = "purchased_at"
    case subscriptionIdentifier = "store_subscription_identifier"
    case purchaseIdentifier = "store_purchase_identifier"
}

private let itemFields = JSONFields<ItemField>()

extension WireItem {
    /// Reads a subscription.
    static func subscription(_ reader: inout JSONReader) throws(JSONFault) -> WireItem {
        try WireItem(.subscription, &reader)
    }

    /// Reads a one-time purchase.
    static func oneTime(_ reader: inout JSONReader) throws(JSONFault) -> WireItem { try WireItem(.oneTime, &reader) }

    /// What RevenueCat calls a status that it does not know itself.
    private static let unknownStatus = "unknown"
    /// Neither of the two that are known.
    private static let unknownOwnership = "unknown"

    /// Reads what tells whether the item gives access, and whose it is; of all else what is odd is left out.
    private init(_ kind: Observation.Kind, _ reader: inout JSONReader) throws(JSONFault) {
        let isSubscription = kind == .subscription
        var draft = Draft()
        try reader.readObject(itemFields) { reader, field throws(JSONFault) in
            switch field {
            case .id: draft.id = try readName(&reader)
            case .customerID: draft.customerID = try readName(&reader)
            // `gives_access` decides; without it the word does.
            case .status where isSubscription:
                draft.status = try reader.readIfSound { reader throws(JSONFault) in try readName(&reader) }
            case .status: draft.status = try readName(&reader)
            case .environment: draft.environment = try readName(&reader)
            case .store: draft.store = try readName(&reader)
            case .ownership:
                guard try !reader.readNull() else { return }
                draft.ownership = try reader.readIfSound(Self.text) ?? Self.unknownOwnership
            case .entitlements:
                let list = try reader.readIfSound { reader throws(JSONFault) in try readEntitlements(&reader) }
                (draft.entitlements, draft.nextEntitlements) = list ?? ([], .unusable)
            case .productID: draft.productID = try reader.readIfSound(Self.text)
            case .givesAccess where isSubscription: draft.givesAccess = try reader.readBool()
            case .pendingPayment where isSubscription:
                draft.pendingPayment =
                    try reader.readIfSound { reader throws(JSONFault) in
                        try reader.readNull() ? false : try reader.readBool()
                    } ?? false
            case .renewal where isSubscription: draft.renewal = try reader.readIfSound(Self.text)
            case .periodStartsAt where isSubscription: draft.startsAt = try reader.readIfSound(Self.number)
            case .periodEndsAt where isSubscription: draft.endsAt = try reader.readIfSound(Self.number)
            case .purchasedAt where !isSubscription: draft.startsAt = try reader.readIfSound(Self.number)
            case .subscriptionIdentifier where isSubscription:
                draft.storeIdentifier = try reader.readIfSound(Self.text)
            case .purchaseIdentifier where !isSubscription: draft.storeIdentifier = try reader.readIfSound(Self.text)
            default: try reader.passOver()
            }
        }
        try self.init(kind, draft)
    }

    private static func text(_ reader: inout JSONReader) throws(JSONFault) -> String? {
        try reader.readOptionalString()
    }
    private static func number(_ reader: inout JSONReader) throws(JSONFault) -> Int64? {
        try reader.readOptionalInteger()
    }

    private init(_ kind: Observation.Kind, _ draft: Draft) throws(JSONFault) {
        guard let id = draft.id, let customerID = draft.customerID,
            let status = draft.status ?? (kind == .subscription ? Self.unknownStatus : nil),
            let environment = draft.environment, let store = draft.store,
            draft.givesAccess != nil || kind == .oneTime
        else { throw .missing }
        let isPromotional = store == "promotional"
        var startsAt = instant(draft.startsAt, isPromotional: isPromotional)
        var endsAt = instant(draft.endsAt, isPromotional: isPromotional)
        // One of the two is wrong, and nothing says which.
        if let start = startsAt, let end = endsAt, end < start { (startsAt, endsAt) = (nil, nil) }
        self.kind = kind
        self.id = id
        self.customerID = customerID
        self.productID = draft.productID
        self.status = status
        self.environment = environment
        self.store = store
        self.storeIdentifier = draft.storeIdentifier.flatMap { $0.isEmpty ? nil : $0 }
        self.givesAccess = draft.givesAccess
        self.isPaymentPending = draft.pendingPayment
        self.renewal = draft.renewal
        self.startsAt = startsAt
        self.endsAt = endsAt
        self.ownership = draft.ownership ?? "purchased"
        self.entitlements = draft.entitlements
        self.nextEntitlements = draft.nextEntitlements
    }
}

/// An item while its members come in.
private struct Draft {
    var id: String?
    var customerID: String?
    var productID: String?
    var status: String?
    var environment: String?
    var store: String?
    var storeIdentifier: String?
    var givesAccess: Bool?
    var pendingPayment = false
    var renewal: String?
    var startsAt: Int64?
    var endsAt: Int64?
    var ownership: String?
    var entitlements: [String] = []
    var nextEntitlements = NextPage.end
}

/// September 2001: no app store sold anything before, and a smaller number is a date in seconds.
private let earliestMs: Int64 = 1_000_000_000_000
/// The end of 2199, the last year an `Instant` is made for.
private let latestMs: Int64 = 7_258_118_400_000
/// The end of 2399.
private let latestGrantMs: Int64 = 13_569_465_600_000

/// Makes an instant of a store's milliseconds; `nil` for what cannot be a date of a purchase.
///
/// RevenueCat writes a lifetime grant as one that ends two centuries from now. Such an end, of promotional items only,
/// is brought down to the last instant we hold.
private func instant(_ milliseconds: Int64?, isPromotional: Bool) -> Instant? {
    guard let milliseconds, milliseconds >= earliestMs,
        milliseconds < (isPromotional ? latestGrantMs : latestMs + 1)
    else { return nil }
    return Instant(milliseconds: min(milliseconds, latestMs))
}
