package import HTTPServing

/// Where and how the API listens: HTTP/1.1, for behind a proxy that ends TLS.
package struct APISettings: Sendable {
    package var host: String
    /// 0 lets the system choose.
    package var port: Int
    /// Connections at once; more wait until one ends.
    package var maxConnections: Int
    /// Connections, and requests under way, of one address at once.
    package var maxPerAddress: Int
    /// Their own connections have no limit by address.
    package var proxies: TrustedProxies
    /// How long a request may take to arrive, and its answer to be taken.
    package var requestTime: Duration

    package init(
        host: String,
        port: Int,
        maxConnections: Int = 10_000,
        maxPerAddress: Int = 500,
        proxies: TrustedProxies = .init(),
        requestTime: Duration = .seconds(30)
    ) {
        self.host = host
        self.port = port
        self.maxConnections = maxConnections
        self.maxPerAddress = maxPerAddress
        self.proxies = proxies
        self.requestTime = requestTime
    }
}
