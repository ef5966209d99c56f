/// A cookie as the browser keeps it, those that scripts cannot see included.
package struct BrowserCookie: Sendable, Hashable, Codable {
    package var name: String
    package var value: String
    /// The host; nil where the page's own is meant.
    package var domain: String?
    package var path: String?
    /// Whether it is sent over connections that nobody can listen to alone; to the browser, loopback is one.
    package var secure: Bool?
    /// Whether scripts cannot see it.
    package var httpOnly: Bool?
    /// `Strict`, `Lax` or `None`.
    package var sameSite: String?
    /// When it ends, in seconds since 1970; nil with the browser's own end.
    package var expiry: Int?

    /// Describes a cookie of the page that is open.
    package init(_ name: String, _ value: String) {
        self.name = name
        self.value = value
    }
}

extension Browser {
    /// The cookies that the page's address is sent.
    package var cookies: [BrowserCookie] {
        get async throws { try await explained("cookies") { try await command(.get, "cookie").decode() } }
    }

    /// A cookie that the page's address is sent; nil where there is none of that name.
    package func cookie(_ name: String) async throws -> BrowserCookie? {
        try await cookies.first { $0.name == name }
    }

    /// Keeps a cookie; a page of its host has to be open.
    package func setCookie(_ cookie: BrowserCookie) async throws {
        var fields: [String: PageValue] = ["name": .text(cookie.name), "value": .text(cookie.value)]
        fields["domain"] = cookie.domain.map { .text($0) }
        fields["path"] = cookie.path.map { .text($0) }
        fields["secure"] = cookie.secure.map { .flag($0) }
        fields["httpOnly"] = cookie.httpOnly.map { .flag($0) }
        fields["sameSite"] = cookie.sameSite.map { .text($0) }
        fields["expiry"] = cookie.expiry.map { .number(Double($0)) }
        try await explained("set cookie \(cookie.name)") {
            _ = try await command(.post, "cookie", ["cookie": .fields(fields)])
        }
    }

    /// Forgets the cookies of the page's address, as after a long absence.
    package func forgetCookies() async throws {
        try await explained("forget cookies") { _ = try await command(.delete, "cookie") }
    }
}
