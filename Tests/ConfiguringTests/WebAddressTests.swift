import Testing

@testable import Configuring

@Suite struct WebAddressTests {
    @Test(arguments: [
        ("https://api.revenuecat.com/v2", "https://api.revenuecat.com/v2"), ("HTTPS://host", "HTTPS://host"),
        ("https://host:8443/a/b//", "https://host:8443/a/b"), ("http://localhost:8080", "http://localhost:8080"),
        ("http://LOCALHOST/v2", "http://LOCALHOST/v2"), ("http://127.8.9.10:1/v2", "http://127.8.9.10:1/v2"),
        ("http://[::1]:9/v2", "http://[::1]:9/v2"),
    ])
    func `An address we may call is taken, without the slash at its end`(text: String, base: String) throws {
        #expect(try WebAddress.base(text) == base)
    }

    @Test(arguments: [
        "api.revenuecat.com", "https://", "https:///v2", "ftp://host", "http://api.revenuecat.com",
        "http://127.0.0.1.example.com", "http://127.1", "http://0127.0.0.1", "http://127.0.0.256", "http://localhost.",
        "http://localhost@example.com", "https://user@host", "https://user:word@host", "https://host?a=b",
        "https://host#x", "https://host:0", "https://host:65536", "https://ho st", "https://host/\n", "https://höst",
        "",
        "http://[::2]/",
    ])
    func `An address we may not call is refused`(text: String) {
        #expect(throws: WebAddress.Fault.self) { try WebAddress.base(text) }
    }

    @Test(arguments: [
        "https://app.example.com", "https://app.example.com:8443", "http://localhost:5173", "http://127.0.0.1",
        "http://[::1]:3000", "https://xn--bcher-kva.example",
    ])
    func `The origin of a page is taken as a browser writes it`(text: String) throws {
        #expect(try WebAddress.origin(text) == text)
    }

    @Test(arguments: [
        "*", "null", "https://*", "https://*.example.com", "https://app.example.com/", "https://app.example.com/page",
        "https://App.example.com", "HTTPS://app.example.com", "https://app.example.com:443", "http://localhost:80",
        "http://app.example.com", "https://app.example.com?a", "https://app.example.com#a", "https://a@app.example.com",
        "https://app_.example.com", "app.example.com", "https://", "", "https://app.example.com ",
        "https://" + String(repeating: "a", count: 256),
    ])
    func `What no browser writes as an origin is refused`(text: String) {
        #expect(throws: WebAddress.Fault.self) { try WebAddress.origin(text) }
    }

    @Test(arguments: [
        "https://example.com/help?topic=restore#top", "mailto:a@b.example", "mailto:a@b.example?subject=x",
    ])
    func `A contact address is taken as it is`(text: String) throws {
        #expect(try WebAddress.contact(text) == text)
    }
}
