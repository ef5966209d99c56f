import Entitlements
import Foundation
import Reports
import SupportDesk

/// A ticket as people read it at a terminal: everything that a decision needs.
struct TicketText {
    private let ticket: DeskTicket

    init(_ json: String) throws { ticket = try DeskTicket(json: json) }

    var text: String {
        var lines = [
            "\(ticket.reference) (\(ticket.id))  \(ticket.kind)  \(ticket.state)",
            "  claimant   \(Self.account(ticket.claimant, ticket.evidence?.claimant))",
            "  owner      \(Self.account(ticket.owner, ticket.evidence?.owner))",
            "  purchase   \(ticket.subject.store ?? "-") \(Self.harmless(ticket.subject.id ?? ""))"
                + (ticket.storeApp.map { ", in \(Self.harmless($0))" } ?? ""),
        ]
        if let holder = ticket.holder {
            lines.append("  held by    \(holder) until \(Self.moment(ticket.holderUntil ?? ""))")
        }
        if let verdict = ticket.verdict { lines.append("  verdict    \(verdict)") }
        if !ticket.approvedBy.isEmpty { lines.append("  approved   \(ticket.approvedBy.joined(separator: ", "))") }
        if ticket.state == "waiting_owner", let until = ticket.ownerUntil {
            lines.append("  owner may object until \(Self.moment(until))")
        }
        if let waiver = ticket.ownerWaiver {
            lines.append("  owner's time was skipped by \(waiver.by) at \(Self.moment(waiver.at))")
        }
        if let step = ticket.transferStep {
            lines.append("  transfer   \(step)\(ticket.transferError.map { " (\($0))" } ?? "")")
        }
        lines += ticket.tokens.map { token in
            "  token      \(token.product.map { "\(Self.harmless($0)): " } ?? "")\(TokenWords.sentence(token))"
        }
        lines += ticket.linked.map { "  linked     \($0.reference) (\($0.id))  \($0.state)" }
        lines += (ticket.accountFacts.map(AccountWords.facts) ?? []).map { fact in
            "  account    \(Self.harmless(fact.words))"
        }
        lines += evidence
        if !ticket.replies.isEmpty { lines.append("replies") }
        lines += ticket.replies.map { reply in
            let words = [reply.decision.map { "(\($0))" }, reply.words].compactMap(\.self).joined(separator: " ")
            return "  \(Self.moment(reply.at))  \(reply.side)  \(Self.harmless(words))"
        }
        lines.append("events")
        lines += ticket.events.map { event in
            let by = event.by.map { " by \($0)" } ?? ""
            let why = [event.detail?.why, event.text].compactMap(\.self).map(Self.harmless).joined(separator: ": ")
            return "  \(Self.moment(event.at))  \(event.kind)\(by)\(why.isEmpty ? "" : "  \(why)")"
        }
        return lines.joined(separator: "\n")
    }

    private var evidence: [String] {
        guard let hash = ticket.evidenceHash, let facts = ticket.facts, let reason = ticket.reason else {
            return ["evidence   not collected yet\(ticket.evidenceError.map { " (\($0))" } ?? "")"]
        }
        var lines = [
            "evidence   \(hash)", "  collected  \(Self.moment(ticket.evidenceAt ?? ""))",
            "  suggests   \(ticket.suggested.map { "\(TicketWords.verdict($0)) (\($0))" } ?? "nothing"): \(Suggestion.Reason(rawValue: reason).map(EvidenceWords.reason) ?? TicketWords.plain(reason))",
            "  approvals  \(ticket.approvalsNeeded ?? 0) needed",
            "  RevenueCat has it for: \(ticket.evidence?.holder ?? "-")",
        ]
        if let words = ticket.hindrance.flatMap(TransferHindrance.init).flatMap(EvidenceWords.hindrance) {
            lines.append("  hindrance  \(words)")
        }
        lines += facts.map { code in
            guard let fact = TransferFact(rawValue: code) else { return "  fact       \(TicketWords.plain(code))" }
            let (words, weight) = EvidenceWords.fact(fact)
            return "  \(weight.rawValue.padded(to: 9))  \(words)"
        }
        lines += (ticket.evidence?.sources ?? []).map { "  source     \(EvidenceWords.source($0))" }
        for word in ticket.evidence?.words ?? [] {
            lines.append("  \(word.source), asked about the \(word.asked ?? "-"): \(word.text)")
        }
        for other in ticket.evidence?.alsoMoves ?? [] { lines.append("  would also move \(other.text)") }
        for lookup in ticket.evidence?.lookups ?? [] {
            lines.append("  lookup     \(Self.harmless(lookup.id)): \(LookupWords.said(lookup).words)")
        }
        for (words, tickets) in ticket.evidence?.background ?? [] {
            let which = tickets.map { "\($0)" }.joined(separator: ", ")
            lines.append("  on record  \(words)\(which.isEmpty ? "" : " Tickets: \(which).")")
        }
        return lines
    }

    /// Words of operators and users, in which nothing passes for a line of ours or steers the terminal.
    private static func harmless(_ text: String) -> String { PlainText.harmless(text, sign: " ") }

    /// To the second, in UTC as the database gives it.
    private static func moment(_ text: String) -> String { text.prefix(19) + "Z" }

    private static func account(_ id: String?, _ account: CaseEvidence.Account?) -> String {
        "\(id ?? "-")\(account.map { " (\($0.standing.rawValue))" } ?? "")"
    }
}

extension DeskTicket.Item {
    fileprivate var text: String {
        var parts = [id ?? "-", store, product ?? "-", status]
        if environment != "production" { parts.append(environment) }
        if ownership == "family_shared" { parts.append("shared within a family") }
        if let givesAccess { parts.append(givesAccess ? "gives access" : "no access") }
        if let endsAt {
            let date = Date(timeIntervalSince1970: Double(endsAt) / 1_000_000)
            parts.append("period ends \(date.formatted(.iso8601))")
        }
        return parts.joined(separator: ", ")
    }
}
