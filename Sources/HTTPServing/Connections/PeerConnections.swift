import NIOCore

/// How many connections one address may hold; a trusted proxy's stand for many users, and are not counted.
package struct PeerConnections: Sendable {
    private let counts: ClientCounts
    private let proxies: TrustedProxies

    package init(most: Int, proxies: TrustedProxies) {
        counts = ClientCounts(most: most)
        self.proxies = proxies
    }

    /// Counts a connection; `false`: it may not stay.
    func enter(_ peer: SocketAddress?) -> Bool {
        proxies.contains(peer) || counts.take(proxies.client(peer, forwarded: nil))
    }

    /// Forgets a connection that was counted.
    func leave(_ peer: SocketAddress?) {
        if !proxies.contains(peer) { counts.giveBack(proxies.client(peer, forwarded: nil)) }
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
