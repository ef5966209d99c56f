import NIOCore

/// Closes connections whose bytes make no part of a request: a client may send extensions of chunks without end.
///
/// Stands before the decoder; ``RequestDeadline``, behind it, says when a part has come.
final class UnparsedLimit: ChannelInboundHandler, RemovableChannelHandler {
    typealias InboundIn = ByteBuffer
    typealias InboundOut = ByteBuffer

    /// More than all header fields together may have.
    private static let most = 64 << 10

    private let onClose: @Sendable () -> Void
    private var bytes = 0

    init(onClose: @escaping @Sendable () -> Void) { self.onClose = onClose }

    /// A part of a request was made of what was read.
    func advance() { bytes = 0 }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        let count = unwrapInboundIn(data).readableBytes
        bytes += count
        context.fireChannelRead(data)
        // One read brings many parts or none; what came before it counts alone.
        guard bytes > Self.most + count else { return }
        onClose()
        context.close(promise: nil)
    }
}
