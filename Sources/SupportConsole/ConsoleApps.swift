package import HTTPServing
import HTTPTypes
package import Hummingbird
import Telemetry

/// The consoles of several apps at one address: a browser chooses one at a time, and signs in to each.
package struct ConsoleApps: Sendable {
    /// Finds what answers an app's pages; `nil`: it can't be served now.
    package typealias Finding = @Sendable (String) -> (any HTTPResponder<AdminContext>)?

    private let names: @Sendable () -> [String]
    private let find: Finding
    private let pages: Pages

    /// `names`: all apps, also those that can't be served now.
    ///
    /// Throws where a template does not read, which tests rule out.
    package init(names: @escaping @Sendable () -> [String], find: @escaping Finding) throws {
        self.names = names
        self.find = find
        pages = try Pages()
    }

    /// Adds the pages below `/console` to what an address serves.
    package var routes: @Sendable (Router<AdminContext>) -> Void {
        { router in
            router.get("/console/apps") { request, _ in choices(request) }
            router.get("/console/apps/:app") { request, context in try choose(request, context) }
            for path: RouterPath in ["/console", "/console/**"] {
                router.get(path) { request, context in try await answer(request, context) }
                router.post(path) { request, context in try await answer(request, context) }
            }
        }
    }

    private func answer(_ request: Request, _ context: AdminContext) async throws -> Response {
        let names = names()
        let chosen = ChosenApp.name(in: request) ?? (names.count == 1 ? names.first : nil)
        guard let name = chosen, names.contains(name) else {
            return .redirect(to: "/console/apps?next=" + LocalPath(referring: request).escaped, type: .normal)
        }
        guard let responder = find(name) else {
            let words = "The app \(name) can't be served now; the log says why."
            return framed(pages.page("message", "Not now", ["words": words], nil, status: .serviceUnavailable))
        }
        return try await AppScope.$name.withValue(name) { try await responder.respond(to: request, context: context) }
    }

    private func choices(_ request: Request) -> Response {
        let next = LocalPath(request.uri.queryParameters["next"].map(String.init)).escaped
        let apps = names().map { ["name": $0, "href": "/console/apps/\($0)?next=\(next)"] }
        return framed(pages.page("apps", "Apps", ["apps": apps], nil))
    }

    private func choose(_ request: Request, _ context: AdminContext) throws -> Response {
        guard let name = context.parameters.get("app"), names().contains(name) else { throw HTTPError(.notFound) }
        let next = LocalPath(request.uri.queryParameters["next"].map(String.init))
        var response = Response.redirect(to: next.text, type: .normal)
        response.set(ChosenApp.setting(name))
        return framed(response)
    }

    private func framed(_ response: Response) -> Response {
        var response = response
        ConsoleFrame.protect(&response)
        return response
    }
}

/// The app that a browser has chosen, as a cookie.
///
/// It is Lax: the way back from an identity provider has to bring it.
enum ChosenApp {
    private static let cookie = "__Host-app"

    static func name(in request: Request) -> String? { Cookie.text(cookie, in: request) }

    static func setting(_ name: String) -> String {
        "\(cookie)=\(name); Path=/; Secure; HttpOnly; SameSite=Lax; Max-Age=31536000"
    }
}
