/// What means access: the `product` table, by key.
///
/// A key is RevenueCat's lookup key of an entitlement, or a product of a store that is asked directly, written
/// `store:product` or `store:product:plan`.
package struct ProductCatalog: Hashable, Sendable {
    package enum Mapping: Hashable, Sendable { case access, noAccess, unmapped }

    private var grants: [String: Bool]

    package init(_ grants: [String: Bool]) { self.grants = grants }

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
