/// Where a ticket stands; what leads where is the database's table `ticket_move`.
package enum TicketState: String, Sendable, CaseIterable {
    /// It is not assigned.
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
    /// The transfer has begun; what was done is on record step by step.
    case executing
    case transferred
    /// Decided without a transfer.
    case refused
    /// No answer came in time.
    case expired
    /// Its cause has gone away.
    case autoResolved = "auto_resolved"
    /// Another ticket about the same purchase was decided.
    case duplicate
}
