import Entitlements
import Foundation
import SupportDesk

/// The evidence as people read it: what speaks against a transfer first.
struct EvidenceView {
    let values: [String: Any]

    /// `nil`: none has been collected.
    init?(_ ticket: DeskTicket) {
        guard let hash = ticket.evidenceHash, let codes = ticket.facts, let reason = ticket.reason else { return nil }
        let facts = codes.compactMap { TransferFact(rawValue: $0) }.map { EvidenceWords.fact($0) }
        let ordered = [EvidenceWords.Weight.against, .for, .known].flatMap { weight in
            facts.filter { $0.weight == weight }
        }
        // Of a source that did not answer nothing is known.
        let hasRevenueCat =
            ticket.evidence?.sources?.contains { $0.store == .revenueCat && $0.result == .unavailable } != true
        values = shown([
            "hash": String(hash.prefix(12)), "at": Moments.shown(ticket.evidenceAt) as Any,
            "facts": ordered.map { ["words": $0.words, "weight": $0.weight.rawValue, "sign": Self.sign($0.weight)] },
            "no-facts": ordered.isEmpty,
            "suggests": ticket.suggested.map(TicketWords.verdict) ?? "Find out more",
            "reason": Suggestion.Reason(rawValue: reason).map(EvidenceWords.reason) ?? TicketWords.plain(reason),
            "approvals": ticket.approvalsNeeded ?? 0,
            "sources": (ticket.evidence?.sources ?? []).map {
                ["words": EvidenceWords.source($0), "weight": $0.result == .unavailable ? "against" : "known"]
            },
            "words": (ticket.evidence?.words ?? []).map(Self.item),
            "no-words": ticket.evidence?.words.isEmpty != false,
            "nothing-about-claimant": ticket.evidence.map { evidence in
                !evidence.words.isEmpty && !evidence.words.contains { $0.asked == "claimant" }
            } ?? false,
            "others": (ticket.evidence?.alsoMoves ?? []).map(Self.item),
            "moves-others": ticket.evidence?.alsoMoves.isEmpty == false,
            "lookups": (ticket.evidence?.lookups ?? []).map(Self.lookup),
            "background": (ticket.evidence?.background ?? []).map(Self.past),
            "has-background": ticket.evidence?.background.isEmpty == false,
            "has-lookups": ticket.evidence?.lookups?.isEmpty == false,
            "holder": hasRevenueCat ? Self.holder(ticket.evidence?.holder) : nil,
            "hindrance": ticket.hindrance.flatMap { TransferHindrance(rawValue: $0) }.flatMap(EvidenceWords.hindrance),
        ])
    }

    static func sign(_ weight: EvidenceWords.Weight) -> String {
        switch weight {
        case .against: "Against"
        case .for: "For"
        case .known: "Note"
        }
    }

    private static func holder(_ holder: String?) -> String {
        switch holder.flatMap({ CaseHolder(rawValue: $0) }) {
        case .claimant: "the claimant"
        case .owner: "the owner"
        case .unclaimed: "unclaimed"
        case .other: "other"
        default: "no customer that we know"
        }
    }

    private static func lookup(_ lookup: CaseLookup) -> [String: String] {
        let (words, weight) = LookupWords.said(lookup)
        return ["id": lookup.id, "words": words, "weight": weight.rawValue, "sign": sign(weight)]
    }

    private static func past(_ line: (words: String, tickets: [Int64])) -> [String: Any] {
        [
            "words": line.words,
            "tickets": line.tickets.map { ["href": "/console/tickets/\($0)", "number": "\($0)"] },
        ]
    }

    static func item(_ item: DeskTicket.Item) -> [String: Any] {
        shown([
            "source": TicketWords.store(item.source), "store": TicketWords.store(item.store),
            "product": item.product ?? "–", "status": TicketWords.plain(item.status),
            "access": item.givesAccess.map { $0 ? "Gives access" : "No access" } ?? "–",
            "asked": item.asked.map(TicketWords.plain) ?? "–", "id": item.id ?? "–",
            "environment": item.environment == "production" ? nil : TicketWords.plain(item.environment),
            "family": item.ownership == "family_shared" ? true : nil, "renewal": item.renewal.map(TicketWords.plain),
            "ends": item.endsAt.map { Moments.shown(Date(timeIntervalSince1970: Double($0) / 1_000_000)) },
        ])
    }
}
