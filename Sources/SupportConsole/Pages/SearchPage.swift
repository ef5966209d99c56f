import Foundation
import HTTPServing
import Hummingbird
import SupportDesk

/// Search by what people read out or write: references, ids, orders, transactions.
struct SearchPage: Sendable {
    let desk: Desk

    func add(to routes: RouterGroup<AdminContext>) {
        desk.get("search", on: routes) { visit, request, _ in
            let word = try Form(queryOf: request)["q"]?.trimmingCharacters(in: .whitespacesAndNewlines) ?? ""
            var values: [String: Any] = ["word": word, "asked": !word.isEmpty]
            if !word.isEmpty {
                var hits = try await visit.console.search(word)
                var known = [word]
                if hits.isEmpty {
                    known = SpokenReference.readings(of: word)
                    for reading in known where hits.isEmpty { hits = try await visit.console.search(reading) }
                }
                // One ticket is what was searched for.
                if hits.count(where: { $0.what == .ticket }) == 1, let hit = hits.first(where: { $0.what == .ticket }),
                    known.contains(where: { hit.reference?.caseInsensitiveCompare($0) == .orderedSame })
                {
                    return .redirect(to: "/console/tickets/\(hit.id)", type: .normal)
                }
                values["tickets"] = hits.filter { $0.what == .ticket }.map(Self.ticket)
                values["users"] = hits.filter { $0.what == .user }.map {
                    ["href": "/console/users/\($0.id)", "label": $0.label ?? "–"]
                }
                values["some-tickets"] = hits.contains { $0.what == .ticket }
                values["some-users"] = hits.contains { $0.what == .user }
                values["none"] = hits.isEmpty
            }
            return desk.pages.page("search", "Search", values, visit)
        }
    }

    /// The store's name, and the id.
    private static func label(_ text: String) -> String {
        let parts = text.split(separator: " ", maxSplits: 1).map(String.init)
        guard parts.count == 2 else { return text }
        return "\(TicketWords.store(parts[0])) \(parts[1])"
    }

    private static func ticket(_ hit: DeskConsole.Hit) -> [String: Any] {
        [
            "href": "/console/tickets/\(hit.id)", "reference": hit.reference ?? "\(hit.id)",
            "kind": TicketWords.kind(hit.kind ?? ""), "state": TicketWords.state(hit.state ?? ""),
            "code": hit.state ?? "", "label": label(hit.label ?? ""),
            "opened": hit.createdAt.map { Moments.shown($0) } as Any,
        ]
    }
}
