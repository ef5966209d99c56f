import HTTPTypes
import Hummingbird

/// How many requests a minute one address may make.
package struct CallerLimit: Sendable {
    private static let forwardedFor = HTTPField.Name("X-Forwarded-For")

    private let limit: RequestLimit
    private let proxies: TrustedProxies

    /// Makes a limit; `nil` where there is none.
    ///
    /// - Parameters:
    ///   - limit: what is counted, by address.
    ///   - proxies: whose word for the address is taken.
    package init?(_ limit: RequestLimit?, proxies: TrustedProxies) {
        guard let limit else { return nil }
        self.limit = limit
        self.proxies = proxies
    }

    /// Counts a request.
    ///
    /// - Throws: `Problem` where the minute is used up.
    func count(_ request: Request, _ context: APIContext) async throws(Problem) {
        let forwarded = Self.forwardedFor.flatMap { request.headers[$0] }
        try await limit.count(proxies.client(context.peer, forwarded: forwarded))
    }
}
