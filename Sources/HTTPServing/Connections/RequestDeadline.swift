import HTTPTypes
import NIOCore
import NIOHTTPTypes

/// Closes connections whose request takes too long, comes in tiny chunks, or is too large to be read to its end.
final class RequestDeadline: ChannelDuplexHandler, RemovableChannelHandler {
    typealias InboundIn = HTTPRequestPart
    typealias InboundOut = HTTPRequestPart
    typealias OutboundIn = HTTPResponsePart
    typealias OutboundOut = HTTPResponsePart

    /// Why a connection was closed in the middle of a request.
    enum Reason: String, Sendable {
        case slow = "request_too_slow"
        case crumbs = "chunks_too_small"
    }

    /// Chunks of a body that may be as small as they like.
    private static let freeChunks = 100
    /// The bytes of an average chunk after them: to take a chunk costs as much as to take a thousand bytes.
    private static let leastChunk = 16

    /// How long a request may take to its last byte, and the next one to begin.
    private let limit: TimeAmount
    private let onClose: @Sendable (Reason) -> Void
    private var isArriving = false
    private var unanswered = 0
    /// The answer under way says that the connection ends with it.
    private var isLast = false
    private var timer: Scheduled<Void>?
    private var unparsed: UnparsedLimit?
    /// Of a body whose length was not announced.
    private var chunks: (count: Int, bytes: Int)?

    init(limit: TimeAmount, onClose: @escaping @Sendable (Reason) -> Void) {
        self.limit = limit
        self.onClose = onClose
    }

    func handlerAdded(context: ChannelHandlerContext) {
        unparsed = try? context.pipeline.syncOperations.handler(type: UnparsedLimit.self)
        begin(context)
    }

    func handlerRemoved(context: ChannelHandlerContext) { timer?.cancel() }

    func channelInactive(context: ChannelHandlerContext) {
        timer?.cancel()
        context.fireChannelInactive()
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        unparsed?.advance()
        switch unwrapInboundIn(data) {
        case .head(let head):
            isArriving = true
            unanswered += 1
            chunks = head.headerFields[.contentLength] == nil ? (0, 0) : nil
            begin(context)
        case .body(let part):
            guard let (count, bytes) = chunks else { break }
            chunks = (count + 1, bytes + part.readableBytes)
            if count > Self.freeChunks, bytes < count * Self.leastChunk {
                onClose(.crumbs)
                return context.close(promise: nil)
            }
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
            guard head.status == .contentTooLarge else { return context.write(data, promise: promise) }
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
        timer = context.eventLoop.scheduleTask(in: limit) { [onClose, isArriving] in
            if isArriving { onClose(.slow) }
            channel.value.close(promise: nil)
        }
    }
}
