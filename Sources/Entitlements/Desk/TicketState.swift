/// Where a ticket stands; the exits of each state are the rows of ``ticketTransitions``.
package enum TicketState: String, Sendable, CaseIterable, Codable {
    /// Nobody works on it.
    case new
    /// One operator works on it, for the time of a lease.
    case claimed
    /// The claimant was asked something.
    case waitingClaimant = "waiting_claimant"
    /// Enough approvals, and the owner may still object.
    case waitingOwner = "waiting_owner"
    /// Approved, but not by enough people.
    case needsSecond = "needs_second"
    /// The transfer may be carried out.
    case approved
    /// The transfer has begun; what was done is recorded step by step.
    case executing
    case transferred
    /// Decided without a transfer.
    case refused
    /// Nobody answered in time.
    case expired
    /// Its cause has gone away.
    case autoResolved = "auto_resolved"
    /// Another ticket about the same purchase was decided.
    case duplicate

    /// Whether somebody still has to act.
    package var isOpen: Bool {
        switch self {
        case .new, .claimed, .waitingClaimant, .waitingOwner, .needsSecond, .approved, .executing: true
        case .transferred, .refused, .expired, .autoResolved, .duplicate: false
        }
    }

    /// Whether the clocks of the service level stand still: it is others who have to act.
    package var pausesClocks: Bool { self == .waitingClaimant || self == .waitingOwner }
}
