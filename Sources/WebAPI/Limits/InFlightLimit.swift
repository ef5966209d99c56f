import Hummingbird
import Synchronization

/// How many requests of one address may be under way at once, streams among them.
///
/// A proxy's connections have no limit; what it forwards for one address has.
struct InFlightLimit: RouterMiddleware {
    let most: Int
    let addresses: ClientAddresses
    let security: SecurityLog
    private let held = Held()

    init(most: Int, addresses: ClientAddresses, security: SecurityLog) {
        self.most = most
        self.addresses = addresses
        self.security = security
    }

    @concurrent func handle(
        _ request: Request,
        context: APIContext,
        next: @concurrent (Request, APIContext) async throws -> Response
    ) async throws -> Response {
        guard let place = held.take(addresses.client(of: request, context), most) else {
            security.refused("requests", "too_many_in_flight", context)
            throw Problem(.tooManyRequests, "too many requests of this address are under way", retryAfterSeconds: 1)
        }
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

    private final class Held: Sendable {
        private let counts = Mutex<[String: Int]>([:])

        func take(_ client: String, _ most: Int) -> Place? {
            let isFree = counts.withLock { counts in
                let count = counts[client] ?? 0
                guard count < most else { return false }
                counts[client] = count + 1
                return true
            }
            return isFree ? Place(self, client) : nil
        }

        fileprivate func giveBack(_ client: String) {
            counts.withLock { counts in
                let left = (counts[client] ?? 1) - 1
                counts[client] = left > 0 ? left : nil
            }
        }
    }

    /// Given back with the last reference: a stream that never began to be written has none.
    private final class Place: Sendable {
        private let held: Held
        private let client: String

        init(_ held: Held, _ client: String) {
            self.held = held
            self.client = client
        }

        deinit { held.giveBack(client) }
    }
}
