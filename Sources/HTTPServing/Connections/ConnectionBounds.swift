package import Hummingbird
import HummingbirdCore
package import Logging
package import NIOCore

/// The limits of every connection of a server.
package struct ConnectionBounds: Sendable {
    /// Of a request to arrive and the next one to begin, and of the other end to take more of an answer.
    private let time: TimeAmount
    private let peers: PeerConnections
    private let security: SecurityLog
    private let logger: Logger
    /// Names the server in the log and in metrics.
    private let door: String

    package init(time: TimeAmount, peers: PeerConnections, security: SecurityLog, logger: Logger, door: String) {
        self.time = time
        self.peers = peers
        self.security = security
        self.logger = logger
        self.door = door
    }

    /// Serves routes over HTTP/1.1 until a graceful shutdown, or until the task is cancelled.
    ///
    /// `what` names them in log and errors. Port 0 lets the system choose. More than `connections` at once wait until
    /// one ends. Throws `ListenFailure` where the address could not be had.
    package func serve<Routes: HTTPResponderBuilder>(
        _ routes: Routes,
        as what: String,
        host: String,
        port: Int,
        backlog: Int,
        connections: Int
    ) async throws where Routes.Responder.Context: InitializableFromSource<ApplicationRequestContextSource> {
        // The framework logs every start and stop, and connections that end with the process as errors.
        var quiet = logger
        quiet.logLevel = .critical
        let application = Application(
            router: routes,
            server: HTTPServerBuilder { channel($0) },
            configuration: .init(
                address: .hostname(host, port: port),
                serverName: nil,
                backlog: backlog,
                availableConnectionsDelegate: .maximum(connections, logger: quiet)
            ),
            onServerRunning: { channel in
                let port = channel.localAddress?.port ?? port
                logger.info("serving \(what)", metadata: ["listen.port": "\(port)"])
            },
            logger: quiet
        )
        do {
            try await application.run()
        } catch {
            throw ListenFailure(error, what, host: host, port: port) ?? error
        }
    }

    private func channel(_ responder: @escaping HTTPChannelHandler.Responder) -> LoopChannel<HTTP1Channel> {
        let configuration = HTTP1Channel.Configuration(
            additionalChannelHandlers: handlers,
            idleTimeout: time,
            httpDecoderConfiguration: .init(
                maxHeaderFieldSize: 16 << 10,
                maxHeaderListSize: 32 << 10,
                maxHeaderFieldCount: 100
            )
        )
        return LoopChannel(base: HTTP1Channel(responder: responder, configuration: configuration)) {
            UnparsedLimit { report("nothing_but_framing") }
        }
    }

    private var handlers: [any RemovableChannelHandler] {
        [
            PeerGate(peers) { report("too_many_connections") },
            AnswerDeadline(limit: time) { report("answer_not_read") },
            RequestDeadline(limit: time) { report($0.rawValue) },
        ]
    }

    private func report(_ reason: String) { security.refused(door, reason, logger) }
}

/// Why an address could not be listened on.
package struct ListenFailure: Error, Sendable {
    /// What would have been served there.
    package var service: String
    package var host: String
    package var port: Int
    /// For people.
    package var reason: String
    /// For logs.
    package var code: String

    init?(_ error: any Error, _ service: String, host: String, port: Int) {
        guard let error = error as? IOError else { return nil }
        self.service = service
        self.host = host
        self.port = port
        reason = error.errnoCode == 98 ? "another program listens there already" : "errno \(error.errnoCode)"
        code = error.errnoCode == 98 ? "address_in_use" : "errno_\(error.errnoCode)"
    }
}
