/// One thing that gives a user access, under one of the team's names: a purchase, or a grant.
package struct HeldEntitlement: Hashable, Sendable {
    /// The team's name for what it gives, from `product`; `nil`: access without a name.
    package var name: String?
    /// Where it was bought; `nil` for a grant.
    package var store: String?
    /// Who gave it without a purchase; `nil` for a purchase.
    package var source: String?
    package var productID: String?
    package var environment: String?
    /// `nil`: it has no end.
    package var endsAt: Instant?
    /// `nil`: the store has not said.
    package var willRenew: Bool?
    /// The last payment has failed, and the store gives time to mend that.
    package var isAtRisk = false

    package init() {}

    /// The most that one user's set has; the rest, which no user has, is left out.
    package static let most = 100
}

/// A grant that is in force.
package struct ActiveGrant: Hashable, Sendable {
    /// `nil`: for good.
    package var until: Instant?
    /// Who gave it: `grant` stands for our own people.
    package var source: String
    /// The team's name for what it gives; `nil`: access without a name.
    package var entitlement: String?

    package init(until: Instant?, source: String, entitlement: String? = nil) {
        self.until = until
        self.source = source
        self.entitlement = entitlement
    }
}

/// What can tell, besides access, what was bought and whether it goes on.
protocol ProductItem: AccessItem {
    var productID: String? { get }
    var renewal: String? { get }
}

extension Observation: ProductItem {}
extension Purchase: ProductItem {}

/// What gives a user access, while it is gathered.
///
/// The list counts only where the verdict is a yes. What was given before and is not refuted yet stands in it as well: silence about an
/// add-on takes it away no sooner than silence about all takes the type.
struct HeldItems: Hashable, Sendable {
    private var items: [Item] = []

    private struct Item: Hashable {
        /// The ledger's row; `nil`: it has none yet.
        var purchase: Int64?
        /// The observation that says so; `nil`: the ledger's row does.
        var place: Int?
        var names: [String]
        var held = HeldEntitlement()
    }

    /// Adds an item that gives access by these keys.
    mutating func add(
        _ item: some ProductItem,
        giving keys: [String],
        purchase: Int64?,
        place: Int?,
        _ input: DecisionInput
    ) {
        var held = HeldEntitlement()
        held.store = item.store
        held.productID = item.productID
        held.environment = item.environment
        held.endsAt = item.periodEndsAt
        if item.isSandbox, let end = input.sandboxEnds { held.endsAt = min(item.periodEndsAt ?? end, end) }
        held.willRenew = item.kind == .oneTime ? false : item.renewal.map { !announcesEnd($0) }
        held.isAtRisk = item.isAtRisk
        items.append(Item(purchase: purchase, place: place, names: input.catalog.names(of: keys), held: held))
    }

    /// The set, in an order that depends on nothing but what stands in it.
    func entitlements(_ input: DecisionInput) -> [HeldEntitlement] {
        var list: [HeldEntitlement] = []
        for item in items.count > 1 ? once(input) : items {
            for name in item.names {
                var held = item.held
                held.name = name
                list.append(held)
            }
        }
        for grant in input.activeGrants {
            var held = HeldEntitlement()
            held.name = grant.entitlement
            held.source = grant.source
            held.endsAt = grant.until
            held.willRenew = false
            list.append(held)
        }
        return list.count > 1 ? Array(list.sorted(by: HeldEntitlement.precedes).prefix(HeldEntitlement.most)) : list
    }

    /// Each purchase once: RevenueCat and the store itself may speak of the same one, as the ledger takes it over.
    private func once(_ input: DecisionInput) -> [Item] {
        let observations = input.reading.observations
        func isSame(_ one: Item, _ other: Item) -> Bool {
            if let purchase = one.purchase, purchase == other.purchase { return true }
            guard let place = one.place, let second = other.place else { return false }
            let keys = Set(observations[place].identifiers.map(\.key))
            return !keys.isDisjoint(with: observations[second].identifiers.map(\.key))
        }
        var groups: [[Item]] = []
        for item in items {
            let same = groups.indices.filter { groups[$0].contains { isSame($0, item) } }
            let joined = same.flatMap { groups[$0] } + [item]
            for index in same.reversed() { groups.remove(at: index) }
            groups.append(joined)
        }
        return groups.compactMap { group in
            let places = group.compactMap(\.place)
            let prevailing = PrevailingItem(
                among: places.map { observations[$0] },
                counts: places.map { _ in true },
                catalog: input.catalog
            )
            return prevailing.flatMap { best in group.first { $0.place == places[best.place] } }
                ?? group.min { HeldEntitlement.precedes($0.held, $1.held) }
        }
    }
}

extension HeldEntitlement {
    private var texts: [String] { [name, store, source, productID, environment].map { $0 ?? "" } }

    private var numbers: [Int64] {
        [endsAt?.microseconds ?? .max, willRenew.map { $0 ? 2 : 1 } ?? 0, isAtRisk ? 1 : 0]
    }

    static func precedes(_ left: Self, _ right: Self) -> Bool {
        let (one, other) = (left.texts, right.texts)
        return one == other
            ? left.numbers.lexicographicallyPrecedes(right.numbers) : one.lexicographicallyPrecedes(other)
    }
}

/// How the set of what gives a user access changes.
package struct EntitlementChange: Hashable, Sendable {
    package var before: [HeldEntitlement]
    package var after: [HeldEntitlement]
    /// The set as it is kept from now on: our own JSON.
    package var record: String
    /// Whether others hear of it: it is more than a payment that has failed, or was made after all.
    package var isNews: Bool

    package init(from before: [HeldEntitlement], to after: [HeldEntitlement], record: String) {
        self.before = before
        self.after = after
        self.record = record
        isNews = before.map(\.published) != after.map(\.published)
    }
}

extension HeldEntitlement {
    /// As far as it is published: ends in whole seconds.
    fileprivate var published: Self {
        var held = self
        held.environment = nil
        held.isAtRisk = false
        held.endsAt = endsAt.map { Instant(microseconds: $0.microseconds - $0.microseconds % 1_000_000) }
        return held
    }
}
