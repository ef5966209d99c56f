package import HTTPServing
import Hummingbird
import HummingbirdCore
package import Logging
import NIOCore
import ServiceLifecycle

/// Where and how the API listens: HTTP/1.1, for behind a proxy that ends TLS.
package struct APISettings: Sendable {
    package var host: String
    /// 0 lets the system choose.
    package var port: Int
    /// Connections at once; more wait until one ends.
    package var maxConnections = 10_000
    /// Connections, and requests under way, of one address at once.
    package var maxPerAddress = 500
    /// Their own connections have no limit by address.
    package var proxies = TrustedProxies()
    /// How long a request may take to arrive, and its answer to be taken.
    package var requestTime = Duration.seconds(30)

    package init(host: String, port: Int) {
        self.host = host
        self.port = port
    }
}

/// What users' apps and the stores' webhooks reach.
package struct APIServer: Service {
    private let settings: APISettings
    private let router: APIRouter
    private let statusHub: StatusHub
    private let security: SecurityLog
    private let onListening: @Sendable (Int) async -> Void
    private let logger: Logger

    /// Creates a server that is not listening yet; `onListening` is given the port when connections are accepted.
    package init(
        settings: APISettings,
        endpoints: APIEndpoints,
        onListening: @escaping @Sendable (Int) async -> Void = { _ in },
        logger: Logger
    ) {
        self.settings = settings
        router = endpoints.router(inFlight: settings.maxPerAddress, proxies: settings.proxies)
        statusHub = endpoints.services.statusHub
        security = endpoints.security
        self.onListening = onListening
        self.logger = logger
    }

    /// Serves until a graceful shutdown, or until the task is cancelled.
    ///
    /// A shutdown answers callers that wait for the end of a restore with what is known, and ends streams; apps ask again.
    ///
    /// - Throws: why the address could not be had.
    package func run() async throws {
        let application = application()
        try await withGracefulShutdownHandler {
            try await withThrowingTaskGroup(of: Void.self) { group in
                group.addTask {
                    do { try await application.run() } catch {
                        throw ListenFailure(error, "the API", host: settings.host, port: settings.port) ?? error
                    }
                }
                group.addTask {
                    // A client that still sends by then has had its time.
                    try? await gracefulShutdown()
                    try? await Task.sleep(for: Self.drain)
                }
                try await group.next()
                group.cancelAll()
            }
        } onGracefulShutdown: {
            statusHub.stop()
        }
    }

    /// How long requests in progress may go on after a shutdown was asked for.
    private static let drain = Duration.seconds(2)

    private func application() -> some ApplicationProtocol {
        // The framework calls connections that end with the process errors; what matters is logged by us.
        var quiet = logger
        quiet.logLevel = .critical
        return Application(
            responder: router.router().buildResponder(),
            server: HTTPServerBuilder { [bounds] in bounds.channel($0) },
            configuration: .init(
                address: .hostname(settings.host, port: settings.port),
                serverName: nil,
                backlog: 1024,
                availableConnectionsDelegate: .maximum(settings.maxConnections, logger: quiet)
            ),
            onServerRunning: { channel in
                let port = channel.localAddress?.port ?? settings.port
                logger.info("serving the API", metadata: ["listen.port": "\(port)"])
                await onListening(port)
            },
            logger: quiet
        )
    }

    private var bounds: ConnectionBounds {
        ConnectionBounds(
            time: TimeAmount(settings.requestTime),
            peers: PeerConnections(most: settings.maxPerAddress, proxies: settings.proxies),
            security: security,
            logger: logger,
            door: "api"
        )
    }
}
