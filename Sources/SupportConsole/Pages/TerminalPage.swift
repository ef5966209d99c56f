import HTTPServing
import Hummingbird
import SupportDesk

/// Signs a terminal in as the operator who has opened the page.
struct TerminalPage: Sendable {
    let desk: Desk

    func add(to routes: RouterGroup<AdminContext>) {
        desk.get("terminal", on: routes) { visit, _, _ in page(visit, [:]) }
        desk.post("terminal", on: routes) { visit, form, _ in
            let code = (form["code"] ?? "").uppercased().filter { $0.isASCII && $0.isLetter }
            if form["sure"] != nil, try await desk.operators.allowTerminal(code, by: visit.digest) {
                return .redirect(to: "/console?done=terminal", type: .normal)
            }
            guard let asking = try await desk.operators.terminal(asking: code, visit.digest) else {
                return page(visit, ["words": "No terminal asks with this code; a code holds for five minutes."])
            }
            let spelled = String(code.prefix(4)) + "-" + String(code.dropFirst(4))
            return page(
                visit,
                ["asking": ["user": asking.user, "address": asking.address, "code": spelled] as [String: Any]]
            )
        }
    }

    private func page(_ visit: Visit, _ values: [String: Any]) -> Response {
        desk.pages.page("terminal", "Sign a terminal in", values, visit)
    }
}
