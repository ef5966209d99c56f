import HTTPServing
import HTTPTypes
import Hummingbird
import Synchronization

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

/// How many requests of one address may be under way at once, streams among them.
///
/// A proxy's connections have no limit; what it forwards for one address has.
struct InFlightLimit: RouterMiddleware {
    let proxies: TrustedProxies
    let security: SecurityLog
    let counts: ClientCounts

    @concurrent func handle(
        _ request: Request,
        context: APIContext,
        next: @concurrent (Request, APIContext) async throws -> Response
    ) async throws -> Response {
        guard let place = Place(in: counts, of: proxies.client(of: request, context)) else {
            security.refused("requests", "too_many_in_flight", context)
            throw Problem(.tooManyRequests, "too many requests of this address are under way", retryAfterSeconds: 1)
        }
        var context = context
        context.place = place
        var response = try await next(request, context)
        // A stream is under way until its last byte.
        if response.body.contentLength == nil {
            let body = response.body
            response.body = ResponseBody { writer in
                defer { withExtendedLifetime(place) {} }
                try await body.write(writer)
            }
        }
        return response
    }

    /// Given back with its last reference at the latest, so also where a stream is never written.
    final class Place: Sendable {
        private let counts: ClientCounts
        private let client: String
        private let isTaken = Atomic(true)

        /// Takes a place; `nil` where the client has none left.
        fileprivate init?(in counts: ClientCounts, of client: String) {
            guard counts.take(client) else { return nil }
            self.counts = counts
            self.client = client
        }

        func giveBack() {
            if isTaken.exchange(false, ordering: .relaxed) { counts.giveBack(client) }
        }

        deinit { giveBack() }
    }
}
