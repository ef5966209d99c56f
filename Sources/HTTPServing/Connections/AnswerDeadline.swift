import NIOCore
import NIOHTTPTypes

/// Closes connections whose other end does not take what is written to it; waits and streams write nothing meanwhile.
final class AnswerDeadline: ChannelOutboundHandler, RemovableChannelHandler {
    typealias OutboundIn = HTTPResponsePart
    typealias OutboundOut = HTTPResponsePart

    /// How long the other end may take nothing.
    private let limit: TimeAmount
    private let onClose: @Sendable () -> Void
    /// Parts that are written and not taken yet.
    private var untaken = 0
    private var timer: Scheduled<Void>?

    init(limit: TimeAmount, onClose: @escaping @Sendable () -> Void) {
        self.limit = limit
        self.onClose = onClose
    }

    func handlerRemoved(context: ChannelHandlerContext) { timer?.cancel() }

    func write(context: ChannelHandlerContext, data: NIOAny, promise: EventLoopPromise<Void>?) {
        // A head goes with what follows it.
        if case .head = unwrapOutboundIn(data) { return context.write(data, promise: promise) }
        let promise = promise ?? context.eventLoop.makePromise()
        untaken += 1
        promise.futureResult.assumeIsolated().whenComplete { [self] _ in
            untaken -= 1
            guard timer != nil else { return }
            timer?.cancel()
            timer = nil
            if untaken > 0 { begin(context) }
        }
        context.write(data, promise: promise)
    }

    func flush(context: ChannelHandlerContext) {
        context.flush()
        if untaken > 0, timer == nil { begin(context) }
    }

    private func begin(_ context: ChannelHandlerContext) {
        let channel = NIOLoopBound(context, eventLoop: context.eventLoop)
        timer = context.eventLoop.scheduleTask(in: limit) { [onClose] in
            onClose()
            channel.value.close(promise: nil)
        }
    }
}
