import Hummingbird

/// Counts requests by the address they come from.
struct AddressLimit: RouterMiddleware {
    let limit: CallerLimit?
    /// Paths that are not counted: health, and endpoints whose own checks come first.
    let spares: @Sendable (String) -> Bool

    @concurrent func handle(
        _ request: Request,
        context: APIContext,
        next: @concurrent (Request, APIContext) async throws -> Response
    ) async throws -> Response {
        if let limit, !spares(request.uri.path) { try await limit.count(request, context) }
        return try await next(request, context)
    }
}
