import HTTPTypes
import NIOCore
import NIOHTTPTypes

/// Closes connections that take too long to send a request, and those of answers that leave part of one unread.
final class RequestDeadline: ChannelDuplexHandler, RemovableChannelHandler {
    typealias InboundIn = HTTPRequestPart
    typealias InboundOut = HTTPRequestPart
    typealias OutboundIn = HTTPResponsePart
    typealias OutboundOut = HTTPResponsePart

    /// How long a request may take from the connection's beginning, or from the last answer, to its last byte.
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
            if timer == nil { begin(context) }
        case .body: break
        case .end:
            isArriving = false
            timer?.cancel()
            timer = nil
        }
        context.fireChannelRead(data)
    }

    func write(context: ChannelHandlerContext, data: NIOAny, promise: EventLoopPromise<Void>?) {
        switch unwrapOutboundIn(data) {
        case .head(let head):
            isLast = head.headerFields[.connection] == "close"
            return context.write(data, promise: promise)
        case .body: return context.write(data, promise: promise)
        case .end: break
        }
        unanswered -= 1
        context.write(data, promise: promise)
        if unanswered <= 0, isArriving || isLast {
            // What was left unread is not worth reading: the next request starts on a new connection.
            context.flush()
            context.close(promise: nil)
        } else if unanswered <= 0 {
            begin(context)
        }
    }

    private func begin(_ context: ChannelHandlerContext) {
        timer?.cancel()
        let channel = NIOLoopBound(context, eventLoop: context.eventLoop)
        timer = context.eventLoop.scheduleTask(in: limit) { channel.value.close(promise: nil) }
    }
}
