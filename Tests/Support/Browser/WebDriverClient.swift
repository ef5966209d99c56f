import FoundationEssentials
import HTTPTypes
import Logging
import Transport

/// Sends WebDriver commands to a driver on loopback.
///
/// - SeeAlso: https://www.w3.org/TR/webdriver2/
struct WebDriverClient: Sendable {
    typealias Method = HTTPRequest.Method

    struct Refusal: Error, CustomStringConvertible {
        /// Such as `no such element`.
        var code: String
        var message: String

        /// The same command may succeed a moment later: the page is still being made, or makes room.
        var mayPass: Bool {
            ["no such element", "stale element reference", "element not interactive", "element click intercepted"]
                .contains(code)
        }

        var description: String {
            // The rest is the driver's own build and call stack.
            let text = message.split(separator: "\n").prefix { !$0.contains("(Session info:") }.joined(separator: " ")
            return text.hasPrefix(code) ? text : "\(code): \(text)"
        }
    }

    private struct Answer: Decodable { var value: PageValue }

    private let port: Int
    private let transport: HTTPTransport

    /// Prepares to send; `close()` must follow.
    init(port: Int) {
        self.port = port
        transport = HTTPTransport(
            configuration: HTTPTransportConfiguration(),
            logger: Logger(label: "browser") { _ in SwiftLogNoOpLogHandler() }
        )
    }

    func close() async { await transport.shutdown() }

    /// Sends a command, with a body where it is POST.
    ///
    /// - Throws: `Refusal`, or `BrowserFailure` where no answer came.
    func send(
        _ method: Method,
        _ path: String,
        _ body: PageValue = [:],
        within limit: Duration = .seconds(60)
    ) async throws -> PageValue {
        var request = HTTPRequest(method: method, scheme: "http", authority: "127.0.0.1:\(port)", path: path)
        var bytes: [UInt8]?
        if method == .post {
            request.headerFields[.contentType] = "application/json; charset=utf-8"
            bytes = Array(try JSONEncoder().encode(body))
        }
        let exchange: HTTPExchange
        do {
            // A page's picture may be large.
            exchange = try await transport.send(request, body: bytes, timeout: limit, maxResponseBytes: 128 << 20)
        } catch {
            if error.code == .cancelled { throw CancellationError() }
            throw BrowserFailure("chromedriver did not answer \(method.rawValue) \(path) within \(limit): \(error)")
        }
        guard let answer = try? JSONDecoder().decode(Answer.self, from: Data(exchange.body)) else {
            let text = String(decoding: exchange.body.prefix(500), as: UTF8.self)
            throw BrowserFailure(
                "chromedriver answered \(method.rawValue) \(path) with \(exchange.response.status): \(text)"
            )
        }
        guard exchange.response.status.code == 200 else {
            throw Refusal(code: answer.value["error"].text ?? "", message: answer.value["message"].text ?? "")
        }
        return answer.value
    }
}
