import HTTPTypes
import NIOCore
import NIOHTTPTypes

/// Closes connections that take too long to send a request, and those whose request is too large to be read to its end.
final class RequestDeadline: ChannelDuplexHandler, RemovableChannelHandler {
    typealias InboundIn = HTTPRequestPart
    typealias InboundOut = HTTPRequestPart
    typealias OutboundIn = HTTPResponsePart
    typealias OutboundOut = HTTPResponsePart

    /// How long a request may take to its last byte, and the next one to begin.
    private let limit: TimeAmount
    private var isArriving = false
    private var unanswered = 0
    /// The answer under way says that the connection ends with it.
    private var isLast = false
    private var timer: Scheduled<Void>?

    init(limit: TimeAmount) { self.limit = limit }

    func handlerAdded(context: ChannelHandlerContext) { begin(context) }

    func handlerRemoved(context: ChannelHandlerContext) { timer?.cancel() }

    func channelInactive(context: ChannelHandlerContext) {
        timer?.cancel()
        context.fireChannelInactive()
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        switch unwrapInboundIn(data) {
        case .head:
            isArriving = true
            unanswered += 1
            begin(context)
        case .body: break
        case .end:
            isArriving = false
            timer?.cancel()
            // Answered before it was read.
            if unanswered <= 0 { begin(context) }
        }
        context.fireChannelRead(data)
    }

    func write(context: ChannelHandlerContext, data: NIOAny, promise: EventLoopPromise<Void>?) {
        switch unwrapOutboundIn(data) {
        case .head(let head):
            isLast = head.headerFields[.connection] == "close"
            // A stream of HTTP/2, whose connection has one of its own above it, ends alone.
            guard head.status == .contentTooLarge, context.channel.parent?.parent == nil else {
                return context.write(data, promise: promise)
            }
            isLast = true
            var last = head
            last.headerFields[.connection] = "close"
            return context.write(wrapOutboundOut(.head(last)), promise: promise)
        case .body: return context.write(data, promise: promise)
        case .end: break
        }
        unanswered -= 1
        context.write(data, promise: promise)
        guard unanswered <= 0 else { return }
        if isLast {
            context.flush()
            context.close(promise: nil)
        } else if !isArriving {
            begin(context)
        }
    }

    private func begin(_ context: ChannelHandlerContext) {
        timer?.cancel()
        let channel = NIOLoopBound(context, eventLoop: context.eventLoop)
        timer = context.eventLoop.scheduleTask(in: limit) { channel.value.close(promise: nil) }
    }
}
