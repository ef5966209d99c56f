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

/// A subscription or a one-time purchase, as it stands in a list.
struct WireItem: Sendable {
    var kind: Observation.Kind
    var id = ""
    var customerID = ""
    var productID: String?
    var status = ""
    var environment = ""
    var store = ""
    /// The store's own id of the item; never empty.
    var storeIdentifier: String?
    /// The API's answer; `nil` for one-time purchases alone.
    var givesAccess: Bool?
    var isPaymentPending = false
    var renewal: String?
    /// The current period's, or the moment of a one-time purchase.
    var startsAt: Instant?
    var endsAt: Instant?
    var ownership = "purchased"
    /// Lookup keys, in the API's order.
    var entitlements: [String] = []
    /// Where the item's own list of entitlements goes on.
    var nextEntitlements = NextPage.end

    /// Whether its entitlements, whatever they are, may give access.
    var mayGive: Bool { givesAccess ?? (status == StoreStatus.Known.owned.rawValue) }

    /// The store as the ledger calls it.
    var ledgerStore: String { store == "play_store" ? Store.googlePlay.rawValue : store }

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
        self.kind = kind
        let isSubscription = kind == .subscription
        var startsMs: Int64?
        var endsMs: Int64?
        try reader.readObject(itemFields) { reader, field throws(JSONFault) in
            switch field {
            case .id: id = try readName(&reader)
            case .customerID: customerID = try readName(&reader)
            // `gives_access` decides; without it the word does.
            case .status where isSubscription:
                status =
                    try reader.readIfSound { reader throws(JSONFault) in try readName(&reader) }
                    ?? Self.unknownStatus
            case .status: status = try readName(&reader)
            case .environment: environment = try readName(&reader)
            case .store: store = try readName(&reader)
            case .ownership:
                guard try !reader.readNull() else { return }
                ownership = try reader.readSoundString() ?? Self.unknownOwnership
            case .entitlements:
                let list = try reader.readIfSound { reader throws(JSONFault) in try readEntitlements(&reader) }
                (entitlements, nextEntitlements) = list ?? ([], .unusable)
            case .productID: productID = try reader.readSoundString()
            case .givesAccess where isSubscription: givesAccess = try reader.readBool()
            case .pendingPayment where isSubscription:
                isPaymentPending =
                    try reader.readIfSound { reader throws(JSONFault) in
                        try reader.readNull() ? false : try reader.readBool()
                    } ?? false
            case .renewal where isSubscription: renewal = try reader.readSoundString()
            case .periodStartsAt where isSubscription: startsMs = try reader.readSoundInteger()
            case .periodEndsAt where isSubscription: endsMs = try reader.readSoundInteger()
            case .purchasedAt where !isSubscription: startsMs = try reader.readSoundInteger()
            case .subscriptionIdentifier where isSubscription, .purchaseIdentifier where !isSubscription:
                storeIdentifier = try reader.readSoundString().flatMap { $0.isEmpty ? nil : $0 }
            default: try reader.passOver()
            }
        }
        if isSubscription, status.isEmpty { status = Self.unknownStatus }
        // A name that was read is never empty.
        guard !id.isEmpty, !customerID.isEmpty, !status.isEmpty, !environment.isEmpty, !store.isEmpty,
            givesAccess != nil || !isSubscription
        else { throw .missing }
        let isPromotional = store == "promotional"
        startsAt = instant(startsMs, isPromotional: isPromotional)
        endsAt = instant(endsMs, isPromotional: isPromotional)
        // One of the two is wrong, and nothing says which.
        if let start = startsAt, let end = endsAt, end < start { (startsAt, endsAt) = (nil, nil) }
    }
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
