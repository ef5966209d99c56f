import Glibc
import NIOCore
import NIOPosix

/// Sends requests that were written beforehand over connections that stay open, and reads no more of an answer than its
/// status and its body.
///
/// The load's client runs on the same machine as the server: what it takes is missing there.
final class LeanHTTPClient: Sendable {
    typealias Answer = (status: Int, body: ByteBuffer)

    enum Failure: Error {
        case closed
        /// An answer without a length, or none at all.
        case malformed
    }

    private let group: MultiThreadedEventLoopGroup
    /// Where everything happens.
    let loop: any EventLoop
    private let connections: NIOLoopBoundBox<LeanConnections>

    /// Makes a client without any connection yet, and with so many at most: requests beyond them wait.
    init(port: Int, most: Int) {
        group = MultiThreadedEventLoopGroup(numberOfThreads: 1)
        loop = group.any()
        connections = .makeBoxSendingValue(LeanConnections(port: port, most: most), eventLoop: loop)
    }

    /// Sends a request, head and body, with `Content-Length` where there is a body, and waits for its answer.
    func send(_ request: ByteBuffer) async throws -> Answer {
        let promise = loop.makePromise(of: Answer.self)
        loop.execute { [connections] in
            connections.value.send((request, promise), connections)
        }
        return try await promise.futureResult.get()
    }

    func shutdown() async { try? await group.shutdownGracefully() }
}

private typealias LeanCall = (request: ByteBuffer, promise: EventLoopPromise<LeanHTTPClient.Answer>)

/// The connections of a client; on its loop alone.
private final class LeanConnections {
    private let port: Int
    private let most: Int
    private var open = 0
    private var free: [LeanHandler] = []
    private var waiting = CircularBuffer<LeanCall>()

    init(port: Int, most: Int) {
        self.port = port
        self.most = most
    }

    func send(_ call: LeanCall, _ box: NIOLoopBoundBox<LeanConnections>) {
        if let handler = free.popLast() { return handler.send(call) }
        waiting.append(call)
        guard open < most else { return }
        open += 1
        ClientBootstrap(group: box.eventLoop)
            .channelOption(.socketOption(.tcp_nodelay), value: 1)
            .channelInitializer { channel in
                channel.eventLoop.makeCompletedFuture {
                    try channel.pipeline.syncOperations.addHandler(LeanHandler(connections: box))
                }
            }
            .connect(host: "127.0.0.1", port: port)
            .whenFailure { error in box.value.lost(error) }
    }

    func isFree(_ handler: LeanHandler) {
        if let next = waiting.popFirst() { handler.send(next) } else { free.append(handler) }
    }

    func lost(_ error: any Error) {
        open -= 1
        // A waiting task could wait for this connection alone.
        if open == 0 { while let call = waiting.popFirst() { call.promise.fail(error) } }
    }

    func isGone(_ handler: LeanHandler) {
        free.removeAll { $0 === handler }
        lost(LeanHTTPClient.Failure.closed)
    }
}

/// One connection: one request at a time.
private final class LeanHandler: ChannelInboundHandler {
    typealias InboundIn = ByteBuffer
    typealias OutboundOut = ByteBuffer

    private let connections: NIOLoopBoundBox<LeanConnections>
    private var context: ChannelHandlerContext?
    private var promise: EventLoopPromise<LeanHTTPClient.Answer>?
    private var received = ByteBuffer()

    init(connections: NIOLoopBoundBox<LeanConnections>) { self.connections = connections }

    func channelActive(context: ChannelHandlerContext) {
        self.context = context
        connections.value.isFree(self)
    }

    func send(_ call: LeanCall) {
        promise = call.promise
        context?.writeAndFlush(wrapOutboundOut(call.request), promise: nil)
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        var data = unwrapInboundIn(data)
        received.writeBuffer(&data)
        guard let size = received.offset(of: "\r\n\r\n") else { return }
        guard let head = received.getSlice(at: received.readerIndex, length: size),
            let (status, length) = Self.read(head)
        else { return fail(LeanHTTPClient.Failure.malformed) }
        guard received.readableBytes >= size + 4 + length else { return }
        received.moveReaderIndex(forwardBy: size + 4)
        guard let body = received.readSlice(length: length) else { return }
        received.discardReadBytes()
        let answered = promise
        promise = nil
        answered?.succeed((status, body))
        connections.value.isFree(self)
    }

    func channelInactive(context: ChannelHandlerContext) {
        self.context = nil
        promise?.fail(LeanHTTPClient.Failure.closed)
        promise = nil
        connections.value.isGone(self)
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) { fail(error) }

    private func fail(_ error: any Error) {
        promise?.fail(error)
        promise = nil
        context?.close(promise: nil)
    }

    /// The status and the body's length of `HTTP/1.1 200 OK` and the lines after it.
    private static func read(_ head: ByteBuffer) -> (status: Int, length: Int)? {
        guard let status = head.number(at: 9) else { return nil }
        for name in ["\r\ncontent-length: ", "\r\nContent-Length: "] as [StaticString] {
            if let offset = head.offset(of: name) {
                return head.number(at: offset + name.utf8CodeUnitCount).map { (status, $0) }
            }
        }
        return status == 204 ? (status, 0) : nil
    }
}

extension ByteBuffer {
    /// Where a text stands first, from the reader's index.
    func offset(of text: StaticString) -> Int? {
        withUnsafeReadableBytes { bytes in
            let size = text.utf8CodeUnitCount
            guard let start = bytes.baseAddress, bytes.count >= size else { return nil }
            return (0...bytes.count - size).first { memcmp(start + $0, text.utf8Start, size) == 0 }
        }
    }

    /// The digits at an offset from the reader's index, as far as they go.
    fileprivate func number(at offset: Int) -> Int? {
        let digits = readableBytesView.dropFirst(offset).prefix { (0x30...0x39).contains($0) }
        return digits.count > 9 ? nil : Int(String(decoding: digits, as: UTF8.self))
    }
}
