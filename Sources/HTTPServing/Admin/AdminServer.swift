package import Logging
import NIOCore
import ServiceLifecycle

/// What operators and their machines read of a process: metrics, and whether it lives and is ready.
///
/// Listens on an address of its own, so that none of it is reachable from where the application's users come from.
package struct AdminServer: Service {
    /// Where to listen; port 0 lets the system choose.
    package struct Address: Sendable, Hashable {
        package var host: String
        package var port: Int

        package init(host: String, port: Int) {
            self.host = host
            self.port = port
        }
    }

    /// Connections at once; more wait until one ends.
    package static let mostConnections = 256
    /// Of one address at once: its console pages follow changes by a connection each.
    private static let mostPerAddress = 64

    private let what: String
    private let address: Address
    private let hosts: AdminHosts
    private let security = SecurityLog()
    private let proxies: TrustedProxies
    private let isVital: Bool
    private let content: AdminContent
    private let logger: Logger

    /// Creates a server that is not listening yet.
    ///
    /// - Parameters:
    ///   - what: is served, for log and errors.
    ///   - address: where to listen.
    ///   - names: hosts beside the address's own under which it is reached, as a proxy passes them on.
    ///   - proxies: their connections have no limit by address.
    ///   - isVital: whether the process is of no use without it; else a taken port is a warning.
    ///   - content: what is served.
    ///   - logger: for the port, and why it could not be had.
    package init(
        what: String = "metrics",
        address: Address,
        names: [String] = [],
        proxies: TrustedProxies = .init(),
        isVital: Bool,
        content: AdminContent,
        logger: Logger
    ) {
        self.what = what
        self.address = address
        hosts = AdminHosts(names: names + [address.host])
        self.proxies = proxies
        self.isVital = isVital
        self.content = content
        self.logger = logger
    }

    /// Serves until a graceful shutdown, or until the task is cancelled.
    ///
    /// - Throws: why the address could not be had, where the server is vital.
    package func run() async throws {
        do {
            try await bounds.serve(
                content.router(hosts, security, logger),
                as: what,
                host: address.host,
                port: address.port,
                backlog: 64,
                connections: Self.mostConnections
            )
        } catch is CancellationError {
            return
        } catch let error where !isVital {
            logger.warning(
                "\(what) can't be served: the address can't be listened on",
                metadata: [
                    "listen.host": "\(address.host)", "listen.port": "\(address.port)",
                    "error.code": "\((error as? ListenFailure)?.code ?? "\(type(of: error))")",
                ]
            )
            try? await gracefulShutdown()
        }
    }

    private var bounds: ConnectionBounds {
        ConnectionBounds(
            time: .seconds(30),
            peers: PeerConnections(most: Self.mostPerAddress, proxies: proxies),
            security: security,
            logger: logger,
            door: "admin"
        )
    }
}
