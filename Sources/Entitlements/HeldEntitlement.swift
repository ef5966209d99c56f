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
