/// What moves a ticket from one state to another.
package enum TicketEvent: String, Sendable, CaseIterable {
    /// An operator takes it; also one who takes it over after the other's lease has ended.
    case claim
    /// The operator puts it back, or the lease ended.
    case release
    case askClaimant = "ask_claimant"
    case claimantReplied = "claimant_replied"
    /// An approval that is not the last one needed.
    case approvePart = "approve_part"
    /// The last approval needed, while the owner may still object.
    case approveEarly = "approve_early"
    /// The last approval needed, with nobody left to wait for.
    case approveAll = "approve_all"
    /// The owner's time to object is over, or was waived.
    case windowEnded = "window_ended"
    /// The owner says no: heard wherever nothing was moved yet.
    case ownerObjected = "owner_objected"
    /// Approvals became void: the evidence changed, they expired, or an approver may approve no more.
    case approvalsVoided = "approvals_voided"
    case execute
    case executed
    /// The transfer ended before anything was moved.
    case executionStopped = "execution_stopped"
    /// Decided without a transfer: refused, guided, granted access, or sent to the store for a refund.
    case refuse
    case causeGone = "cause_gone"
    /// Another ticket about the same purchase was decided.
    case superseded
    case expire
    /// The claimant comes again with other evidence.
    case reopen
}

/// One row of the table of transitions.
package struct TicketTransition: Sendable {
    package var from: TicketState
    package var event: TicketEvent
    package var to: TicketState

    init(_ from: TicketState, _ event: TicketEvent, _ to: TicketState) {
        self.from = from
        self.event = event
        self.to = to
    }
}

/// Every way that a ticket can go; what has no row does not happen.
package let ticketTransitions: [TicketTransition] = [
    //               from              event             to
    TicketTransition(.new, .claim, .claimed),
    TicketTransition(.new, .ownerObjected, .new),
    TicketTransition(.new, .causeGone, .autoResolved),
    TicketTransition(.new, .superseded, .duplicate),
    TicketTransition(.new, .expire, .expired),

    TicketTransition(.claimed, .claim, .claimed),
    TicketTransition(.claimed, .release, .new),
    TicketTransition(.claimed, .askClaimant, .waitingClaimant),
    TicketTransition(.claimed, .approvePart, .needsSecond),
    TicketTransition(.claimed, .approveEarly, .waitingOwner),
    TicketTransition(.claimed, .approveAll, .approved),
    TicketTransition(.claimed, .ownerObjected, .claimed),
    TicketTransition(.claimed, .refuse, .refused),
    TicketTransition(.claimed, .causeGone, .autoResolved),
    TicketTransition(.claimed, .superseded, .duplicate),

    TicketTransition(.waitingClaimant, .claim, .claimed),
    TicketTransition(.waitingClaimant, .claimantReplied, .new),
    TicketTransition(.waitingClaimant, .ownerObjected, .waitingClaimant),
    TicketTransition(.waitingClaimant, .causeGone, .autoResolved),
    TicketTransition(.waitingClaimant, .superseded, .duplicate),
    TicketTransition(.waitingClaimant, .expire, .expired),

    TicketTransition(.needsSecond, .approvePart, .needsSecond),
    TicketTransition(.needsSecond, .approveEarly, .waitingOwner),
    TicketTransition(.needsSecond, .approveAll, .approved),
    TicketTransition(.needsSecond, .ownerObjected, .new),
    TicketTransition(.needsSecond, .approvalsVoided, .new),
    TicketTransition(.needsSecond, .refuse, .refused),
    TicketTransition(.needsSecond, .causeGone, .autoResolved),
    TicketTransition(.needsSecond, .superseded, .duplicate),

    TicketTransition(.waitingOwner, .windowEnded, .approved),
    TicketTransition(.waitingOwner, .ownerObjected, .new),
    TicketTransition(.waitingOwner, .approvalsVoided, .new),
    TicketTransition(.waitingOwner, .refuse, .refused),
    TicketTransition(.waitingOwner, .causeGone, .autoResolved),
    TicketTransition(.waitingOwner, .superseded, .duplicate),

    TicketTransition(.approved, .execute, .executing),
    TicketTransition(.approved, .ownerObjected, .new),
    TicketTransition(.approved, .approvalsVoided, .new),
    TicketTransition(.approved, .refuse, .refused),
    TicketTransition(.approved, .causeGone, .autoResolved),
    TicketTransition(.approved, .superseded, .duplicate),

    // What has begun is carried to its end: nothing else may close it.
    TicketTransition(.executing, .executed, .transferred),
    TicketTransition(.executing, .executionStopped, .new),

    TicketTransition(.refused, .reopen, .new),
    TicketTransition(.expired, .reopen, .new),
]

private struct TransitionKey: Hashable {
    var from: TicketState
    var event: TicketEvent
}

private let targets: [TransitionKey: TicketState] = Dictionary(
    ticketTransitions.map { (TransitionKey(from: $0.from, event: $0.event), $0.to) },
    uniquingKeysWith: { first, _ in first }
)

extension TicketState {
    /// Where an event leads from here; `nil`: it does not happen in this state.
    package func next(on event: TicketEvent) -> TicketState? {
        targets[TransitionKey(from: self, event: event)]
    }
}
