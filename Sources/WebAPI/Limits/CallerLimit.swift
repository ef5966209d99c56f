package import HTTPServing
import HTTPTypes
import Hummingbird

/// From which addresses requests come.
package struct ClientAddresses: Sendable {
    private static let forwardedFor = HTTPField.Name("X-Forwarded-For")

    /// Whose word for the address is taken.
    let proxies: TrustedProxies

    package init(proxies: TrustedProxies) { self.proxies = proxies }

    /// The client for which a request is counted.
    func client(of request: Request, _ context: APIContext) -> String {
        proxies.client(context.peer, forwarded: Self.forwardedFor.flatMap { request.headers[$0] })
    }
}

/// How many requests a minute one address may make.
package struct CallerLimit: Sendable {
    private let limit: RequestLimit
    private let addresses: ClientAddresses

    /// Makes a limit; `nil` where there is none.
    package init?(_ limit: RequestLimit?, addresses: ClientAddresses) {
        guard let limit else { return nil }
        self.limit = limit
        self.addresses = addresses
    }

    /// Counts a request.
    ///
    /// - Throws: `Problem` where the minute is used up.
    func count(_ request: Request, _ context: APIContext) async throws(Problem) {
        try await limit.count(addresses.client(of: request, context))
    }
}
