import HTTPServing
import HTTPTypes
import Hummingbird

extension TrustedProxies {
    private static let forwardedFor = HTTPField.Name("X-Forwarded-For")

    /// The client for which a request is counted, by address.
    func client(of request: Request, _ context: APIContext) -> String {
        client(context.peer, forwarded: Self.forwardedFor.flatMap { request.headers[$0] })
    }
}

/// How many requests a minute one address may make.
struct AddressLimit: RouterMiddleware {
    /// `nil` where there is none.
    let limit: RequestLimit?
    let proxies: TrustedProxies

    /// Counts a request.
    ///
    /// - Throws: `Problem` where the minute is used up.
    func count(_ request: Request, _ context: APIContext) async throws(Problem) {
        try await limit?.count(proxies.client(of: request, context))
    }

    /// Counts all requests but those for health, and those for webhooks, whose own checks come first.
    @concurrent func handle(
        _ request: Request,
        context: APIContext,
        next: @concurrent (Request, APIContext) async throws -> Response
    ) async throws -> Response {
        let path = request.uri.path
        if !path.hasPrefix("/health/"), !path.hasPrefix("/v1/webhooks/") { try await count(request, context) }
        return try await next(request, context)
    }
}
