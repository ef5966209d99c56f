import HTTPServing
package import Logging
import NIOCore
import ServiceLifecycle

/// What users' apps and the stores' webhooks reach.
package struct APIServer: Service {
    private let settings: APISettings
    private let router: APIRouter
    private let watch: RestoreWatch
    private let security: SecurityLog
    private let logger: Logger

    /// Creates a server that is not listening yet.
    ///
    /// - Parameters:
    ///   - settings: where and how to listen.
    ///   - doors: what is behind the routes.
    ///   - logger: hears when it listens.
    package init(
        settings: APISettings,
        doors: APIDoors,
        logger: Logger
    ) {
        self.settings = settings
        router = doors.router(inFlight: settings.maxPerAddress)
        watch = doors.watch
        security = doors.security
        self.logger = logger
    }

    /// Serves until a graceful shutdown, or until the task is cancelled.
    ///
    /// A shutdown answers callers that wait for the end of a restore with what is known, and ends streams; apps ask again.
    ///
    /// - Throws: why the address could not be had.
    package func run() async throws {
        try await withGracefulShutdownHandler {
            try await withThrowingTaskGroup(of: Void.self) { group in
                group.addTask {
                    try await bounds.serve(
                        router.router(),
                        as: "the API",
                        host: settings.host,
                        port: settings.port,
                        backlog: 1024,
                        connections: settings.maxConnections
                    )
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
            watch.stop()
        }
    }

    /// How long requests in progress may go on after a shutdown was asked for.
    private static let drain = Duration.seconds(2)

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
