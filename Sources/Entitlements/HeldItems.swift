/// An item that also says what was bought and whether it will be renewed.
protocol ProductItem: AccessItem {
    var productID: String? { get }
    var renewal: String? { get }
}

extension Observation: ProductItem {}
extension Purchase: ProductItem {}

/// What gives a user access, while it is gathered.
///
/// Counts only if the verdict gives access. It also has items that gave access before and that no store has refuted: a store
/// that is silent about an add-on does not end it sooner than it would end the type.
struct HeldItems: Hashable, Sendable {
    private var items: [Item] = []

    private struct Item: Hashable {
        /// The ledger's row; `nil`: it has none yet.
        var purchase: Int64?
        /// The index of the observation in the reading; `nil`: the item is the ledger's row.
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
