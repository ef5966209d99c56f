package import Logging
import NIOCore
import ServiceLifecycle

/// What operators and their machines read of a process: metrics, and whether it lives and is ready.
///
/// Listens on an address of its own, so that none of it is reachable from where the application's users come from.
package struct AdminServer: Service {
    /// Connections at once; more wait until one ends.
    package static let mostConnections = 256
    /// Of one address at once: its console pages follow changes by a connection each.
    private static let mostPerAddress = 64

    private let what: String
    private let host: String
    private let port: Int
    private let hosts: AdminHosts
    private let security = SecurityLog()
    private let proxies: TrustedProxies
    private let requestTime: Duration
    private let isVital: Bool
    private let content: AdminContent
    private let logger: Logger

    /// Creates a server that is not listening yet.
    ///
    /// `what` names the content in log and errors. Port 0 lets the system choose. `names` are hosts beside the
    /// address's own under which it is reached, as a proxy passes them on. Connections of `proxies` have no limit by
    /// address. `requestTime`: how long a request may take to arrive, and its answer to be taken. Where the server is not
    /// vital to the process, a taken port is a warning.
    package init(
        what: String = "metrics",
        host: String,
        port: Int,
        names: [String] = [],
        proxies: TrustedProxies = .init(),
        requestTime: Duration = .seconds(30),
        isVital: Bool,
        content: AdminContent,
        logger: Logger
    ) {
        self.what = what
        self.host = host
        self.port = port
        hosts = AdminHosts(names: names + [host])
        self.proxies = proxies
        self.requestTime = requestTime
        self.isVital = isVital
        self.content = content
        self.logger = logger
    }

    /// Serves until a graceful shutdown, or until the task is cancelled; throws `ListenFailure` only if it is vital.
    package func run() async throws {
        let bounds = ConnectionBounds(
            time: TimeAmount(requestTime),
            peers: PeerConnections(most: Self.mostPerAddress, proxies: proxies),
            security: security,
            logger: logger,
            door: "admin"
        )
        do {
            try await bounds.serve(
                content.router(hosts, security, logger),
                as: what,
                host: host,
                port: port,
                backlog: 64,
                connections: Self.mostConnections
            )
        } catch is CancellationError {
            return
        } catch let error where !isVital {
            logger.warning(
                "\(what) can't be served: the address can't be listened on",
                metadata: [
                    "listen.host": "\(host)", "listen.port": "\(port)",
                    "error.code": "\((error as? ListenFailure)?.code ?? "\(type(of: error))")",
                ]
            )
            try? await gracefulShutdown()
        }
    }
}
