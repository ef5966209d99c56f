import Entitlements
import Foundation
import SupportDesk

/// What the operator may do with a case now, and what it will do, in one sentence before it is done.
///
/// The database decides: what is shown here only spares people buttons that would be refused.
struct DecisionPanel {
    let values: [String: Any]

    init(_ ticket: DeskTicket, _ visit: Visit) {
        guard let state = TicketState(rawValue: ticket.state) else {
            values = [:]
            return
        }
        let isMine = ticket.holder == visit.me.name
        let isHeldByOther = ticket.holder != nil && !isMine
        let mayWork = visit.may("work")
        let isPastFirst = [.needsSecond, .waitingOwner, .approved].contains(state)
        let isHandled = (state == .claimed && isMine) || (isPastFirst && !isHeldByOther) || state == .waitingClaimant
        let mayApprove = visit.may("approve") && !visit.me.isHeld
        let outlook = Self.outlook(ticket)
        let hasApproved = ticket.approvedBy.contains(visit.me.name)
        let isApprovable = (state == .claimed && isMine) || (state == .needsSecond && !isHeldByOther)
        var approve: [String: Any]?
        if mayApprove, isApprovable, !hasApproved, let hash = ticket.evidenceHash {
            approve = [
                "hash": hash, "sentence": outlook.approving,
                "others": zip(ticket.alsoMoves ?? [], ticket.evidence?.alsoMoves ?? []).enumerated().map {
                    ["place": $0, "value": $1.0, "label": Self.label($1.1)] as [String: Any]
                },
            ]
        }
        let maySkip = visit.may("override") && !visit.me.isHeld && isPastFirst && Moments.isAhead(ticket.ownerUntil)
        let missing = (ticket.approvalsNeeded ?? 1) - ticket.approvedBy.count
        let approvers = ticket.approvedBy.joined(separator: ", ")
        let approvals = "\(ticket.approvedBy.count) of \(ticket.approvalsNeeded ?? 0)"
        let hint: String? =
            switch state {
            case .executing: "A worker is carrying the transfer out."
            case .transferred, .refused, .expired, .autoResolved, .duplicate: "The case is closed."
            case .waitingOwner: "The owner may still object. When their time is over, the transfer can be started."
            case _ where isHeldByOther && mayWork:
                "It is theirs until they unassign it, or for 30 minutes after they took it."
            case .claimed where isMine && mayWork && !mayApprove:
                "Approving a transfer takes an approver: unassign the ticket, and one of them can take it."
            case .new where mayWork: "Assign the ticket to yourself to work on it; the evidence is collected meanwhile."
            case .new, .claimed, .waitingClaimant, .needsSecond, .approved: nil
            }
        values = shown([
            "base": "/console/tickets/\(ticket.id)", "key": visit.formKey,
            "claim": mayWork
                && (state == .new || state == .waitingClaimant || (state == .claimed && !isHeldByOther && !isMine)),
            "release": mayWork && state == .claimed && isMine,
            "refresh": mayWork && !isHeldByOther && Self.isLive(state),
            "give-access": visit.may("give_access") && !visit.me.isHeld && isHandled
                && ticket.facts?.contains("proof_verified") == true,
            "decide": visit.may("refuse") && !visit.me.isHeld && isHandled && (!isPastFirst || mayApprove),
            "may-grant": mayApprove,
            "ask": visit.may("refuse") && state == .claimed && isMine,
            "resolve": visit.may("transfer") && state == .executing,
            "token": visit.may("transfer") && !visit.me.isHeld && ticket.tokens.contains(where: TokenWords.mayTryAgain),
            "questions": DeskQuestion.allCases.map {
                ["code": $0.rawValue, "label": TicketWords.plain($0.rawValue)]
            },
            "seen-hash": ticket.evidenceHash, "held-by": isHeldByOther ? ticket.holder : nil, "approve": approve,
            "waive": maySkip ? ["sentence": outlook.waiving(approvalsMissing: missing)] : nil,
            "withdraw": hasApproved && isPastFirst ? true : nil,
            "begin": state == .approved && mayApprove ? ["sentence": outlook.transferring] : nil,
            "approved-by": ticket.approvedBy.isEmpty ? nil : approvers,
            "approvals": ticket.approvedBy.isEmpty ? nil : approvals, "hint": hint,
        ])
    }

    /// Whether an operator has to act on it yet.
    static func isLive(_ ticket: DeskTicket) -> Bool { TicketState(rawValue: ticket.state).map(isLive) ?? false }

    static func isClosed(_ ticket: DeskTicket) -> Bool {
        TicketState(rawValue: ticket.state).map { !isLive($0) && $0 != .executing } ?? false
    }

    private static func isLive(_ state: TicketState) -> Bool {
        [.new, .claimed, .waitingClaimant, .waitingOwner, .needsSecond, .approved].contains(state)
    }

    private static func outlook(_ ticket: DeskTicket) -> Outlook {
        let about = ticket.subject
        let purchase = [about.store.map(TicketWords.store), about.product].compactMap(\.self).joined(separator: " ")
        return Outlook(
            purchase: purchase.isEmpty ? "the purchase" : "this purchase (\(purchase))",
            others: ticket.evidence?.alsoMoves.count ?? 0,
            approvalsLeft: max(0, (ticket.approvalsNeeded ?? 1) - ticket.approvedBy.count - 1),
            ownerUntil: ticket.ownerWaiver == nil
                ? ticket.ownerUntil.flatMap { Moments.shown($0)?["text"] as? String } : nil,
            ownerHours: ticket.ownerUntil == nil ? ticket.ownerHours : nil
        )
    }

    private static func label(_ item: DeskTicket.Item) -> String {
        [TicketWords.store(item.store), item.product, item.id, TicketWords.plain(item.status).lowercased()]
            .compactMap(\.self).joined(separator: ", ")
    }
}
