internal import Foundation
internal import NIOCore
internal import NIOHTTP1
internal import NIOPosix

/// Posts one webhook over plain HTTP, as a store would, and says in the App Store's words what became of it.
final class WebhookDelivery: ChannelInboundHandler {
    typealias InboundIn = HTTPClientResponsePart
    typealias OutboundOut = HTTPClientRequestPart

    private let done: @Sendable (String) -> Void
    private var status: Int?
    private var isDone = false

    private init(done: @escaping @Sendable (String) -> Void) { self.done = done }

    /// Posts a body; `done` is called once, on the event loop.
    static func post(
        _ body: String,
        to url: String,
        on loop: any EventLoop,
        done: @escaping @Sendable (String) -> Void
    ) {
        guard let url = URL(string: url), url.scheme == "http", let host = url.host else { return done("OTHER") }
        let port = url.port ?? 80
        let path = url.path.isEmpty ? "/" : url.path
        ClientBootstrap(group: loop)
            .connectTimeout(.seconds(3))
            .channelInitializer { channel in
                channel.eventLoop.makeCompletedFuture {
                    try channel.pipeline.syncOperations.addHTTPClientHandlers()
                    try channel.pipeline.syncOperations.addHandler(WebhookDelivery(done: done))
                }
            }
            .connect(host: host, port: port)
            .whenComplete { result in
                guard case .success(let channel) = result else { return done("SOCKET_ISSUE") }
                var head = HTTPRequestHead(version: .http1_1, method: .POST, uri: path)
                head.headers = [
                    "Host": "\(host):\(port)", "Content-Type": "application/json",
                    "Content-Length": "\(body.utf8.count)", "Connection": "close",
                ]
                channel.write(HTTPClientRequestPart.head(head), promise: nil)
                channel.write(HTTPClientRequestPart.body(.byteBuffer(ByteBuffer(string: body))), promise: nil)
                channel.writeAndFlush(HTTPClientRequestPart.end(nil), promise: nil)
                channel.eventLoop.scheduleTask(in: .seconds(5)) { channel.close(promise: nil) }
            }
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        switch unwrapInboundIn(data) {
        case .head(let head): status = Int(head.status.code)
        case .body: break
        case .end:
            end()
            context.close(promise: nil)
        }
    }

    func channelInactive(context: ChannelHandlerContext) { end() }

    func errorCaught(context: ChannelHandlerContext, error: any Error) { context.close(promise: nil) }

    private func end() {
        guard !isDone else { return }
        isDone = true
        guard let status else { return done("NO_RESPONSE") }
        done((200...206).contains(status) ? "SUCCESS" : "UNSUCCESSFUL_HTTP_RESPONSE_CODE")
    }
}
