import Foundation
import HTTPServing
import HTTPTypes
import Hummingbird
import Logging
import NIOCore
import Postgres

/// Why a page is not shown.
enum ConsoleFault: Error {
    /// No operator is signed in, or not any more.
    case signedOut
    /// The role may not, or something else stands in the way.
    case refused(HTTPResponse.Status, String)
    case notFound
    /// A form that is not ours, or from somewhere else.
    case crossSite
}

/// Around every page: says what browsers may do with it, refuses forms from elsewhere, and turns errors into pages.
struct ConsoleFrame: RouterMiddleware {
    let desk: Desk
    private let pace = RequestPace()

    init(desk: Desk) { self.desk = desk }

    private static let policy =
        "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self' data:; connect-src 'self'; form-action 'self';"
        + " frame-ancestors 'none'; base-uri 'none'"

    @concurrent func handle(
        _ request: Request,
        context: AdminContext,
        next: @concurrent (Request, AdminContext) async throws -> Response
    ) async throws -> Response {
        var response: Response
        do {
            guard pace.takes(desk.address(of: request, context)) else {
                throw ConsoleFault.refused(.tooManyRequests, "Too many requests come from your address; wait a minute.")
            }
            if request.method == .post, !Self.isOurs(request) { throw ConsoleFault.crossSite }
            response = try await next(request, context)
        } catch {
            response = try await page(for: error, request)
        }
        if request.method == .head { response = response.createHeadResponse() }
        Self.protect(&response)
        return response
    }

    /// Says what browsers may do with an answer.
    static func protect(_ response: inout Response) {
        for (name, value) in headers { response.headers[name] = value }
        response.headers[.cacheControl] = response.headers[.cacheControl] ?? "no-store"
    }

    // Without any referrer, browsers would not say where a form comes from either.
    private static let headers: [(HTTPField.Name, String)] = [
        ("Content-Security-Policy", policy), ("X-Content-Type-Options", "nosniff"), ("X-Frame-Options", "DENY"),
        ("Referrer-Policy", "same-origin"), ("Cross-Origin-Opener-Policy", "same-origin"),
        ("Cross-Origin-Resource-Policy", "same-origin"),
        ("Permissions-Policy", "camera=(), geolocation=(), microphone=(), payment=()"),
        ("Strict-Transport-Security", "max-age=63072000; includeSubDomains"),
    ].compactMap { name, value in HTTPField.Name(name).map { ($0, value) } }

    /// Browsers say where a form was sent from, and pages of others can't change that.
    static func isOurs(_ request: Request) -> Bool {
        guard let origin = HTTPField.Name("Origin").flatMap({ request.headers[$0] }), let host = request.head.authority,
            let scheme = ["https://", "http://"].first(where: { origin.hasPrefix($0) })
        else { return false }
        let site = HTTPField.Name("Sec-Fetch-Site").flatMap { request.headers[$0] }
        return origin.dropFirst(scheme.count).lowercased() == host.lowercased()
            && (site ?? "same-origin") == "same-origin"
    }

    private func page(for error: any Error, _ request: Request) async throws -> Response {
        let (status, title, words): (HTTPResponse.Status, String, String)
        switch error {
        case ConsoleFault.signedOut: return signIn(request)
        case let error as PostgresError where error.sqlState == "ES007":
            return .redirect(to: "/console/confirm?next=" + LocalPath(referring: request).escaped, type: .normal)
        case is CancellationError: throw error
        case ConsoleFault.refused(let code, let reason):
            desk.security.refused("console", "request", desk.logger)
            (status, title, words) = (code, "That was not done", reason)
        case ConsoleFault.crossSite:
            desk.security.refused("console", "form_from_elsewhere", desk.logger)
            (status, title) = (.forbidden, "That was not done")
            words =
                "The form did not come from a page of this console, or the page is from before the last sign-in. Go back, load the"
                + " page again, and repeat it."
        case ConsoleFault.notFound:
            (status, title) = (.notFound, "There is nothing here")
            words = "It may be a case of an operator's own, or mistyped."
        case let error as PostgresError: (status, title, words) = sayings(for: error)
        case let error as any HTTPResponseError where error.status == .notFound:
            (status, title) = (.notFound, "There is no such page")
            words = "Open the queue, or search for it."
        case let error as any HTTPResponseError where error.status.code < 500:
            (status, title, words) = (error.status, "That was not understood", "Go back, and try it again.")
        case is NIOTooManyBytesError:
            (status, title, words) = (.contentTooLarge, "That was too much", "Write a shorter text.")
        default:
            desk.logger.error("a page of the console failed", metadata: ["error.code": "\(type(of: error))"])
            (status, title) = (.internalServerError, "Something went wrong")
            words = "Try it again; the log says more."
        }
        let visit = try? await Visit(request, desk: desk)
        return desk.pages.page("message", title, ["words": words], visit, status: status)
    }

    private func sayings(for error: PostgresError) -> (HTTPResponse.Status, String, String) {
        switch error.sqlState {
        case "ES009":
            desk.logger.warning("security: a role was refused", metadata: ["security.door": "console"])
            return (.forbidden, "Your role may not do this", Self.sentence(error))
        case "22023", "ES001": return (.badRequest, "That was not understood", Self.sentence(error))
        case "42501", "3F000":
            desk.logger.error("the console's database role lacks rights; set CONSOLE_DATABASE_URL")
            let words =
                "Its database role lacks rights: set CONSOLE_DATABASE_URL to an address with the role entitlement_sync_support."
            return (.serviceUnavailable, "The console can't work yet", words)
        case "55P03", "57014", "40P01", "40001":
            return (.serviceUnavailable, "Another change is under way", "Try it again in a moment.")
        default:
            desk.logger.error("a page of the console failed", metadata: ["error.code": "\(error)"])
            return (.serviceUnavailable, "The database does not answer", "Try it again in a moment.")
        }
    }

    /// What operators read of an error that the desk's functions raise: their messages quote no user's data.
    private static func sentence(_ error: PostgresError) -> String {
        let first = error.message.prefix(1).uppercased() + error.message.dropFirst()
        return [first + ".", error.hint].compactMap(\.self).joined(separator: " ")
    }

    private func signIn(_ request: Request) -> Response {
        // A form's answer is gone; the page that held it is asked for again.
        let path = LocalPath(request.method == .get ? Self.target(request) : nil)
        let wasHere = request.uri.queryParameters["signed-in"] != nil
        return .redirect(
            to: "/console/sign-in" + (wasHere ? "?lost=1" : path.text == "/console" ? "" : "?next=\(path.escaped)"),
            type: .normal
        )
    }

    static func target(_ request: Request) -> String {
        request.uri.path + (request.uri.query.map { "?\($0)" } ?? "")
    }
}
