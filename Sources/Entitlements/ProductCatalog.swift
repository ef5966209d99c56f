/// What means access: the `product` table, by key.
///
/// A key is RevenueCat's lookup key of an entitlement, or a product of a store that is asked directly, written
/// `store:product` or `store:product:plan`.
package struct ProductCatalog: Hashable, Sendable {
    package enum Mapping: Hashable, Sendable { case access, noAccess, unmapped }

    /// Whether each key means access.
    private var grants: [String: Bool]
    /// The keys of products that end after a length of time.
    private var timed: Set<String>
    /// The team's names for what each key gives; a key without names is its own.
    private var names: [String: [String]]
    /// Whether the team tells several entitlements apart, so that a yes leaves open what else there is.
    package let hasSeveralNames: Bool

    package init(_ grants: [String: Bool], timed: Set<String> = [], names: [String: [String]] = [:]) {
        self.grants = grants
        self.timed = timed
        self.names = names
        hasSeveralNames = Set(names.values.joined()).count > 1
    }

    /// The team's names for what an item with these keys gives, in their order.
    func names(of keys: [String]) -> [String] {
        guard keys.count > 1 else { return keys.flatMap(names) }
        return Set(keys.flatMap(names)).sorted()
    }

    private func names(of key: String) -> [String] {
        let row = grants[key] == nil ? Self.withoutPlan(key) : key
        return grants[row] == true ? names[row] ?? [row] : []
    }

    /// The keys whose durations give a purchase for once its end; none where it is for life.
    ///
    /// The row of the store's own product decides before those of RevenueCat's entitlements. Where one thing that the
    /// purchase gives has no duration, it is for life.
    package func durations(of item: Observation) -> [String] {
        if item.source == .revenueCat, let productID = item.productID {
            let key = "\(item.store):\(productID)"
            if timed.contains(key) { return [key] }
            if grants[key] == true { return [] }
        }
        return durations(of: item.entitlements)
    }

    /// The keys whose durations end what carries these entitlements; none where one of them that gives access has no duration.
    package func durations(of entitlements: [String]) -> [String] {
        let giving = entitlements.filter { mapping(of: [$0]) == .access }
        return giving.allSatisfy(timed.contains) ? giving : []
    }

    /// What an item that carries these lookup keys means; the most generous row wins.
    package func mapping(of entitlements: [String]) -> Mapping {
        var result = Mapping.noAccess
        for entitlement in entitlements {
            switch grants[entitlement] ?? grants[Self.withoutPlan(entitlement)] {
            case true?: return .access
            case false?: break
            case nil: result = .unmapped
            }
        }
        return result
    }

    /// A product's row may stand for all its plans.
    private static func withoutPlan(_ key: String) -> String {
        guard key.utf8.count(where: { $0 == UInt8(ascii: ":") }) == 2, let last = key.lastIndex(of: ":") else {
            return key
        }
        return String(key[..<last])
    }
}
