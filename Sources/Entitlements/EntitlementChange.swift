/// How the set of what gives a user access changes.
package struct EntitlementChange: Hashable, Sendable {
    package var before: [HeldEntitlement]
    package var after: [HeldEntitlement]
    /// The set as it is kept from now on: our own JSON.
    package var record: String
    /// Whether a message is published: something else than `at_risk` changed.
    package var isNews: Bool

    package init(from before: [HeldEntitlement], to after: [HeldEntitlement], record: String) {
        self.before = before
        self.after = after
        self.record = record
        isNews = before.map(\.published) != after.map(\.published)
    }
}

extension HeldEntitlement {
    /// Without what messages leave out; ends in whole seconds.
    fileprivate var published: Self {
        var held = self
        held.environment = nil
        held.isAtRisk = false
        held.endsAt = endsAt.map { Instant(microseconds: $0.microseconds - $0.microseconds % 1_000_000) }
        return held
    }
}
