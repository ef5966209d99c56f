import Entitlements

private enum ItemField: String, CaseIterable {
    case id, status, environment, store, ownership, entitlements
    case customerID = "customer_id"
    case productID = "product_id"
    case givesAccess = "gives_access"
    case pendingPayment = "pending_payment"
    case renewal = "auto_renewal_status"
    case startsAt = "starts_at"
    case endsAt = "ends_at"
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

    private init(_ kind: Observation.Kind, _ reader: inout JSONReader) throws(JSONFault) {
        let isSubscription = kind == .subscription
        var draft = Draft()
        try reader.readObject(itemFields) { reader, field throws(JSONFault) in
            switch field {
            case .id: draft.id = try readName(&reader)
            case .customerID: draft.customerID = try readName(&reader)
            case .status: draft.status = try readName(&reader)
            case .environment: draft.environment = try readName(&reader)
            case .store: draft.store = try readName(&reader)
            case .ownership: draft.ownership = try reader.readOptionalString()
            case .entitlements: (draft.entitlements, draft.nextEntitlements) = try readEntitlements(&reader)
            case .productID: draft.productID = try reader.readOptionalString()
            case .givesAccess where isSubscription: draft.givesAccess = try reader.readBool()
            case .pendingPayment where isSubscription:
                draft.pendingPayment = try reader.readNull() ? false : try reader.readBool()
            case .renewal where isSubscription: draft.renewal = try reader.readOptionalString()
            case .periodStartsAt where isSubscription: draft.startsAt = try reader.readOptionalInteger()
            case .periodEndsAt where isSubscription: draft.endsAt = try reader.readOptionalInteger()
            case .purchasedAt where !isSubscription: draft.startsAt = try reader.readOptionalInteger()
            case .subscriptionIdentifier where isSubscription:
                draft.storeIdentifier = try reader.readOptionalString()
            case .purchaseIdentifier where !isSubscription: draft.storeIdentifier = try reader.readOptionalString()
            // Not used, but an impossible date shows that the others are not to be trusted either.
            case .startsAt where isSubscription, .endsAt where isSubscription:
                draft.unusedDates.append(try reader.readOptionalInteger())
            default: try reader.passOver()
            }
        }
        try self.init(kind, draft)
    }

    private init(_ kind: Observation.Kind, _ draft: Draft) throws(JSONFault) {
        guard let id = draft.id, let customerID = draft.customerID, let status = draft.status,
            let environment = draft.environment, let store = draft.store,
            draft.givesAccess != nil || kind == .oneTime
        else { throw .missing }
        let isPromotional = store == "promotional"
        for date in draft.unusedDates { _ = try instant(date, isPromotional: isPromotional) }
        let startsAt = try instant(draft.startsAt, isPromotional: isPromotional)
        let endsAt = try instant(draft.endsAt, isPromotional: isPromotional)
        if let startsAt, let endsAt, endsAt < startsAt { throw .outOfRange }
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
    var unusedDates: [Int64?] = []
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

/// Makes an instant of a store's milliseconds, and refuses what cannot be a date of a purchase.
///
/// RevenueCat writes a lifetime grant as one that ends two centuries from now. Such an end, of promotional items only,
/// is brought down to the last instant we hold.
private func instant(_ milliseconds: Int64?, isPromotional: Bool) throws(JSONFault) -> Instant? {
    guard let milliseconds else { return nil }
    guard milliseconds >= earliestMs, milliseconds < (isPromotional ? latestGrantMs : latestMs + 1),
        let instant = Instant(milliseconds: min(milliseconds, latestMs))
    else { throw .outOfRange }
    return instant
}
