/// What an operator is.
///
/// What each may do stands in the database's table `operator_permission`.
package enum DeskRole: String, Sendable, CaseIterable, Codable {
    /// Reads tickets, with personal data masked.
    case viewer
    /// Works on tickets.
    case agent
    /// May also approve transfers, and carry them out.
    case approver
    /// May also decide what needs experience: overrides, second transfers, banned owners.
    case senior
    /// Reads everything, the operators' log included, and changes nothing.
    case auditor
    /// Manages operators, and decides no ticket.
    case admin
}
