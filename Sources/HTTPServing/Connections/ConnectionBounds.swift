package import HummingbirdCore
package import Logging
package import NIOCore

/// The limits of every connection of a server.
package struct ConnectionBounds: Sendable {
    /// How long a request may take to arrive and the next one to begin, and how long the other end may take nothing of an
    /// answer.
    let time: TimeAmount
    /// Counts connections by address.
    let peers: PeerConnections
    let security: SecurityLog
    let logger: Logger
    /// Where it is, in the log and in metrics.
    let door: String

    package init(time: TimeAmount, peers: PeerConnections, security: SecurityLog, logger: Logger, door: String) {
        self.time = time
        self.peers = peers
        self.security = security
        self.logger = logger
        self.door = door
    }

    /// Takes HTTP/1.1.
    package func channel(_ responder: @escaping HTTPChannelHandler.Responder) -> LoopChannel<HTTP1Channel> {
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
            UnparsedLimit { tell("nothing_but_framing") }
        }
    }

    private var handlers: [any RemovableChannelHandler] {
        [
            PeerGate(peers) { tell("too_many_connections") },
            AnswerDeadline(limit: time) { tell("answer_not_read") },
            RequestDeadline(limit: time) { tell($0.rawValue) },
        ]
    }

    private func tell(_ reason: String) { security.refused(door, reason, logger) }
}
