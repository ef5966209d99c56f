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

/// What subscriptions and purchases have in common.
protocol ItemRecord: Sendable {
    /// What RevenueCat's ids of the kind begin with.
    static var prefix: String { get }
    /// The kind's part of a path.
    static var list: String { get }

    var id: String { get set }
    var originalCustomerID: String? { get set }
    var app: String { get }
    var status: String { get }
    var entitlements: [Int] { get }
    var environment: String { get }
    var store: String { get }
    var storeIdentifier: String { get set }
    var isKnownToStore: Bool? { get }

    /// Writes the item's object.
    func write(to json: inout JSONBytes, owner: String, by renderer: RevenueCatRenderer) throws
}

extension ItemRecord {
    /// Gives the item other identifiers: RevenueCat's own, and the store's with these digits.
    mutating func identify(_ id: String, digits: String) {
        self.id = Self.prefix + id
        storeIdentifier = Identifiers.transaction(store: store, digits: digits)
    }
}

/// A subscription as the simulated RevenueCat holds it.
struct SubscriptionRecord: ItemRecord {
    static let prefix = "sub"
    static let list = "subscriptions"

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
    /// `nil`: what the scenario says of all.
    var isKnownToStore: Bool?

    /// Whether the passing of time has changed the subscription by a moment.
    func settles(at nowMs: Int64) -> Bool {
        atEnd != .stay && periodEndsAtMs.map { nowMs >= $0 } ?? false
    }

    /// The subscription as it stands at a moment: past its end it stays, expires or has renewed.
    func settled(at nowMs: Int64) -> SubscriptionRecord {
        guard settles(at: nowMs), let end = periodEndsAtMs else { return self }
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
struct PurchaseRecord: ItemRecord {
    static let prefix = "purch"
    static let list = "purchases"

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
    /// `nil`: what the scenario says of all.
    var isKnownToStore: Bool?
}
