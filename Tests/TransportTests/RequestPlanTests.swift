import HTTPTypes
import Testing

@testable import Transport

struct RequestPlanTests {
    @Test(arguments: [
        ("http", "127.0.0.1"), ("http", "127.0.0.1:80"), ("http", "127.255.3.4:8080"), ("http", "localhost:1"),
        ("HTTP", "LOCALHOST"), ("http", "[::1]:8080"), ("http", "[0:0:0:0:0:0:0:1]"),
        ("https", "api.example.com"), ("https", "api.example.com:8443"), ("https", "10.0.0.1"),
        ("https", "[2001:db8::1]"),
    ])
    func `a host that may be asked is accepted`(scheme: String, authority: String) throws {
        #expect(throws: Never.self) { try RequestPlan(.to(authority, scheme: scheme), body: nil) }
    }

    @Test(arguments: [
        // Plain http leaves this machine, or might by another parser's reading.
        ("http", "example.com"), ("http", "10.0.0.1"), ("http", "127.1"), ("http", "0x7f.1"), ("http", "2130706433"),
        ("http", "0127.0.0.1"), ("http", "127.0.0.1.nip.io"), ("http", "localhost.example.com"), ("http", "localhost."),
        ("http", "[::ffff:127.0.0.1]"), ("http", "[::2]"), ("http", "[fe80::1]"), ("http", "0.0.0.0"),
        ("http", "128.0.0.1"),
        // No plain host and port.
        ("https", ""), ("https", ":443"), ("https", "user@example.com"), ("https", "user:secret@example.com"),
        ("https", "a.com:"), ("https", "a.com:0"), ("https", "a.com:65536"), ("https", "a.com:+1"),
        ("https", "a.com:80a"),
        ("https", "a.com:123456"), ("https", "a.com/x"), ("https", "a.com?x"), ("https", "a.com#x"),
        ("https", "a.com\\x"),
        ("https", "a b.com"), ("https", "a%2ecom"), ("https", "bücher.de"), ("https", "[::1"), ("https", "[]"),
        ("https", "[::1%25lo]"), ("https", "[::1]x"), ("http", "127.0.0.1@example.com"), ("http", "localhost:80@a.com"),
        // Neither http nor https.
        ("ftp", "example.com"), ("file", "localhost"), ("", "example.com"),
    ])
    func `a host that may not be asked is refused`(scheme: String, authority: String) throws {
        let error = try #require(throws: TransportError.self) {
            try RequestPlan(.to(authority, scheme: scheme), body: nil)
        }
        #expect(error.code == .invalidRequest)
        #expect(!error.requestSent)
    }

    @Test(arguments: ["", "x", "*", "/a b", "/a\tb", "/a\r\nX: y", "/ä", "/a#b", "/a\u{7f}b", "/a\0b"])
    func `a path that needs escaping is refused`(path: String) throws {
        let error = try #require(throws: TransportError.self) {
            try RequestPlan(.to("a.com", path, scheme: "https"), body: nil)
        }
        #expect(error.code == .invalidRequest)
    }

    @Test func `a request without scheme, authority or path is refused`() throws {
        for request in [
            HTTPRequest(method: .get, scheme: nil, authority: "a.com", path: "/"),
            HTTPRequest(method: .get, scheme: "https", authority: nil, path: "/"),
            HTTPRequest(method: .get, scheme: "https", authority: "a.com", path: nil),
        ] {
            let error = try #require(throws: TransportError.self) { try RequestPlan(request, body: nil) }
            #expect(error.code == .invalidRequest)
        }
    }

    @Test(arguments: [
        "Host", "content-length", "Transfer-Encoding", "Connection", "Expect", "Upgrade", "TE", "Trailer",
    ])
    func `a field that frames the message is refused`(field: String) throws {
        var request = HTTPRequest.to("a.com", scheme: "https")
        request.headerFields[try name(field)] = "x"
        let error = try #require(throws: TransportError.self) { try RequestPlan(request, body: nil) }
        #expect(error.code == .invalidRequest)
    }

    @Test(arguments: ["a\r\nX: y", "a\nb", "a\rb", "a\0b", "\u{1b}", "\u{7f}"])
    func `a value with a control character is refused`(value: String) throws {
        let error = try #require(throws: TransportError.self) { try RequestPlan.headerLine(name: "A", value: value) }
        #expect(error.code == .invalidRequest)
        #expect(!"\(error)".contains(value))
    }

    @Test(arguments: [("text", "A: text"), ("", "A;"), ("a\tb ü", "A: a\tb ü")])
    func `a value goes out as given`(value: String, line: String) throws {
        #expect(try RequestPlan.headerLine(name: "A", value: value) == line)
    }

    @Test(arguments: [("CONNECT", false), ("TRACE", false), ("HEAD", true)])
    func `a method that makes no sense here is refused`(method: String, hasBody: Bool) throws {
        let request = HTTPRequest.to("a.com", method: try #require(.init(method)), scheme: "https")
        let error = try #require(throws: TransportError.self) { try RequestPlan(request, body: hasBody ? [1] : nil) }
        #expect(error.code == .invalidRequest)
    }

    @Test func `an error names neither URL, header nor body`() async throws {
        let transport = HTTPTransport(logger: quietLogger)
        let request = HTTPRequest.to("10.0.0.1", "/path?token=secret", [.authorization: "Bearer secret"])
        let error = try await transport.failure(request, body: Array("secret".utf8))
        await transport.shutdown()
        #expect(!String(describing: error).contains("secret"))
        #expect(!String(reflecting: error).contains("secret"))
        #expect(!String(reflecting: error).contains("10.0.0.1"))
    }
}
