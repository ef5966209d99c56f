import Foundation
import HTTPServing
import HTTPTypes
import Hummingbird
import Logging
import SupportDesk
import TextFormats

/// What is done to a ticket: a form for each, answered with the ticket as it is then.
struct TicketActs: Sendable {
    let desk: Desk

    func add(to routes: RouterGroup<AdminContext>) {
        for name in [
            "claim", "release", "refresh", "give-access", "approve", "waive", "withdraw", "transfer", "resolve",
            "refuse",
            "note", "ask", "token",
        ] {
            desk.post("tickets/:id/\(name)", on: routes) { visit, form, context in
                let id = try context.number("id")
                let refusal = try await visit.tickets.act(try Self.act(name, form), on: id)
                if let refusal {
                    desk.logger.notice(
                        "console: an act was refused",
                        metadata: ["act": "\(name)", "reason": "\(refusal)"]
                    )
                }
                return .going(to: "/console/tickets/\(id)", unless: refusal, did: name)
            }
        }
    }

    private static func act(_ name: String, _ form: Form) throws -> DeskTickets.Act {
        switch name {
        case "claim": return .claim
        case "release": return .release
        case "refresh": return .refresh
        case "give-access": return .giveAccess
        case "withdraw": return .withdraw
        case "transfer": return .transfer
        case "token": return .token
        case "waive":
            guard let reason = form["reason"] else {
                throw ConsoleFault.refused(.badRequest, "Say first why the owner is not waited for.")
            }
            return .waive(reason: reason)
        case "resolve":
            guard let how = form["how"], ["moved", "not_moved"].contains(how) else {
                throw ConsoleFault.refused(.badRequest, "Choose what you found at RevenueCat.")
            }
            return .resolve(hasMoved: how == "moved")
        case "ask": return .ask(question: form["question"] ?? "", words: nil)
        case "refuse":
            return .refuse(how: form["how"] ?? "", words: form["text"], hash: hash(form))
        case "note":
            guard let words = form["text"] else { throw ConsoleFault.refused(.badRequest, "Write the note first.") }
            return .note(words)
        default:
            guard let hash = hash(form) else {
                throw ConsoleFault.refused(.badRequest, "The form does not say which evidence was seen.")
            }
            return .approve(hash: hash, confirmed: form.all("confirm"))
        }
    }

    private static func hash(_ form: Form) -> [UInt8]? {
        form["hash"].flatMap { Hex.decode($0.utf8) }.flatMap { $0.count == 32 ? $0 : nil }
    }
}

extension Said {
    /// Why something was not done; `nil` for a word that is none of ours.
    static func refusal(_ word: String) -> String? {
        let refusal = DeskRefusal(word)
        guard refusal.isKnown else { return nil }
        return refusal.isFirstOfSeveral
            ? "Not decided yet: \(refusal.sentence(state: nil))." : "Not done: \(refusal.sentence(state: nil))."
    }
}
