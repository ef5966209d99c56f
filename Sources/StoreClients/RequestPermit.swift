package import Entitlements

/// On whose behalf a request is sent; each lane has a slice of the store's budget.
package enum Lane: Int16, Sendable, CaseIterable {
    /// A person waits.
    case restore = 0
    /// A store said that something changed.
    case event = 1
    /// No user waits.
    case sweep = 2
    /// A lookup of the support desk.
    case support = 3
}

/// What one request taught us about the store, for its budget, its breaker and its health.
package struct StoreAnswer: Hashable, Sendable {
    /// The HTTP status; `nil` when no answer came.
    package var status: Int?
    /// What went wrong; `nil` for a usable answer, such as that there is no such customer.
    ///
    /// Also `nil` for whatever goes wrong with a lookup of an id that a client typed, save what no id brings about:
    /// that we are too fast, and that our key is not taken.
    package var failure: ReadFailure.Code?
    /// Requests a minute that the store allows, by its own header.
    package var limit: Int?
    /// Requests it counted in the current minute, this one included.
    package var usage: Int?
    /// How long the store wants to be left alone; uncapped.
    package var retryAfter: Duration?
    /// The store's clock (its `Date` header, whole seconds) minus ours, in seconds; far from zero, ours is wrong.
    package var dateSkewSeconds: Int64?
    /// How long the answer took; `nil` where none came, and where it is no word on the store.
    package var elapsed: Duration?
    /// Whether the breaker counts the answer as a failure of the store.
    ///
    /// `false` for good answers, for failures that say nothing about the store's health (throttling, a locked
    /// customer, a refused request, one item that does not decode, our own cancellation), and for every lookup of an
    /// id that a client typed.
    package var countsForBreaker = false

    /// Whether the failure says something about the store or our access to it, and not about one customer or request.
    package var concernsStore: Bool { countsForBreaker || failure == .throttled || failure == .unauthorized }
}

/// Asks for leave to send one request, and hears what came of it.
package struct RequestPermit: Sendable {
    /// Waits for leave, or throws `breakerOpen`, `budgetExhausted` or `interrupted`.
    package var admit: @Sendable (Lane) async throws(ReadFailure) -> Void
    /// Hears of every admitted request once, also of a cancelled one.
    package var report: @Sendable (StoreAnswer) -> Void

    package init(
        admit: @escaping @Sendable (Lane) async throws(ReadFailure) -> Void,
        report: @escaping @Sendable (StoreAnswer) -> Void
    ) {
        self.admit = admit
        self.report = report
    }

    /// Lets everything through and forgets it: for tools and tests.
    package static let open = RequestPermit(admit: { _ in }, report: { _ in })
}
