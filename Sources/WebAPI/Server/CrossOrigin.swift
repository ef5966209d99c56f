import HTTPTypes
import Hummingbird

/// Lets pages of listed origins call what is for apps, as browsers ask for it.
///
/// Nothing of it decides who a caller is: that the token alone does. Webhooks, health and the description are no page's.
///
/// - SeeAlso: https://fetch.spec.whatwg.org/#http-cors-protocol
struct CrossOrigin: RouterMiddleware {
    /// As browsers write them: scheme, host and a port that is not the scheme's own.
    let origins: Set<String>

    /// What a page may send beside what every page may.
    private static let requestHeaders = "Authorization, Content-Type, Idempotency-Key, Last-Event-ID"
    /// What a page may read beside what every page may.
    private static let responseHeaders = "Location, Retry-After"
    /// For how many seconds a browser keeps the answer to a preflight.
    private static let maxAge = "600"

    @concurrent func handle(
        _ request: Request,
        context: APIContext,
        next: @concurrent (Request, APIContext) async throws -> Response
    ) async throws -> Response {
        var response = try await next(request, context)
        guard Self.isForApps(request.uri.path) else { return response }
        // A cache must not give one origin's answer to another, nor that without an origin.
        response.headers[.vary] = [response.headers[.vary], "Origin"].compactMap(\.self).joined(separator: ", ")
        guard let origin = listed(request) else { return response }
        response.headers[.accessControlAllowOrigin] = origin
        response.headers[.accessControlExposeHeaders] = Self.responseHeaders
        return response
    }

    /// The answer to a browser's question whether a page may send a request; nothing where it is no such question, or the
    /// page's origin is not listed.
    func preflight(_ request: Request, path: String, methods: String) -> Response? {
        guard Self.isForApps(path), listed(request) != nil, request.headers[.accessControlRequestMethod] != nil else {
            return nil
        }
        return Response(
            status: .noContent,
            headers: [
                .accessControlAllowMethods: methods, .accessControlAllowHeaders: Self.requestHeaders,
                .accessControlMaxAge: Self.maxAge,
            ]
        )
    }

    private func listed(_ request: Request) -> String? {
        request.headers[.origin].flatMap { origins.contains($0) ? $0 : nil }
    }

    private static func isForApps(_ path: String) -> Bool {
        path.hasPrefix("/v1/") && !path.hasPrefix("/v1/webhooks/")
    }
}
