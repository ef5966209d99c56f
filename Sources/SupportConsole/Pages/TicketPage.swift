import Entitlements
import Foundation
import HTTPServing
import Hummingbird
import SupportDesk

/// A case: what is known, side by side, and what can be done.
struct TicketPage: Sendable {
    let desk: Desk

    func add(to routes: RouterGroup<AdminContext>) {
        desk.get("tickets/:id", on: routes) { visit, _, context in
            try await page(visit, try context.number("id"), reveal: false)
        }
        // A form, for it leaves a trace; shown at once, and not again when the page is loaded again.
        desk.post("tickets/:id/reveal", on: routes) { visit, _, context in
            let id = try context.number("id")
            do { return try await page(visit, id, reveal: true) } catch let refused as RevealRefused {
                return .redirect(to: "/console/tickets/\(id)?not=\(refused.word)", type: .normal)
            }
        }
        // That address, opened again, shows the ticket.
        desk.get("tickets/:id/reveal", on: routes) { _, _, context in
            .redirect(to: "/console/tickets/\(try context.number("id"))", type: .normal)
        }
    }

    private func page(_ visit: Visit, _ id: Int64, reveal: Bool) async throws -> Response {
        guard let json = try await visit.tickets.show(id, reveal: reveal) else { throw ConsoleFault.notFound }
        let ticket = try DeskTicket(json: json)
        let links = ticket.linked.map {
            ["href": "/console/tickets/\($0.id)", "reference": $0.reference, "state": TicketWords.state($0.state)]
        }
        let accounts = ticket.accountFacts.map(AccountWords.facts) ?? []
        let values = shown([
            "id": ticket.id, "revealed": reveal, "may-reveal": visit.may("reveal") && !reveal,
            "claimant": Self.account(ticket.claimant, ticket.evidence?.claimant),
            "owner": Self.account(ticket.owner, ticket.evidence?.owner), "evidence": EvidenceView(ticket)?.values,
            "evidence-error": ticket.evidenceError.map(TicketWords.plain),
            "collecting": ticket.evidenceDue != nil && !Moments.isAhead(ticket.evidenceDue),
            "has-accounts": !accounts.isEmpty,
            "accounts": accounts.map {
                ["words": $0.words, "weight": $0.weight.rawValue, "sign": EvidenceView.sign($0.weight)]
            },
            "panel": DecisionPanel(ticket, visit).values,
            // What a decision was made on: where it differs, the page is an old one.
            "stamp": "\(ticket.state) \(ticket.evidenceHash ?? "") \(ticket.approvedBy.count) \(ticket.holder ?? "")"
                + " \(ticket.ownerWaiver?.at ?? "")",
            "has-replies": !ticket.replies.isEmpty, "replies": ticket.replies.map(Self.reply),
            "has-links": !links.isEmpty, "links": links, "events": ticket.events.reversed().map(Self.event),
            "may-note": visit.may("work"),
        ]).merging(Self.head(ticket)) { own, _ in own }
        return desk.pages.page("ticket", "Ticket \(ticket.reference)", values, visit)
    }

    private static func head(_ ticket: DeskTicket) -> [String: Any] {
        let about = ticket.subject
        let holder = ticket.holder.map { ["name": $0, "until": Moments.shown(ticket.holderUntil) as Any] }
        let mayObject = DecisionPanel.isLive(ticket) && ticket.ownerWaiver == nil
        let waiver = ticket.ownerWaiver.map { ["by": $0.by, "at": Moments.shown($0.at) as Any] }
        let saga = ticket.transferStep.map { step in
            shown(["step": TicketWords.plain(step), "trouble": ticket.transferError.map(TicketWords.plain)])
        }
        return shown([
            "reference": ticket.reference, "kind": TicketWords.kind(ticket.kind),
            "state": TicketWords.state(ticket.state), "code": ticket.state,
            "opened": Moments.shown(ticket.createdAt) as Any,
            "touches": ticket.touches == 1 ? "once" : "\(ticket.touches) times",
            "store": about.store.map(TicketWords.store), "original": about.id,
            "app": ticket.storeApp,
            "named": ticket.originalID == about.id ? nil : ticket.originalID,
            "closed": DecisionPanel.isClosed(ticket), "deadline": Moments.shown(ticket.deadline), "holder": holder,
            "verdict": ticket.verdict.map(TicketWords.verdict),
            "owner-until": mayObject ? Moments.shown(ticket.ownerUntil) : nil, "owner-waived": waiver, "saga": saga,
            "has-tokens": !ticket.tokens.isEmpty,
            "tokens": ticket.tokens.map { ["product": $0.product ?? "", "words": TokenWords.sentence($0)] },
        ])
    }

    private static func account(_ id: String?, _ account: CaseEvidence.Account?) -> [String: Any]? {
        guard id != nil || account != nil else { return nil }
        let since = account?.createdAt.map { Moments.shown(Date(timeIntervalSince1970: Double($0) / 1_000_000)) }
        return shown([
            "id": id ?? "erased", "standing": account.map { TicketWords.plain($0.standing.rawValue) },
            "href": account.map { "/console/users/\($0.key)" }, "since": since,
        ])
    }

    private static func reply(_ reply: DeskTicket.Reply) -> [String: Any] {
        shown([
            "side": TicketWords.plain(reply.side), "at": Moments.shown(reply.at),
            "decision": reply.decision.map { TicketWords.plain($0).lowercased() }, "said-words": reply.words,
        ])
    }

    private static func event(_ event: DeskTicket.Event) -> [String: Any] {
        shown([
            "at": Moments.shown(event.at) as Any, "words": TicketWords.plain(event.kind), "by": event.by,
            "why": event.detail?.words, "text": event.text,
        ])
    }
}
