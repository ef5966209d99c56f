import Foundation
import HTTPTypes
import Testing
import Transport

/// A process that serves the API, its log in JSON.
struct Endpoint: Sendable {
    let program: Program
    let port: Int
    private let transport: HTTPTransport

    /// Waits until a program serves the API.
    ///
    /// - Parameters:
    ///   - program: `run` or `serve`.
    ///   - transport: what to ask it through.
    /// - Throws: when it does not come to it.
    init(_ program: Program, over transport: HTTPTransport) async throws {
        port = try await Self.port(of: program)
        self.program = program
        self.transport = transport
    }

    private static func port(of program: Program, of what: String = "the API") async throws -> Int {
        try await program.find("the port of \(what)") {
            let line = try lines(of: program).first { $0["message"] == "serving \(what)" }
            return line?["listen.port"].flatMap { Int($0) }
        }
    }

    /// Where its metrics are served; it listens there at about the same time.
    var adminPort: Int { get async throws { try await Self.port(of: program, of: "metrics") } }

    /// The lines of the log so far.
    var log: [[String: String]] { get throws { try Self.lines(of: program) } }

    private static func lines(of program: Program) throws -> [[String: String]] {
        try program.log.filter { $0.hasPrefix("{") }.map { try MeteredWorker.fields(of: String($0)) }
    }

    /// Connections that the process has at its port.
    var connections: Int {
        get throws {
            let hex = String(port, radix: 16, uppercase: true)
            let end = ":" + String(repeating: "0", count: max(0, 4 - hex.count)) + hex
            // Of a file without a size the usual readers take the first page alone.
            let table = try FileHandle(forReadingFrom: URL(fileURLWithPath: "/proc/net/tcp"))
            var text: [UInt8] = []
            while let page = try table.read(upToCount: 65_536), !page.isEmpty { text += page }
            return String(decoding: text, as: UTF8.self).split(separator: "\n").count { line in
                let columns = line.split(separator: " ")
                // Established, or closed by the client alone.
                return columns.count > 3 && columns[1].hasSuffix(end) && (columns[3] == "01" || columns[3] == "08")
            }
        }
    }

    /// Asks for something.
    func ask(
        _ method: HTTPRequest.Method,
        _ path: String,
        _ fields: [String: String] = [:],
        body: String? = nil
    ) async throws -> HTTPAnswer {
        try await transport.ask(method, path, at: port, fields, body: body)
    }

    /// Posts a webhook.
    ///
    /// - Parameters:
    ///   - webhook: as the store would send it.
    ///   - store: as it stands in the path.
    ///   - name: names the request in the log.
    /// - Returns: the answer.
    /// - Throws: when there is none.
    func post(_ webhook: Webhook, to store: String, name: String? = nil) async throws -> HTTPAnswer {
        var fields = webhook.headers
        fields["Content-Type"] = "application/json"
        fields["X-Request-Id"] = name
        return try await ask(.post, "/v1/webhooks/\(store)", fields, body: webhook.body)
    }

    /// Tells the process to stop, which has to go well.
    @discardableResult
    func close() async throws -> Program.Ending { try await program.stop() }
}

/// A webhook as a store would post it.
struct Webhook: Decodable, Sendable {
    var headers: [String: String]
    var body: String
}

/// An answer as a client sees it.
struct HTTPAnswer: Sendable, CustomStringConvertible {
    let response: HTTPResponse
    let body: [UInt8]

    var status: Int { response.status.code }
    var text: String { String(decoding: body, as: UTF8.self) }
    var description: String { "\(status) \(text.prefix(2000))" }

    /// A header.
    subscript(name: String) -> String? { HTTPField.Name(name).flatMap { response.headerFields[$0] } }

    /// Reads the body.
    func decode<Content: Decodable>(as type: Content.Type = Content.self) throws -> Content {
        try JSONDecoder().decode(type, from: Data(body))
    }

    /// The problem that it tells of.
    var problem: Problem {
        get throws {
            try #require(self["Content-Type"] == "application/problem+json", "\(self)")
            return try decode()
        }
    }

    /// A problem of RFC 9457.
    struct Problem: Decodable, Hashable, Sendable {
        var type: String
        var title: String
        var status: Int
        var detail: String?
        var field: String?
        var fix: String?
        var instance: String

        /// The kind by its last word.
        var kind: String { type.replacing("urn:entitlement-sync:problem:", with: "") }
    }
}

extension HTTPTransport {
    /// Asks a server on loopback.
    func ask(
        _ method: HTTPRequest.Method,
        _ path: String,
        at port: Int,
        _ fields: [String: String] = [:],
        body: String? = nil
    ) async throws -> HTTPAnswer {
        var headers = HTTPFields()
        for (name, value) in fields {
            let field = try #require(HTTPField.Name(name), "\(name)")
            headers[field] = value
        }
        let request = HTTPRequest(
            method: method,
            scheme: "http",
            authority: "127.0.0.1:\(port)",
            path: path,
            headerFields: headers
        )
        let exchange = try await send(request, body: body.map { Array($0.utf8) }, timeout: .seconds(60))
        return HTTPAnswer(response: exchange.response, body: exchange.body)
    }
}
