import HTTPServing
import HTTPTypes
import Hummingbird
import NIOCore
import SupportDesk

/// `GET /console/live`: says that something has changed; what, a page asks for itself.
struct LiveStream: Sendable {
    /// When the page has to come again.
    private static let longest = Duration.seconds(900)

    let desk: Desk

    func add(to routes: RouterGroup<AdminContext>) {
        routes.get("live") { request, _ -> Response in
            // Not as other pages do: following does not make a session last longer.
            guard let token = Cookie.session(in: request) else { throw ConsoleFault.signedOut }
            let console = DeskConsole(pool: desk.pool, session: token.digest)
            guard try await console.isAlive() else { throw ConsoleFault.signedOut }
            return Response(
                status: .ok,
                headers: [.contentType: "text/event-stream", .cacheControl: "no-store"],
                body: ResponseBody { @concurrent writer in
                    // Who follows too much hears nothing; the page can be loaded again.
                    guard let (number, words) = desk.hub.follow(as: token.digest) else {
                        try await writer.finish(nil)
                        return
                    }
                    defer { desk.hub.leave(number) }
                    try await request.body.consumeWithCancellationOnInboundClose { _ in
                        do { try await write(words, for: console, to: &writer) } catch is CancellationError {
                            // The page was closed.
                        }
                    }
                    try await writer.finish(nil)
                }
            )
        }
    }

    @concurrent private func write(
        _ words: AsyncStream<ChangeHub.Word>,
        for console: DeskConsole,
        to writer: inout any ResponseBodyWriter
    ) async throws {
        let ends = ContinuousClock.now + Self.longest
        try await writer.write(ByteBuffer(string: "retry: 5000\n\nevent: changed\ndata:\n\n"))
        for await word in words {
            switch word {
            case .changed: try await writer.write(ByteBuffer(string: "event: changed\ndata:\n\n"))
            case .stillHere:
                // After sign-out the page gets nothing any more.
                guard ContinuousClock.now < ends, (try? await console.isAlive()) == true else { return }
                try await writer.write(ByteBuffer(string: ":\n\n"))
            }
        }
    }
}
