import HTTPTypes
import Hummingbird
import Logging
import NIOCore
import NIOEmbedded

/// Asks a router without a socket.
struct RouterProbe<Context: RequestContext> where Context.Source == ApplicationRequestContextSource {
    let router: Router<Context>

    struct Answer: Sendable {
        var status: HTTPResponse.Status
        var headers: HTTPFields
        var body: ByteBuffer

        var text: String { String(buffer: body) }
    }

    func ask(
        _ path: String,
        _ method: HTTPRequest.Method = .get,
        authority: String = "127.0.0.1",
        headers: HTTPFields = [:],
        body: String = ""
    ) async throws -> Answer {
        var headers = headers
        if !body.isEmpty { headers[.contentLength] = "\(body.utf8.count)" }
        let head = HTTPRequest(
            method: method,
            scheme: "http",
            authority: authority,
            path: path,
            headerFields: headers
        )
        let source = ApplicationRequestContextSource(channel: EmbeddedChannel(), logger: Logger(label: "probe"))
        let response = try await router.buildResponder().respond(
            to: Request(head: head, body: .init(buffer: ByteBuffer(string: body))),
            context: Context(source: source)
        )
        let written = Written()
        try await response.body.write(written)
        return Answer(status: response.status, headers: response.headers, body: written.bytes)
    }

    private final class Written: ResponseBodyWriter {
        private(set) var bytes = ByteBuffer()

        func write(_ buffer: ByteBuffer) { bytes.writeImmutableBuffer(buffer) }

        func finish(_ trailingHeaders: HTTPFields?) {}
    }
}
