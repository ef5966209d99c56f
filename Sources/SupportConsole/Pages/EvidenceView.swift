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
        var values: [String: Any] = [
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
        ]
        // Of a source that did not answer nothing is known.
        if ticket.evidence?.sources?.contains(where: { $0.store == .revenueCat && $0.result == .unavailable }) != true {
            values["holder"] = Self.holder(ticket.evidence?.holder)
        }
        if let hindrance = ticket.hindrance.flatMap({ TransferHindrance(rawValue: $0) }),
            let words = EvidenceWords.hindrance(hindrance)
        {
            values["hindrance"] = words
        }
        self.values = values
    }

    private static func sign(_ weight: EvidenceWords.Weight) -> String {
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
        var access = "–"
        if let gives = item.givesAccess { access = gives ? "Gives access" : "No access" }
        var values: [String: Any] = [
            "source": TicketWords.store(item.source), "store": TicketWords.store(item.store),
            "product": item.product ?? "–", "status": TicketWords.plain(item.status), "access": access,
            "asked": item.asked.map(TicketWords.plain) ?? "–", "id": item.id ?? "–",
        ]
        if item.environment != "production" { values["environment"] = TicketWords.plain(item.environment) }
        if item.ownership == "family_shared" { values["family"] = true }
        if let renewal = item.renewal { values["renewal"] = TicketWords.plain(renewal) }
        if let ends = item.endsAt {
            values["ends"] = Moments.shown(Date(timeIntervalSince1970: Double(ends) / 1_000_000))
        }
        return values
    }
}
