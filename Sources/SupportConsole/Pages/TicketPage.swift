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
        var values = Self.head(ticket)
        values["id"] = ticket.id
        values["revealed"] = reveal
        values["may-reveal"] = visit.may("reveal") && !reveal
        values["claimant"] = Self.account(ticket.claimant, ticket.evidence?.claimant)
        values["owner"] = Self.account(ticket.owner, ticket.evidence?.owner)
        if let evidence = EvidenceView(ticket) { values["evidence"] = evidence.values }
        if let error = ticket.evidenceError { values["evidence-error"] = TicketWords.plain(error) }
        values["collecting"] = ticket.evidenceDue != nil && !Moments.isAhead(ticket.evidenceDue)
        values["panel"] = DecisionPanel(ticket, visit).values
        // What a decision was made on: where it differs, the page is an old one.
        values["stamp"] =
            "\(ticket.state) \(ticket.evidenceHash ?? "") \(ticket.approvedBy.count) \(ticket.holder ?? "")"
            + " \(ticket.ownerWaiver?.at ?? "")"
        values["has-replies"] = !ticket.replies.isEmpty
        values["replies"] = ticket.replies.map(Self.reply)
        values["has-links"] = !ticket.linked.isEmpty
        values["links"] = ticket.linked.map {
            ["href": "/console/tickets/\($0.id)", "reference": $0.reference, "state": TicketWords.state($0.state)]
        }
        values["events"] = ticket.events.reversed().map(Self.event)
        values["may-note"] = visit.may("work")
        return desk.pages.page("ticket", "Ticket \(ticket.reference)", values, visit)
    }

    private static func head(_ ticket: DeskTicket) -> [String: Any] {
        var values: [String: Any] = [
            "reference": ticket.reference, "kind": TicketWords.kind(ticket.kind),
            "state": TicketWords.state(ticket.state), "code": ticket.state,
            "opened": Moments.shown(ticket.createdAt) as Any,
            "touches": ticket.touches == 1 ? "once" : "\(ticket.touches) times",
        ]
        let about = ticket.subject
        values["store"] = about.store.map(TicketWords.store)
        values["original"] = about.id
        if let named = ticket.originalID, named != about.id { values["named"] = named }
        values["closed"] = DecisionPanel.isClosed(ticket)
        if let deadline = Moments.shown(ticket.deadline) { values["deadline"] = deadline }
        if let holder = ticket.holder {
            values["holder"] = ["name": holder, "until": Moments.shown(ticket.holderUntil) as Any]
        }
        if let verdict = ticket.verdict { values["verdict"] = TicketWords.verdict(verdict) }
        if DecisionPanel.isLive(ticket), ticket.ownerWaiver == nil, let until = Moments.shown(ticket.ownerUntil) {
            values["owner-until"] = until
        }
        if let waiver = ticket.ownerWaiver {
            values["owner-waived"] = ["by": waiver.by, "at": Moments.shown(waiver.at) as Any]
        }
        if let step = ticket.transferStep {
            var saga = ["step": TicketWords.plain(step)]
            saga["trouble"] = ticket.transferError.map(TicketWords.plain)
            values["saga"] = saga
        }
        values["has-tokens"] = !ticket.tokens.isEmpty
        values["tokens"] = ticket.tokens.map { ["product": $0.product ?? "", "words": TokenWords.sentence($0)] }
        return values
    }

    private static func account(_ id: String?, _ account: CaseEvidence.Account?) -> [String: Any]? {
        guard id != nil || account != nil else { return nil }
        var values: [String: Any] = ["id": id ?? "erased"]
        if let account {
            values["standing"] = TicketWords.plain(account.standing.rawValue)
            values["href"] = "/console/users/\(account.key)"
            if let created = account.createdAt {
                values["since"] = Moments.shown(Date(timeIntervalSince1970: Double(created) / 1_000_000))
            }
        }
        return values
    }

    private static func reply(_ reply: DeskTicket.Reply) -> [String: Any] {
        var values: [String: Any] = ["side": TicketWords.plain(reply.side)]
        if let at = Moments.shown(reply.at) { values["at"] = at }
        if let decision = reply.decision { values["decision"] = TicketWords.plain(decision).lowercased() }
        if let words = reply.words { values["said-words"] = words }
        return values
    }

    private static func event(_ event: DeskTicket.Event) -> [String: Any] {
        var values: [String: Any] = ["at": Moments.shown(event.at) as Any, "words": TicketWords.plain(event.kind)]
        if let by = event.by { values["by"] = by }
        if let why = event.detail?.reason ?? event.detail?.verdict ?? event.detail?.how ?? event.detail?.question {
            values["why"] = TicketWords.plain(why)
        }
        if let text = event.text { values["text"] = text }
        return values
    }
}
