package import FoundationEssentials

/// The user-level facts a verdict rests on.
package struct UserFacts {
    package var epoch: Int64
    package var readAt: Instant?
    package var absentSince: Instant?
    /// When an event spoke of access.
    package var accessEventAt: Instant?
    /// When support moved a purchase to another user.
    package var movedAwayAt: Instant?
    /// Changes of type within the last day.
    package var flips: Int
    package var everObserved: Bool
    /// The type that our last decision gave the user or found right.
    package var decidedType: UserType?
    /// The account was erased since: a user with this id now is another user to us.
    package var isErased = false
    /// Of the newest decision and its reading; see `Confirmation`.
    package var fingerprint: UUID?
    /// The newest decision, where checks have confirmed it.
    package var decisionID: Int64?
    /// How many did.
    package var confirmed = 0
    /// The newest decision is to be written again: it, or its first confirmation, is half a year old.
    package var isDecisionOld = true
    package var grants = GrantState.none
    package var sandbox = SandboxState.none
    /// The grants in force.
    package var activeGrants: [ActiveGrant] = []
    /// The set of what gives the user access, as the last decision left it: our own JSON; `nil`: nothing does.
    package var entitlements: String?
    /// Until when the user's sandbox purchases count; `nil` as well where they count for good.
    package var sandboxEnds: Instant?

    package init(epoch: Int64, flips: Int, everObserved: Bool) {
        self.epoch = epoch
        self.flips = flips
        self.everObserved = everObserved
    }
}
