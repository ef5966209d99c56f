package import Entitlements

/// Whom to read, and what the reader must know to need few requests.
package struct CustomerQuery: Sendable {
    /// The host's id of the user, which is the store's customer id; compared byte for byte.
    package var userID: String
    package var lane: Lane
    /// Whether sandbox items may give this user access.
    package var sandboxCounts: Bool
    /// Whether an item with these entitlements (lookup keys, sorted) may give access.
    ///
    /// Where a subscription does, one-time purchases are not asked for. Whoever has entitlements that give nothing
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
    package var observations: [Observation]
    /// Why the reading is not full; the last failure, where there were several.
    package var failure: ReadFailure?
    /// HTTP requests sent.
    package var requests: Int
    /// Whether one-time purchases were listed.
    ///
    /// Where not, because a subscription gives access, silence about a one-time purchase means nothing.
    package var purchasesListed: Bool
    /// An item was listed of which it can't be told whether it gives access.
    package var hasUnreadable: Bool

    package init(
        coverage: Coverage,
        observations: [Observation] = [],
        failure: ReadFailure? = nil,
        requests: Int,
        purchasesListed: Bool = false,
        hasUnreadable: Bool = false
    ) {
        self.hasUnreadable = hasUnreadable
        self.coverage = coverage
        self.observations = observations
        self.failure = failure
        self.requests = requests
        self.purchasesListed = purchasesListed
    }
}

/// What typed ids led to.
package struct ClaimReading: Sendable {
    /// Purchases of other customers, without repeats.
    package var found: [FoundPurchase] = []
    /// Purchases of anonymous customers of whom the store says that they are the asked user.
    package var own: [Observation] = []
    /// Why an id could not be looked up: nobody may say then that it leads nowhere.
    package var failure: ReadFailure?
    /// An item was found of which it can't be told whether it gives access, or whose it is.
    package var hasUnreadable = false
}

/// What RevenueCat knows of a purchase that the user has shown.
package struct Witnesses: Sendable {
    /// What was found under its ids, each with its owner.
    package var items: [Observation] = []
    /// An item was found that can't be read: whose the purchase is, it can't be told.
    package var hasUnreadable = false
}

/// An order or transaction id that somebody typed: a claim, which proves nothing.
package struct TypedID: Hashable, Sendable {
    /// The store the claimant named, if any.
    package var store: String?
    /// `transaction_id` or `order_id`; other kinds are not looked up.
    package var kind: String
    package var value: String

    package init(store: String?, kind: String, value: String) {
        self.store = store
        self.kind = kind
        self.value = value
    }
}
