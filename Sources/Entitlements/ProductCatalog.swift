/// Which entitlements mean access: the `product` table's rows for one store, by product id.
package struct ProductCatalog: Hashable, Sendable {
    package enum Mapping: Hashable, Sendable { case access, noAccess, unmapped }

    private var grants: [String: Bool]

    package init(_ grants: [String: Bool]) { self.grants = grants }

    /// What an item that carries these lookup keys means; the most generous row wins.
    package func mapping(of entitlements: [String]) -> Mapping {
        var result = Mapping.noAccess
        for entitlement in entitlements {
            switch grants[entitlement] {
            case true?: return .access
            case false?: break
            case nil: result = .unmapped
            }
        }
        return result
    }
}
