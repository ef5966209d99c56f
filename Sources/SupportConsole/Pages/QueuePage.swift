import Foundation
import HTTPServing
import Hummingbird
import Postgres
import SupportDesk

/// The queue: what is due, by who has to act.
struct QueuePage: Sendable {
    private static let rows = 50
    private static let kinds = [
        "owner_mismatch", "paid_no_access", "needs_proof", "first_seen_elsewhere", "identity_collision",
        "sources_disagree",
        "external_transfer", "onside_unattributed",
    ]

    let desk: Desk

    func add(to routes: RouterGroup<AdminContext>) {
        desk.get("", on: routes) { visit, request, _ in try await page(visit, Form(queryOf: request)) }
        desk.post("open", on: routes) { visit, form, _ in try await open(visit, form) }
        desk.get("help", on: routes) { visit, _, _ in
            desk.pages.page("help", "Help", [:], visit)
        }
    }

    private func page(_ visit: Visit, _ query: Form) async throws -> Response {
        let lane = query["lane"] ?? "all"
        let kind = query["kind"].flatMap { Self.kinds.contains($0) ? $0 : nil }
        async let counted = visit.console.counts()
        async let found = visit.console.queue(
            lane: lane == "all" ? nil : lane,
            kind: kind,
            after: query["after"].flatMap { DeskConsole.Place($0) },
            limit: Self.rows + 1
        )
        let counts = try await counted
        let rows = try await found
        let begin = "/console?lane=\(lane)" + (kind.map { "&kind=\($0)" } ?? "")
        let last = rows.count > Self.rows ? rows.prefix(Self.rows).last : nil
        let values = shown([
            "lanes": Self.lanes(counts, chosen: lane, kind: kind),
            "rows": rows.prefix(Self.rows).map(Self.row),
            "empty": rows.isEmpty,
            "kinds": Self.kinds.map {
                ["value": $0, "label": TicketWords.kind($0), "chosen": $0 == kind] as [String: Any]
            },
            "lane": lane, "closed": lane == "closed",
            "may-open": visit.may("open"),
            "first": query["after"] == nil, "begin": begin, "more": last.map { "\(begin)&after=\($0.place.text)" },
        ])
        return desk.pages.page("queue", "Queue", values, visit)
    }

    private static func lanes(_ counts: [DeskConsole.Count], chosen: String, kind: String?) -> [[String: Any]] {
        let filter = kind.map { "&kind=\($0)" } ?? ""
        func link(_ lane: String, _ label: String, _ tickets: Int?, _ late: Int) -> [String: Any] {
            shown([
                "href": "/console?lane=\(lane)\(filter)", "label": label, "here": lane == chosen,
                "count": tickets.map(most), "late": late > 0 ? most(late) : nil,
            ])
        }
        let all = link("all", "All open", counts.map(\.tickets).reduce(0, +), counts.map(\.late).reduce(0, +))
        let each = counts.map { link($0.lane, TicketWords.lane($0.lane), $0.tickets, $0.late) }
        return [all] + each + [link("closed", TicketWords.lane("closed"), nil, 0)]
    }

    /// Counting ends at a thousand.
    private static func most(_ count: Int) -> String { count >= 1_000 ? "1000+" : "\(count)" }

    private static func row(_ row: DeskConsole.QueueRow) -> [String: Any] {
        shown([
            "href": "/console/tickets/\(row.id)", "reference": row.reference, "kind": TicketWords.kind(row.kind),
            "state": TicketWords.state(row.state), "code": row.state, "urgent": row.isUrgent,
            "store": row.store.map(TicketWords.store) ?? "Store unknown", "claimant": row.claimant ?? "–",
            "owner": row.owner ?? "–", "opened": Moments.shown(row.createdAt),
            "suggested": row.suggested.map(TicketWords.verdict)
                ?? (row.reason == nil ? "not collected yet" : "find out more"),
            "touches": row.touches > 0 ? row.touches : nil, "holder": row.holder, "due": Moments.due(row.dueAt),
            "verdict": row.verdict.map(TicketWords.verdict),
        ])
    }

    private func open(_ visit: Visit, _ form: Form) async throws -> Response {
        guard let claimant = form["claimant"], let words = form["reason"] else {
            throw ConsoleFault.refused(.badRequest, "Give the claimant's user id, and what they wrote.")
        }
        let opened: Int64?
        do {
            opened = try await visit.tickets.open(claimant: claimant, orderID: form["order"], reason: words)
        } catch let error as PostgresError where error.sqlState == "ES001" {
            throw ConsoleFault.refused(
                .badRequest,
                "There is no user with this id: copy it from the app, or from the user's mail."
            )
        }
        guard let id = opened else {
            throw ConsoleFault.refused(
                .conflict,
                "Nothing was opened: the purchase is the claimant's already, or the case is about your own account."
            )
        }
        return .redirect(to: "/console/tickets/\(id)?done=open", type: .normal)
    }
}
