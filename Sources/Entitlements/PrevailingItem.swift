/// What the ledger takes over from one reading about one purchase, where several items of the reading name it.
///
/// RevenueCat makes a new object for each resubscription and each change of products, and the store itself may speak of the
/// same purchase beside it. No list has a documented order, so the order decides nothing.
package struct PrevailingItem: Hashable, Sendable {
    /// The place of the item that stands.
    package var place: Int
    /// By which id the store is asked again: the standing item's, else that of the next best item that has one.
    package var lookupID: String?
    /// The app that the store itself names, and RevenueCat's project: each by the next best item that says it.
    package var storeApp: String?
    package var revenueCatProject: String?
    /// The store account that it was bought with, by the next best item whose account has a hash.
    package var storeAccount: StoreAccount?
    /// The newest version that a store gave to any of the items.
    package var statedAt: Instant?

    /// Picks the item that stands.
    ///
    /// Compared in this order: the user's own items before others; a store's own "over" before RevenueCat's statement; the
    /// strongest status; entitlements that the catalogue maps to access; the store's own item; the later end; the later start.
    /// `nil`: there are no items. `counts`: whether each speaks for the user; the others stand only where none does.
    package init?(among items: [Observation], counts: [Bool], catalog: ProductCatalog? = nil) {
        let overruled = Self.overruled(items, counts: counts)
        let ranked = items.indices.map { place in
            (place: place, rank: Rank(items[place], counts[place], overruled.contains(place), catalog))
        }
        .sorted { $1.rank < $0.rank }
        guard let first = ranked.first else { return nil }
        place = first.place
        lookupID = ranked.lazy.compactMap { items[$0.place].lookupID }.first
        storeApp = ranked.lazy.compactMap { items[$0.place].storeApp }.first
        revenueCatProject = ranked.lazy.compactMap { items[$0.place].revenueCatProject }.first
        storeAccount = ranked.lazy.compactMap { items[$0.place].storeAccount }.first { $0.hash != nil }
        statedAt = items.compactMap(\.statedAt).max()
    }

    /// The places of RevenueCat's items that are outdated: in the same reading, the purchase's own store says that it is
    /// over, has not begun, or ends at an unknown time.
    static func overruled(_ items: [Observation], counts: [Bool]) -> Set<Int> {
        let over = items.indices.filter { place in
            items[place].source != .revenueCat && counts[place] && items[place].endsOthers
                && !isBesideAccess(place, items, counts: counts)
        }
        guard !over.isEmpty else { return [] }
        let keys = Set(over.flatMap { items[$0].identifiers.map(\.key) })
        // Items of the past are on record without their names, by the purchase alone.
        let isNameless = over.contains { items[$0].identifiers.isEmpty }
        return Set(
            items.indices.filter { place in
                let item = items[place]
                guard item.source == .revenueCat else { return false }
                return item.identifiers.isEmpty || isNameless || !keys.isDisjoint(with: item.identifiers.map(\.key))
            }
        )
    }

    /// Whether the same store lists another item of the same purchase that gives access: one that ended says nothing of that.
    private static func isBesideAccess(_ place: Int, _ items: [Observation], counts: [Bool]) -> Bool {
        let keys = Set(items[place].identifiers.map(\.key))
        return items.indices.contains { other in
            other != place && items[other].source == items[place].source && counts[other]
                && items[other].accessState == .access && !keys.isDisjoint(with: items[other].identifiers.map(\.key))
        }
    }

    /// Compared member by member; the greatest stands.
    private struct Rank: Comparable {
        var numbers: [Int64]
        /// Tells items apart that say the same of access, so that their order still decides nothing.
        var texts: [String]

        init(_ item: Observation, _ counts: Bool, _ isOverruled: Bool, _ catalog: ProductCatalog?) {
            let accessState = item.accessState
            // Access without an end outlasts every other; an end of something else that is not known says the least.
            let endless = accessState == .access ? Int64.max : .min
            numbers = [
                counts ? 1 : 0, isOverruled ? 0 : 1, Self.strengths[accessState] ?? 0,
                Self.meaning(item.entitlements, catalog), item.source == .revenueCat ? 0 : 1,
                item.periodEndsAt?.microseconds ?? endless, item.periodStartsAt?.microseconds ?? .min,
            ]
            texts =
                [item.status.raw, item.productID ?? "", item.renewal ?? "", item.ownership, item.lookupID ?? ""]
                + item.entitlements + item.identifiers.flatMap { [$0.value, $0.environment] }
        }

        private static let strengths: [AccessState: Int64] = [
            .access: 4, .unsettled: 3, .pending: 2, .unknown: 1, .ended: 0,
        ]

        private static func meaning(_ entitlements: [String], _ catalog: ProductCatalog?) -> Int64 {
            guard !entitlements.isEmpty else { return 0 }
            return switch catalog?.mapping(of: entitlements) {
            case .access, nil: 3
            case .unmapped: 2
            case .noAccess: 1
            }
        }

        static func < (left: Self, right: Self) -> Bool {
            left.numbers != right.numbers
                ? left.numbers.lexicographicallyPrecedes(right.numbers)
                : left.texts.lexicographicallyPrecedes(right.texts)
        }
    }
}

extension Observation {
    /// Whether a store's own statement leaves nothing of what RevenueCat says about the same purchase.
    fileprivate var endsOthers: Bool {
        accessState == .ended || kind == .oneTime && (status.known == .scheduled || isLimited)
    }
}
