import Foundation
import HTTPTypes
import Testing
import Transport

/// Somebody who speaks HTTP to the console without a browser's good manners.
struct ConsoleVisitor: Sendable {
    let console: ConsoleSite
    let transport: HTTPTransport
    /// `__Host-desk=…`; `nil`: none.
    var cookie: String?

    private static let cookieName = "__Host-desk="

    func get(_ path: String) async throws -> HTTPAnswer {
        try await transport.ask(.get, path, at: console.port, headers)
    }

    /// Sends a form.
    ///
    /// - Parameters:
    ///   - path: where to.
    ///   - fields: what it holds.
    ///   - origin: where it says to come from; `nil`: nothing; the console itself by default.
    /// - Returns: the answer.
    /// - Throws: when there is none.
    func post(_ path: String, _ fields: [(String, String)], origin: String? = "") async throws -> HTTPAnswer {
        var all = headers
        all["Content-Type"] = "application/x-www-form-urlencoded"
        all["Origin"] = origin == "" ? "http://127.0.0.1:\(console.port)" : origin
        let body = fields.map { "\(Self.escaped($0))=\(Self.escaped($1))" }.joined(separator: "&")
        return try await transport.ask(.post, path, at: console.port, all, body: body)
    }

    /// Signs in; the cookie is kept where it worked.
    mutating func signIn(
        _ name: String,
        _ password: String = Operator.password,
        code: String,
        next: String = ""
    ) async throws -> HTTPAnswer {
        let answer = try await post(
            "/console/sign-in",
            [("name", name), ("password", password), ("code", code), ("next", next)]
        )
        if let set = answer["Set-Cookie"] { cookie = set.split(separator: ";").first.map(String.init) }
        return answer
    }

    /// What forms of the session carry.
    func key() async throws -> String {
        let page = try await get("/console").text
        let start = try #require(page.range(of: #"name="key" value=""#), "\(page.prefix(500))")
        return String(page[start.upperBound...].prefix(64))
    }

    private var headers: [String: String] { cookie.map { ["Cookie": $0] } ?? [:] }

    private static func escaped(_ text: String) -> String {
        text.addingPercentEncoding(withAllowedCharacters: .alphanumerics) ?? ""
    }
}
