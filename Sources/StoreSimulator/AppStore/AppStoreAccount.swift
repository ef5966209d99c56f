/// One Apple account, its moments counted.
struct AppStoreAccount: Sendable {
    var id: String
    var side: AppStoreSide
    /// Before this moment it is not found.
    var visibleFromMs: Int64
    /// `nil`: devices have none.
    var appTransactionID: String?
    var appTransactionFlaw: AppStoreTransactionScenario.Flaw?
    var purchases: [AppStorePurchase]

    /// Every id by which the account is found.
    var ids: Set<String> {
        Set(purchases.flatMap { [$0.original, $0.transaction] }).union([appTransactionID].compactMap(\.self))
    }

    /// Sets an account up; `sequence` is raised for each transaction that is new or other than in the account before.
    init(_ scenario: AppStoreCustomerScenario, nowMs: Int64, sequence: inout Int64, replacing before: Self? = nil) {
        id = scenario.id
        side = scenario.environment
        visibleFromMs = scenario.visibleAfter.map { nowMs + $0.milliseconds } ?? .min
        appTransactionID =
            scenario.appTransactionID == "none" ? nil : scenario.appTransactionID ?? Self.derivedID(scenario.id)
        appTransactionFlaw = scenario.appTransactionFlaw
        purchases = []
        for transaction in scenario.transactions {
            var purchase = AppStorePurchase(transaction, nowMs: nowMs)
            if let known = before?.purchases.first(where: { $0.transaction == purchase.transaction }),
                known.isSame(as: purchase)
            {
                purchase.sequence = known.sequence
            } else {
                sequence += 1
                purchase.sequence = sequence
            }
            purchases.append(purchase)
        }
    }

    /// The newest transaction of each subscription, group by group.
    var lines: [(group: String, purchases: [AppStorePurchase])] {
        var groups: [(group: String, purchases: [AppStorePurchase])] = []
        for purchase in purchases where purchase.kind == .autoRenewable && newest(of: purchase.original) == purchase {
            if let index = groups.firstIndex(where: { $0.group == purchase.group }) {
                groups[index].purchases.append(purchase)
            } else {
                groups.append((purchase.group, [purchase]))
            }
        }
        return groups
    }

    /// The transaction that speaks for a purchase.
    func newest(of original: String) -> AppStorePurchase? {
        let candidates = purchases.filter { $0.original == original }
        let current = candidates.filter { !$0.isUpgraded }
        return (current.isEmpty ? candidates : current).max { $0.purchasedMs < $1.purchasedMs }
    }

    /// The transaction that an id means: its own, or the newest of a purchase.
    func purchase(_ id: String) -> AppStorePurchase? {
        purchases.first { $0.transaction == id } ?? newest(of: id)
    }

    /// Digits made of a name, the same each time.
    private static func derivedID(_ name: String) -> String {
        "70" + String(Identifiers.fingerprint(name) % 10_000_000_000_000_000)
    }
}

/// One transaction, its moments counted.
struct AppStorePurchase: Sendable, Hashable {
    var original: String
    var transaction: String
    var product: String
    var kind: AppStoreTransactionScenario.Kind
    var state: AppStoreTransactionScenario.State
    var purchasedMs: Int64
    var originallyMs: Int64
    var expiresMs: Int64?
    var graceEndsMs: Int64?
    var revokedMs: Int64?
    var accountToken: String?
    var ownership: String
    var orderID: String?
    var isUpgraded: Bool
    var previousOriginal: String?
    var autoRenews: Bool
    var priceIncrease: Int?
    var group: String
    var flaw: AppStoreTransactionScenario.Flaw?
    /// Its place in the order of changes.
    var sequence: Int64 = 0

    init(_ scenario: AppStoreTransactionScenario, nowMs: Int64) {
        original = scenario.original
        transaction = scenario.transaction ?? scenario.original
        product = scenario.product
        kind = scenario.type
        state = scenario.state
        purchasedMs = scenario.purchased.milliseconds(from: nowMs)
        originallyMs = scenario.originally?.milliseconds(from: nowMs) ?? purchasedMs
        if let expires = scenario.expires {
            expiresMs = expires.milliseconds(from: nowMs)
        } else if scenario.type == .autoRenewable {
            let isOver = [.expired, .billingRetry, .grace].contains(scenario.state)
            expiresMs = nowMs + (isOver ? -1 : 20) * TimeText.day
        }
        if scenario.state == .grace {
            graceEndsMs = scenario.graceEnds?.milliseconds(from: nowMs) ?? nowMs + 6 * TimeText.day
        }
        if scenario.state.isRevoked {
            revokedMs = scenario.revokedAt?.milliseconds(from: nowMs) ?? nowMs - TimeText.day / 24
        }
        accountToken = scenario.accountToken
        ownership = scenario.ownership
        orderID = scenario.orderID
        isUpgraded = scenario.isUpgraded
        previousOriginal = scenario.previousOriginal
        autoRenews = scenario.autoRenew ?? [.active, .billingRetry, .grace].contains(scenario.state)
        priceIncrease = scenario.priceIncrease
        group = scenario.group
        flaw = scenario.flaw
    }

    /// Whether nothing was changed; relative moments are counted again and may differ by what has passed since.
    func isSame(as other: Self) -> Bool {
        var other = other
        other.sequence = sequence
        for moment in [\Self.purchasedMs, \.originallyMs]
        where Self.isNear(self[keyPath: moment], other[keyPath: moment]) {
            other[keyPath: moment] = self[keyPath: moment]
        }
        for moment in [\Self.expiresMs, \.graceEndsMs, \.revokedMs] {
            guard let mine = self[keyPath: moment], let its = other[keyPath: moment], Self.isNear(mine, its) else {
                continue
            }
            other[keyPath: moment] = mine
        }
        return self == other
    }

    private static func isNear(_ first: Int64, _ second: Int64) -> Bool { abs(first - second) < 60_000 }
}
