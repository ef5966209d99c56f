import Hummingbird
import Storage
import SupportDesk
import WebAPI

/// Accounts, sign-ins, refusals and ids that were shown, for auditors and administrators.
struct LogPage: Sendable {
    let desk: Desk

    func add(to routes: RouterGroup<AdminContext>) {
        desk.get("log", on: routes) { visit, request, _ in
            let rows = try await visit.users.log(before: Form(queryOf: request)["before"].flatMap { Int64($0) })
            var values: [String: Any] = ["rows": rows.map(Self.row), "empty": rows.isEmpty]
            if rows.count == 100, let last = rows.last { values["more"] = "/console/log?before=\(last.id)" }
            return desk.pages.page("log", "The operators' log", values, visit)
        }
    }

    private static func row(_ row: DeskUsers.LogRow) -> [String: Any] {
        var values: [String: Any] = [
            "at": Moments.shown(row.at), "who": row.name ?? "–", "what": TicketWords.plain(row.kind),
        ]
        if let about = row.about { values["about"] = about }
        if let detail = row.detail { values["detail"] = detail }
        return values
    }
}
