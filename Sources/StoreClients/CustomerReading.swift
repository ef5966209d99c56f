package import Entitlements

/// Which customer to read, and what the reader must know to need few requests.
package struct CustomerQuery: Sendable {
    /// The host's id of the user, which is the store's customer id; compared byte for byte.
    package var userID: String
    package var lane: Lane
    /// Whether sandbox items may give this user access.
    package var sandboxCounts: Bool
    /// Whether an item with these entitlements (lookup keys, sorted) may give access.
    ///
    /// Where a subscription does, one-time purchases are not asked for. A customer with entitlements that give nothing
    /// passes a check of their own; a `true` too many could hide a lifetime purchase behind a subscription.
    package var mayGrant: @Sendable ([String]) -> Bool
    /// Which of these ids are users of the host.
    package var isOtherUser: @Sendable ([String]) async throws -> Set<ExactText>

    package init(
        userID: String,
        lane: Lane,
        sandboxCounts: Bool,
        mayGrant: @escaping @Sendable ([String]) -> Bool = { !$0.isEmpty },
        isOtherUser: @escaping @Sendable ([String]) async throws -> Set<ExactText>
    ) {
        self.userID = userID
        self.lane = lane
        self.sandboxCounts = sandboxCounts
        self.mayGrant = mayGrant
        self.isOtherUser = isOtherUser
    }
}

/// What a store said about one customer.
package struct CustomerReading: Sendable {
    /// `full` only where every list that was needed was read to its last page.
    package var coverage: Coverage
    package var observations: [Observation] = []
    /// Why the reading is not full; the last failure, where there were several.
    package var failure: ReadFailure?
    /// HTTP requests sent.
    package var requests: Int
    /// Whether one-time purchases were listed.
    ///
    /// Where not, because a subscription gives access, silence about a one-time purchase means nothing.
    package var purchasesListed = false
    /// An item was listed, and whether it gives access can't be read.
    package var hasUnreadable = false
}

/// What typed ids led to.
package struct ClaimReading: Sendable {
    /// Purchases of other customers, without repeats.
    package var found: [FoundPurchase] = []
    /// Purchases of anonymous customers that are, as the store says, the asked user.
    package var own: [Observation] = []
    /// Why the lookup of an id failed: it may lead to a purchase all the same.
    package var failure: ReadFailure?
    /// An item was found, and whether it gives access, or whose it is, can't be read.
    package var hasUnreadable = false
}

/// What RevenueCat knows of a purchase that the user has shown.
package struct Witnesses: Sendable {
    /// What was found under its ids, each with its owner.
    package var items: [Observation] = []
    /// An item was found that can't be read: whose the purchase is stays unknown.
    package var hasUnreadable = false
}

/// A reported id, of an order or a transaction: it proves nothing.
package struct TypedID: Hashable, Sendable {
    /// The store the claimant named, if any.
    package var store: String?
    /// `transaction_id` or `order_id`; there is no lookup for other kinds.
    package var kind: String
    package var value: String

    package init(store: String?, kind: String, value: String) {
        self.store = store
        self.kind = kind
        self.value = value
    }
}
