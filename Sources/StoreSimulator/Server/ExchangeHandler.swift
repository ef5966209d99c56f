internal import Glibc
internal import NIOCore
internal import NIOHTTP1

/// The requests and answers of one connection, one after the other.
///
/// States: waiting for a request -> answering (delayed, or sending) -> waiting, or closed.
final class ExchangeHandler: ChannelInboundHandler {
    typealias InboundIn = HTTPServerRequestPart
    typealias OutboundOut = ByteBuffer

    private struct Exchange {
        var request: StoreRequest
        var keepsAlive: Bool
    }

    /// No simulated store takes bodies of more than a few hundred kilobytes.
    private static let bodyLimit = 64 << 20

    private let simulation: Simulation
    private var arriving: Exchange?
    /// Requests that a pipelining client sent ahead of their turn.
    private var waiting: CircularBuffer<Exchange> = []
    /// The request that is being answered.
    private var current: StoreRequest?
    private var isDelaying = false
    private var closesWhenDone = false
    private var timer: Scheduled<Void>?

    init(simulation: Simulation) {
        self.simulation = simulation
    }

    // MARK: Receiving

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        switch unwrapInboundIn(data) {
        case .head(let head):
            let request = StoreRequest(
                method: head.method.rawValue,
                target: head.uri,
                authorization: head.headers.first(name: "authorization"),
                contentType: head.headers.first(name: "content-type")
            )
            arriving = Exchange(request: request, keepsAlive: head.isKeepAlive)
        case .body(var part):
            arriving?.request.body.writeBuffer(&part)
            if let size = arriving?.request.body.readableBytes, size > Self.bodyLimit { context.close(promise: nil) }
        case .end:
            guard let exchange = arriving else { return }
            arriving = nil
            simulation.began(exchange.request)
            waiting.append(exchange)
            if current == nil { answerNext(context: context) }
        }
    }

    func channelInactive(context: ChannelHandlerContext) {
        timer?.cancel()
        timer = nil
        if let current { simulation.ended(current) }
        current = nil
        for exchange in waiting { simulation.ended(exchange.request) }
        waiting.removeAll()
        context.fireChannelInactive()
    }

    func userInboundEventTriggered(context: ChannelHandlerContext, event: Any) {
        switch event {
        case is ChannelShouldQuiesceEvent, ChannelEvent.inputClosed:
            // A client that closed its side while an answer is being delayed has lost patience: HTTP clients do not
            // half-close. What is not delayed has been answered already.
            closesWhenDone = true
            if current == nil || isDelaying { context.close(promise: nil) }
        default: context.fireUserInboundEventTriggered(event)
        }
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) {
        // A client that speaks no HTTP, or went away while we wrote.
        context.close(promise: nil)
    }

    // MARK: Answering

    private func answerNext(context: ChannelHandlerContext) {
        guard let exchange = waiting.popFirst() else {
            if closesWhenDone { context.close(promise: nil) }
            return
        }
        current = exchange.request
        let reply = simulation.answer(exchange.request)
        guard reply.delayMs > 0 else { return send(reply, keepsAlive: exchange.keepsAlive, context: context) }
        isDelaying = true
        schedule(afterMs: reply.delayMs, context: context) { handler, context in
            handler.isDelaying = false
            handler.send(reply, keepsAlive: exchange.keepsAlive, context: context)
        }
    }

    private func send(_ reply: Reply, keepsAlive: Bool, context: ChannelHandlerContext) {
        if let test = reply.test {
            WebhookDelivery.post(test.body, to: test.url, on: context.eventLoop) { [simulation] result in
                simulation.withState { $0.appStore.note(result, of: test.token, nowMs: $0.clock.nowMs) }
            }
        }
        if reply.delivery == .drop { return context.close(promise: nil) }
        if reply.delivery == .reset { return reset(context: context) }
        let staysOpen = keepsAlive && (!closesWhenDone || !waiting.isEmpty)
        var head: [UInt8] = []
        head.reserveCapacity(384)
        ResponseHead.write(reply, keepsAlive: staysOpen, to: &head)
        var bytes = context.channel.allocator.buffer(capacity: head.count + reply.body.count)
        bytes.writeBytes(head)
        switch reply.delivery {
        case .cut:
            // At least one byte is missing, also of an empty body: then the head is incomplete.
            let half = reply.body.count / 2
            if half == 0 { bytes.moveWriterIndex(to: bytes.writerIndex - 2) }
            bytes.writeBytes(reply.body.prefix(half))
            closeAfterWriting(bytes, context: context)
        case .drip(let size, let pauseMs):
            context.writeAndFlush(wrapOutboundOut(bytes), promise: nil)
            drip(ByteBuffer(bytes: reply.body), size: size, pauseMs: pauseMs, staysOpen: staysOpen, context: context)
        default:
            bytes.writeBytes(reply.body)
            context.write(wrapOutboundOut(bytes), promise: nil)
            if reply.fillerBytes > 0 { writeFiller(reply, context: context) }
            context.flush()
            done(staysOpen: staysOpen, context: context)
        }
    }

    private func done(staysOpen: Bool, context: ChannelHandlerContext) {
        if let current { simulation.ended(current) }
        current = nil
        if staysOpen {
            if !waiting.isEmpty || closesWhenDone { answerNext(context: context) }
        } else {
            closeAfterWriting(ByteBuffer(), context: context)
        }
    }

    // MARK: Bad manners

    private func drip(_ body: ByteBuffer, size: Int, pauseMs: Int64, staysOpen: Bool, context: ChannelHandlerContext) {
        var rest = body
        guard let part = rest.readSlice(length: min(size, rest.readableBytes)), part.readableBytes > 0 else {
            return done(staysOpen: staysOpen, context: context)
        }
        context.writeAndFlush(wrapOutboundOut(part), promise: nil)
        isDelaying = true
        let remaining = rest
        schedule(afterMs: pauseMs, context: context) { handler, context in
            handler.isDelaying = false
            handler.drip(remaining, size: size, pauseMs: pauseMs, staysOpen: staysOpen, context: context)
        }
    }

    /// Writes the filler of a huge body; every piece shares one small block of memory.
    private func writeFiller(_ reply: Reply, context: ChannelHandlerContext) {
        let block = ByteBuffer(repeating: UInt8(ascii: "x"), count: 65_536)
        var rest = reply.fillerBytes
        while rest > 0, let piece = block.getSlice(at: 0, length: min(rest, block.readableBytes)) {
            context.write(wrapOutboundOut(piece), promise: nil)
            rest -= piece.readableBytes
        }
        context.write(wrapOutboundOut(ByteBuffer(bytes: reply.tail)), promise: nil)
    }

    private func closeAfterWriting(_ bytes: ByteBuffer, context: ChannelHandlerContext) {
        let written = context.eventLoop.makePromise(of: Void.self)
        written.futureResult.assumeIsolated().whenComplete { _ in context.close(promise: nil) }
        context.writeAndFlush(wrapOutboundOut(bytes), promise: written)
    }

    /// Closes with a TCP reset: lingering for no time discards what is unsent.
    private func reset(context: ChannelHandlerContext) {
        guard let socket = context.channel as? any SocketOptionProvider else { return context.close(promise: nil) }
        socket.setSoLinger(linger(l_onoff: 1, l_linger: 0)).assumeIsolated().whenComplete { _ in
            context.close(promise: nil)
        }
    }

    private func schedule(
        afterMs milliseconds: Int64,
        context: ChannelHandlerContext,
        _ step: @escaping (ExchangeHandler, ChannelHandlerContext) -> Void
    ) {
        timer = context.eventLoop.assumeIsolated().scheduleTask(in: .milliseconds(milliseconds)) { [weak self] in
            guard let self, self.current != nil else { return }
            step(self, context)
        }
    }
}
