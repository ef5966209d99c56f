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
        for (name, value) in Self.headers { response.headers[name] = value }
        response.headers[.cacheControl] = response.headers[.cacheControl] ?? "no-store"
        return response
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
        switch error {
        case ConsoleFault.signedOut: return signIn(request)
        case ConsoleFault.refused(let status, let words):
            desk.security.refused("console", "request", desk.logger)
            return await message(status, "That was not done", words, request)
        case ConsoleFault.crossSite:
            desk.security.refused("console", "form_from_elsewhere", desk.logger)
            return await message(
                .forbidden,
                "That was not done",
                "The form did not come from a page of this console, or the page is from before the last sign-in. Go back, load the"
                    + " page again, and repeat it.",
                request
            )
        case ConsoleFault.notFound:
            return await message(
                .notFound,
                "There is nothing here",
                "It may be a case of an operator's own, or mistyped.",
                request
            )
        case let error as PostgresError: return await page(for: error, request)
        case let error as any HTTPResponseError where error.status == .notFound:
            return await message(.notFound, "There is no such page", "Open the queue, or search for it.", request)
        case let error as any HTTPResponseError where error.status.code < 500:
            return await message(error.status, "That was not understood", "Go back, and try it again.", request)
        case is NIOTooManyBytesError:
            return await message(.contentTooLarge, "That was too much", "Write a shorter text.", request)
        case is CancellationError: throw error
        default:
            desk.logger.error("a page of the console failed", metadata: ["error.code": "\(type(of: error))"])
            return await message(
                .internalServerError,
                "Something went wrong",
                "Try it again; the log says more.",
                request
            )
        }
    }

    private func page(for error: PostgresError, _ request: Request) async -> Response {
        switch error.sqlState {
        case "ES006":
            desk.logger.warning("security: a role was refused", metadata: ["security.door": "console"])
            return await message(.forbidden, "Your role may not do this", DatabaseWords.sentence(error), request)
        case "ES007":
            return .redirect(to: "/console/confirm?next=" + LocalPath(referring: request).escaped, type: .normal)
        case "22023", "ES001":
            return await message(.badRequest, "That was not understood", DatabaseWords.sentence(error), request)
        case "42501", "3F000":
            desk.logger.error("the console's database role lacks rights; set CONSOLE_DATABASE_URL")
            return await message(
                .serviceUnavailable,
                "The console can't work yet",
                "Its database role lacks rights: set CONSOLE_DATABASE_URL to an address with the role entitlement_sync_support.",
                request
            )
        case "55P03", "57014", "40P01", "40001":
            return await message(
                .serviceUnavailable,
                "Another change is under way",
                "Try it again in a moment.",
                request
            )
        default:
            desk.logger.error("a page of the console failed", metadata: ["error.code": "\(error)"])
            return await message(
                .serviceUnavailable,
                "The database does not answer",
                "Try it again in a moment.",
                request
            )
        }
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

    private func message(
        _ status: HTTPResponse.Status,
        _ title: String,
        _ words: String,
        _ request: Request
    ) async -> Response {
        let visit = try? await Visit(request, desk: desk)
        return desk.pages.page("message", title, ["words": words], visit, status: status)
    }
}

/// What operators read of an error that the desk's functions raise: their messages quote no user's data.
enum DatabaseWords {
    static func sentence(_ error: PostgresError) -> String {
        let first = error.message.prefix(1).uppercased() + error.message.dropFirst()
        return [first + ".", error.hint].compactMap(\.self).joined(separator: " ")
    }
}
