package import HTTPServing
import Hummingbird
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
    package var requestTime: Duration

    package init(host: String, port: Int, requestTime: Duration) {
        self.host = host
        self.port = port
        self.requestTime = requestTime
    }
}

/// What users' apps and the stores' webhooks reach.
package struct APIServer: Service {
    private let settings: APISettings
    private let limits: APILimits
    private let directory = APIDirectory()
    private let readiness: @Sendable () async -> Readiness
    private let logger: Logger

    /// Creates a server that is not listening yet, and answers for no app.
    ///
    /// `readiness` says whether requests can be served, where that is not one app's to say.
    package init(
        settings: APISettings,
        logger: Logger,
        readiness: @escaping @Sendable () async -> Readiness = { .notReady }
    ) {
        self.settings = settings
        limits = APILimits(inFlight: settings.maxPerAddress, proxies: settings.proxies)
        self.readiness = readiness
        self.logger = logger
    }

    /// The apps that are answered for.
    package var apps: APIDirectory { directory }

    /// Answers for one app alone, or for one of several from now on.
    package func serve(_ endpoints: APIEndpoints, as name: String? = nil) {
        let responder = endpoints.router(within: limits).router().buildResponder()
        let entry = APIDirectory.Entry(responder: responder, services: endpoints.services)
        if let name { directory.open(name, entry) } else { directory.serve(entry) }
    }

    /// Serves until a graceful shutdown, or until the task is cancelled.
    ///
    /// A shutdown answers callers that wait for the end of a restore with what is known, those that wait for the
    /// database with 503, and ends streams; apps and stores ask again.
    ///
    /// - Throws: why the address could not be had.
    package func run() async throws {
        try await withGracefulShutdownHandler {
            try await withThrowingTaskGroup(of: Void.self) { group in
                group.addTask {
                    try await bounds.serve(
                        responder,
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
            directory.stopWaiting()
        }
    }

    private var responder: AppsResponder {
        let others = APIRouter(
            routes: ProcessRoutes(readiness: readiness).all,
            frame: RequestFrame(log: logger),
            inFlight: limits.inFlight,
            perAddress: AddressLimit(limit: nil, proxies: limits.proxies)
        )
        return AppsResponder(directory: directory, others: others.router().buildResponder())
    }

    /// How long requests in progress may go on after a shutdown was asked for.
    private static let drain = Duration.seconds(2)

    private var bounds: ConnectionBounds {
        ConnectionBounds(
            time: TimeAmount(settings.requestTime),
            peers: PeerConnections(most: settings.maxPerAddress, proxies: settings.proxies),
            security: limits.security,
            logger: logger,
            door: "api"
        )
    }
}
