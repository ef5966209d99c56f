import Foundation
import HTTPServing
import Hummingbird
import SupportDesk

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
        if let detail = row.detail { values["detail"] = words(detail) }
        return values
    }

    /// What stands beside an event, as people read it; in the records it is a JSON object.
    static func words(_ json: String) -> String {
        guard let values = try? JSONDecoder().decode([String: Scalar].self, from: Data(json.utf8)) else { return json }
        return values.sorted { $0.key < $1.key }.map { "\(TicketWords.plain($0).lowercased()): \($1.words)" }
            .joined(separator: ", ")
    }

    private struct Scalar: Decodable {
        var words: String

        init(from decoder: any Decoder) throws {
            let value = try decoder.singleValueContainer()
            if let truth = try? value.decode(Bool.self) {
                words = truth ? "yes" : "no"
            } else if let number = try? value.decode(Int64.self) {
                words = "\(number)"
            } else {
                words = try value.decode(String?.self)?.replacing("_", with: " ") ?? "none"
            }
        }
    }
}
