import Entitlements
import Foundation
import HTTPServing
import Hummingbird
import SupportDesk

/// Causes of wrong records, with what to do about them, and charts.
struct FigurePages: Sendable {
    private static let spans = [1, 7, 30, 90]

    let desk: Desk

    func add(to routes: RouterGroup<AdminContext>) {
        desk.get("causes", on: routes) { visit, request, _ in
            let days =
                try Form(queryOf: request)["days"].flatMap { Int($0) }.flatMap { Self.spans.contains($0) ? $0 : nil }
                ?? 7
            let (causes, lag) = try await visit.report { pool in
                try await DeskUsers(pool: pool, session: visit.digest).causes(days: days)
            }
            let spans = Self.spans.map {
                ["href": "/console/causes?days=\($0)", "label": $0 == 1 ? "1 day" : "\($0) days", "here": $0 == days]
                    as [String: Any]
            }
            let values = shown([
                "days": days, "spans": spans, "rows": causes.map(Self.cause), "empty": causes.isEmpty, "lag": lag,
            ])
            return desk.pages.page("causes", "Causes", values, visit)
        }
        desk.get("figures", on: routes) { visit, _, _ in
            let (figures, lag) = try await visit.report { pool in
                try await DeskUsers(pool: pool, session: visit.digest).figures()
            }
            return desk.pages.page("figures", "Figures", shown(["charts": Self.charts(figures), "lag": lag]), visit)
        }
    }

    private static func cause(_ cause: DeskUsers.Cause) -> [String: Any] {
        var words: CauseWords?
        var code = cause.cause
        if cause.what == "ticket" {
            words = CauseWords.ticket(cause.cause)
        } else {
            let parts = cause.cause.split(separator: ":")
            code = parts.first.map(String.init) ?? code
            words = Rule(rawValue: code).flatMap { CauseWords.decision($0, promoted: parts.last == "promoted") }
        }
        return shown([
            "title": words?.title ?? TicketWords.plain(code), "code": code,
            "what": cause.what == "ticket" ? "Ticket" : cause.what == "observed" ? "Record, only observed" : "Record",
            "found": cause.found, "users": cause.users, "last": Moments.shown(cause.lastAt),
            "fix": words?.fix,
        ])
    }

    private static func charts(_ figures: [DeskUsers.Figure]) -> [[String: Any]] {
        [
            ("age", "Open tickets by age", "How long ago each was opened; late: its time is over."),
            ("verdict", "Decided tickets by day", "The last 14 days, in UTC."),
            (
                "outcome", "Decisions by outcome",
                "What the worker decided in the last 24 hours; what was only observed stands apart, for nothing was written."
            ),
            ("queue", "Queue depth", "Users with a job, now."),
        ].map { series, title, words in
            let chart = BarChart(figures.filter { $0.series == series })
            return [
                "id": "chart-\(series)", "title": title, "words": words, "chart": chart.values, "empty": chart.isEmpty,
            ] as [String: Any]
        }
    }
}
