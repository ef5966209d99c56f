/// A customer as the simulated RevenueCat holds it; every time is Unix milliseconds.
struct CustomerRecord: Sendable {
    var id: String
    /// Further ids; the primary one is not among them.
    var aliases: [String] = []
    var firstSeenMs: Int64
    var lastSeenMs: Int64?
    var country: String?
    /// Sorted by name; `updated_at` is the time the customer was last seen.
    var attributes: [(name: String, value: String)] = []
    var subscriptions: [SubscriptionRecord] = []
    var purchases: [PurchaseRecord] = []

    /// Every id that reaches this customer, the primary one first.
    var ids: [String] { [id] + aliases }
}

/// A subscription as the simulated RevenueCat holds it.
struct SubscriptionRecord: Sendable {
    var id: String
    /// First owner; nil while it is the customer who holds it.
    var originalCustomerID: String?
    var app: String
    var productID: String?
    var startsAtMs: Int64
    var periodStartsAtMs: Int64
    var periodEndsAtMs: Int64?
    var endsAtMs: Int64?
    var givesAccess: Bool
    var pendingPayment: Bool
    var renewal: String
    var status: String
    /// The money object, rendered once: it never changes and numbers are slow to print.
    var revenue: String
    var offeringID: String?
    /// Positions in the catalogue.
    var entitlements: [Int]
    var environment: String
    var store: String
    var storeIdentifier: String
    var pastIdentifiers: [String]
    var ownership: String
    var pendingProduct: String?
    var country: String?
    var managementURL: String?
    var atEnd: EndBehaviour

    /// The subscription as it stands at a moment: past its end it stays, expires or has renewed.
    func settled(at nowMs: Int64) -> SubscriptionRecord {
        guard let end = periodEndsAtMs, nowMs >= end, atEnd != .stay else { return self }
        var settled = self
        if atEnd == .renew, end > periodStartsAtMs {
            let length = end - periodStartsAtMs
            let periods = (nowMs - end) / length + 1
            settled.periodStartsAtMs += periods * length
            settled.periodEndsAtMs = end + periods * length
            settled.endsAtMs = endsAtMs.map { $0 + periods * length }
        } else {
            settled.givesAccess = false
            settled.status = "expired"
            settled.renewal = "will_not_renew"
        }
        return settled
    }
}

/// A one-time purchase as the simulated RevenueCat holds it.
struct PurchaseRecord: Sendable {
    var id: String
    /// First owner; nil while it is the customer who holds it.
    var originalCustomerID: String?
    var app: String
    var productID: String
    var purchasedAtMs: Int64
    /// The money object, rendered once.
    var revenue: String
    var quantity: Int
    var status: String
    var offeringID: String?
    /// Positions in the catalogue.
    var entitlements: [Int]
    var environment: String
    var store: String
    var storeIdentifier: String
    var ownership: String
    var country: String?
}

/// An entitlement of the project.
struct EntitlementRecord: Sendable {
    var id: String
    var lookupKey: String
    var displayName: String
    var createdAtMs: Int64
}

/// The project's entitlements; a position never changes its meaning, so records may hold positions.
struct EntitlementCatalogue: Sendable {
    private(set) var entries: [EntitlementRecord] = []
    private var positions: [String: Int] = [:]

    /// The position of a lookup key; an unknown one is added with a derived id.
    mutating func position(of lookupKey: String) -> Int {
        if let position = positions[lookupKey] { return position }
        // The example id of RevenueCat's own documents belongs to `premium`.
        let id = lookupKey == "premium" ? "entl9f8e7d6c5b" : "entl" + Identifiers.hex("entitlement/" + lookupKey)
        return add(.init(id: id, lookupKey: lookupKey, displayName: Self.title(lookupKey), createdAtMs: createdAtMs))
    }

    /// The position of an entitlement id, if there is one.
    func position(ofID id: String) -> Int? {
        entries.firstIndex { $0.id == id }
    }

    /// Adds what a scenario declares.
    mutating func declare(_ entitlement: Scenario.EntitlementScenario) {
        let position = position(of: entitlement.lookupKey)
        if let id = entitlement.id { entries[position].id = id }
        if let name = entitlement.displayName { entries[position].displayName = name }
    }

    private static func title(_ lookupKey: String) -> String {
        lookupKey.prefix(1).uppercased() + lookupKey.dropFirst()
    }

    private mutating func add(_ entry: EntitlementRecord) -> Int {
        entries.append(entry)
        positions[entry.lookupKey] = entries.count - 1
        return entries.count - 1
    }

    private let createdAtMs: Int64 = 1_700_000_000_000
}

/// Identifiers that look like the store's and are the same in every run.
enum Identifiers {
    /// Ten hexadecimal digits of a text's FNV-1a hash.
    static func hex(_ text: String) -> String {
        let digits = String(hash(text) & 0xff_ffff_ffff, radix: 16)
        return String(repeating: "0", count: 10 - digits.utf8.count) + digits
    }

    /// Thirteen decimal digits of a text's hash.
    static func digits(_ text: String) -> String {
        padded(Int64(hash(text) % 10_000_000_000_000))
    }

    /// A number with thirteen digits.
    static func padded(_ number: Int64) -> String {
        let digits = "\(number)"
        return String(repeating: "0", count: max(0, 13 - digits.utf8.count)) + digits
    }

    /// A transaction identifier in the form of a store, around thirteen digits.
    static func transaction(store: String, digits: String) -> String {
        switch store {
        case "app_store", "mac_app_store": return "48" + digits
        case "play_store":
            let all = Array("0000" + digits)
            return "GPA.\(String(all[0..<4]))-\(String(all[4..<8]))-\(String(all[8..<12]))-\(String(all[12...]))"
        case "promotional": return "rcpromo_" + digits
        case "stripe": return "si_" + digits
        case "amazon": return "\(digits):3:11"
        default: return "txn_" + digits
        }
    }

    private static func hash(_ text: String) -> UInt64 {
        var hash: UInt64 = 0xcbf2_9ce4_8422_2325
        for byte in text.utf8 {
            hash = (hash ^ UInt64(byte)) &* 0x100_0000_01b3
        }
        // FNV leaves the upper bits of short texts poorly mixed, and both ends of the hash are used here.
        hash = (hash ^ (hash >> 31)) &* 0x9e37_79b9_7f4a_7c15
        return hash ^ (hash >> 29)
    }
}
