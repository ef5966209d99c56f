import NIOCore
import Synchronization

/// How many connections one address may hold; those of a proxy whose word is trusted stand for many people and have no limit.
final class PeerConnections: Sendable {
    private let most: Int
    private let proxies: TrustedProxies
    private let held = Mutex<[String: Int]>([:])

    init(most: Int, proxies: TrustedProxies) {
        self.most = most
        self.proxies = proxies
    }

    /// Counts a connection.
    ///
    /// - Returns: whether it may stay.
    func enter(_ peer: SocketAddress?) -> Bool {
        guard !proxies.contains(peer) else { return true }
        let client = proxies.client(peer, forwarded: nil)
        return held.withLock { held in
            let count = held[client] ?? 0
            guard count < most else { return false }
            held[client] = count + 1
            return true
        }
    }

    /// Forgets a connection that was counted.
    func leave(_ peer: SocketAddress?) {
        guard !proxies.contains(peer) else { return }
        let client = proxies.client(peer, forwarded: nil)
        held.withLock { held in
            let left = (held[client] ?? 1) - 1
            held[client] = left > 0 ? left : nil
        }
    }
}

/// Closes a connection at once whose address holds as many as it may.
final class PeerGate: ChannelInboundHandler, RemovableChannelHandler {
    typealias InboundIn = NIOAny

    private let peers: PeerConnections
    private let onClose: @Sendable () -> Void
    private var peer: SocketAddress?
    private var isCounted = false

    init(_ peers: PeerConnections, onClose: @escaping @Sendable () -> Void) {
        self.peers = peers
        self.onClose = onClose
    }

    func channelActive(context: ChannelHandlerContext) {
        peer = context.remoteAddress
        isCounted = peers.enter(peer)
        guard isCounted else {
            onClose()
            return context.close(promise: nil)
        }
        context.fireChannelActive()
    }

    func channelInactive(context: ChannelHandlerContext) {
        if isCounted { peers.leave(peer) }
        isCounted = false
        context.fireChannelInactive()
    }
}
