import Foundation
import HTTPServing
import Hummingbird
import SupportDesk

/// Dead jobs, with a second chance.
struct DeadPage: Sendable {
    let desk: Desk

    func add(to routes: RouterGroup<AdminContext>) {
        desk.get("dead", on: routes) { visit, _, _ in
            let rows = try await visit.users.dead()
            return desk.pages.page(
                "dead",
                "Dead jobs",
                ["rows": rows.map(Self.row), "empty": rows.isEmpty, "may-retry": visit.may("retry")],
                visit
            )
        }
        desk.post("dead/:job/retry", on: routes) { visit, _, context in
            guard let job = context.parameters.get("job").flatMap({ UUID(uuidString: $0) }) else {
                throw ConsoleFault.notFound
            }
            if let refusal = try await visit.users.retry(job) {
                return .redirect(to: "/console/dead?not=\(refusal)", type: .normal)
            }
            return .redirect(to: "/console/dead?done=retry", type: .normal)
        }
    }

    private static func row(_ row: DeskUsers.Dead) -> [String: Any] {
        [
            "job": row.id, "reference": row.reference, "kind": TicketWords.plain(row.kind),
            "user": row.userID ?? "erased", "href": "/console/users/\(row.userKey)", "attempts": row.attempt,
            "at": Moments.shown(row.finishedAt), "error": row.lastError.map(TicketWords.plain) ?? "–",
        ]
    }
}
