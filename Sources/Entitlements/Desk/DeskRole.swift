/// What an operator is.
package enum DeskRole: String, Sendable, CaseIterable, Codable {
    /// Reads tickets, with personal data masked.
    case viewer
    /// Works on tickets.
    case agent
    /// May also approve transfers.
    case approver
    /// May also decide what needs experience: overrides, second transfers, banned owners.
    case senior
    /// Reads everything, the operators' log included, and changes nothing.
    case auditor
    /// Manages operators, and decides no ticket.
    case admin

    /// Whether a second factor is needed to sign in.
    package var needsSecondFactor: Bool {
        switch self {
        case .approver, .senior, .admin: true
        case .viewer, .agent, .auditor: false
        }
    }

    /// Whether an operator of this role may do something.
    package func may(_ duty: DeskDuty) -> Bool { duty.roles.contains(self) }
}

/// What an operator may want to do.
package enum DeskDuty: String, Sendable, CaseIterable {
    /// Read tickets and users, masked.
    case view
    /// See personal data unmasked, which is logged.
    case reveal
    /// Read what operators did.
    case audit
    /// Open a ticket for a claimant who wrote to support.
    case open
    /// Claim, put back, note, ask and answer the claimant, refresh the evidence.
    case work
    /// End a ticket without a transfer.
    case refuse
    /// Give access for a short while where money was taken.
    case lend
    /// Have a user's stores read again.
    case restore
    /// Approve a transfer.
    case approve
    /// Carry out a transfer that is approved.
    case transfer
    /// Waive the owner's time to object, move a purchase again within its cooling period, or one of a banned owner.
    case override
    /// Put dead jobs and messages back.
    case retry
    /// Add, disable and reset operators.
    case manage

    /// Who may.
    package var roles: Set<DeskRole> {
        switch self {
        case .view: Set(DeskRole.allCases)
        case .reveal: [.agent, .approver, .senior, .auditor]
        case .audit: [.auditor, .admin]
        case .open, .work, .refuse, .lend, .restore: [.agent, .approver, .senior]
        case .approve, .transfer: [.approver, .senior]
        case .override: [.senior]
        case .retry: [.senior, .admin]
        case .manage: [.admin]
        }
    }
}
