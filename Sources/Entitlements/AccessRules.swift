/// What a store status of one item means for access, before products and environment count.
package enum AccessState: String, Sendable, CaseIterable {
    case access
    /// The store said that it is over.
    case ended
    /// No access now, but the store has not said that it is over.
    case unsettled
    /// Not paid yet.
    case pending
    /// A word we do not know, and no access.
    case unknown
}

package struct AccessRule: Sendable {
    package var kind: Observation.Kind
    package var status: StoreStatus.Known
    /// The store's own `gives_access`; `nil` where it gives none.
    package var givesAccess: Bool?
    package var accessState: AccessState

    init(_ kind: Observation.Kind, _ status: StoreStatus.Known, _ givesAccess: Bool?, _ accessState: AccessState) {
        self.kind = kind
        self.status = status
        self.givesAccess = givesAccess
        self.accessState = accessState
    }
}

/// Every word a store can say, and what it means.
///
/// The store's own `gives_access` decides; where it is false, the status says whether access has ended.
package let accessRules: [AccessRule] = [
    //         kind           status            gives access  accessState
    AccessRule(.subscription, .trialing, true, .access),
    AccessRule(.subscription, .active, true, .access),
    AccessRule(.subscription, .inGracePeriod, true, .access),
    AccessRule(.subscription, .inBillingRetry, true, .access),
    AccessRule(.subscription, .paused, true, .access),
    AccessRule(.subscription, .expired, true, .access),
    AccessRule(.subscription, .incomplete, true, .access),
    AccessRule(.subscription, .owned, true, .access),
    AccessRule(.subscription, .refunded, true, .access),
    AccessRule(.subscription, .replaced, true, .access),
    AccessRule(.subscription, .scheduled, true, .access),
    AccessRule(.subscription, .consumed, true, .access),
    AccessRule(.subscription, .unknown, true, .access),

    AccessRule(.subscription, .trialing, false, .unsettled),
    AccessRule(.subscription, .active, false, .unsettled),
    AccessRule(.subscription, .inGracePeriod, false, .unsettled),
    AccessRule(.subscription, .inBillingRetry, false, .ended),
    AccessRule(.subscription, .paused, false, .ended),
    AccessRule(.subscription, .expired, false, .ended),
    AccessRule(.subscription, .incomplete, false, .pending),
    AccessRule(.subscription, .owned, false, .unknown),
    AccessRule(.subscription, .refunded, false, .ended),
    // What goes on under another purchase has not ended, whether we know that one yet or not.
    AccessRule(.subscription, .replaced, false, .unsettled),
    AccessRule(.subscription, .scheduled, false, .pending),
    AccessRule(.subscription, .consumed, false, .ended),
    AccessRule(.subscription, .unknown, false, .unknown),

    AccessRule(.oneTime, .owned, nil, .access),
    AccessRule(.oneTime, .refunded, nil, .ended),
    AccessRule(.oneTime, .incomplete, nil, .pending),
    AccessRule(.oneTime, .scheduled, nil, .pending),
    AccessRule(.oneTime, .consumed, nil, .ended),
    AccessRule(.oneTime, .trialing, nil, .unknown),
    AccessRule(.oneTime, .active, nil, .unknown),
    AccessRule(.oneTime, .expired, nil, .unknown),
    AccessRule(.oneTime, .paused, nil, .unknown),
    AccessRule(.oneTime, .inGracePeriod, nil, .unknown),
    AccessRule(.oneTime, .inBillingRetry, nil, .unknown),
    AccessRule(.oneTime, .replaced, nil, .unknown),
    AccessRule(.oneTime, .unknown, nil, .unknown),
]

/// Finds a store status in the table; `unknown` for a subscription without `gives_access`, which decoders refuse.
package func accessState(of kind: Observation.Kind, status: StoreStatus, givesAccess: Bool?) -> AccessState {
    let answer = kind == .subscription ? givesAccess : nil
    let known = status.known
    let rule = accessRules.first { $0.kind == kind && $0.status == known && $0.givesAccess == answer }
    return rule?.accessState ?? .unknown
}

/// What decides about access, in a store's statement as in a record of one.
package protocol AccessItem {
    var kind: Observation.Kind { get }
    var store: String { get }
    var environment: String { get }
    var status: StoreStatus { get }
    var givesAccess: Bool? { get }
    var entitlements: [String] { get }
    var periodEndsAt: Instant? { get }
}

extension AccessItem {
    /// What its store's status comes to.
    package var accessState: AccessState {
        Entitlements.accessState(of: kind, status: status, givesAccess: givesAccess)
    }

    package var isSandbox: Bool { environment != "production" }

    /// What goes on although the payment has failed.
    var isAtRisk: Bool { status.known == .inGracePeriod || status.known == .inBillingRetry }

    /// Whether it was last seen in a paid period that still runs, or was bought for good and never refunded.
    ///
    /// A store does not forget such a purchase. One that suddenly does not know it was asked with the wrong credentials, or
    /// is in error: that is no absence.
    package func isRunning(at moment: Instant) -> Bool {
        accessState == .access && (periodEndsAt.map { moment < $0 } ?? true)
    }

    /// Whether a user's type can rest on it, by some catalogue: it gives access or gave it before.
    var canExplain: Bool {
        guard accessState != .pending else { return false }
        // The store may list no entitlements any more for a subscription that is over.
        return !entitlements.isEmpty || kind == .subscription && accessState == .ended
    }
}

extension Observation: AccessItem {}
extension Purchase: AccessItem {}
