import Foundation
import HTTPTypes
import Logging
import Postgres
import TestSupport
import Testing
import Transport

/// A real identity provider before a console, with the users bea, cid, root and ada.
struct IdentityProvider: Sendable {
    enum Kind: String, Sendable, CaseIterable { case glewlwyd, mock }

    private struct Ready: Decodable {
        var issuer: String
        var clientID: String
        var clientSecret: String

        enum CodingKeys: String, CodingKey {
            case issuer
            case clientID = "client_id"
            case clientSecret = "client_secret"
        }
    }

    let kind: Kind
    private let program: Program
    private let ready: Ready
    let port: Int
    /// Where the console is to listen.
    let consolePort: Int
    let transport: HTTPTransport

    /// Starts a provider and a site whose console uses it, lets the test act, and takes both down.
    ///
    /// The operators that a staffed site has keep other names, so that the provider's users find theirs free.
    static func with(
        _ kind: Kind,
        settings: [String: String] = [:],
        _ body: @Sendable (IdentityProvider, ConsoleSite) async throws -> Void
    ) async throws {
        let provider = try await IdentityProvider(kind)
        try await ConsoleSite.with(settings: provider.settings.merging(settings) { $1 }) { console in
            try await console.site.execute("UPDATE entitlement_sync.operator SET name = 'local-' || name")
            try await console.site.waitUntil(
                "SELECT count(*) FROM entitlement_sync.sign_in_provider AS p",
                comment: "the provider was never put in use"
            )
            try await body(provider, console)
        }
        provider.program.signal(SIGTERM)
        _ = try await provider.program.ending()
        await provider.transport.shutdown()
    }

    private init(_ kind: Kind) async throws {
        self.kind = kind
        port = Int(freeLoopbackPort())
        consolePort = Int(freeLoopbackPort())
        let console = "http://127.0.0.1:\(consolePort)/console/sign-in"
        let arguments =
            switch kind {
            case .glewlwyd: ["\(port)", console + "/return", console]
            case .mock: ["\(port)", Paths.folder + "/.build"]
            }
        program = try await Program(
            ["/usr/bin/env", "python3", Paths.fixtures + "/providers/\(kind.rawValue).py"] + arguments,
            environment: Site.environment(["PYTHONDONTWRITEBYTECODE": "1"])
        )
        let said = try await program.find("the provider's address", within: .seconds(120)) { [program] in
            let said = program.out
            return said.hasSuffix("\n") ? said : nil
        }
        ready = try JSONDecoder().decode(Ready.self, from: Data(said.utf8))
        transport = HTTPTransport(configuration: HTTPTransportConfiguration(), logger: .silent)
    }

    private var settings: [String: String] {
        [
            "ADMIN_PORT": "\(consolePort)", "CONSOLE_URL": "http://127.0.0.1:\(consolePort)",
            "OIDC_ISSUER": ready.issuer,
            "OIDC_CLIENT_ID": ready.clientID, "OIDC_CLIENT_SECRET": ready.clientSecret,
            "OIDC_ROLES":
                "admin=support-admins,senior=support-seniors,approver=support-approvers,agent=support-agents",
        ]
    }

    /// Has the provider do something; see its script.
    func control(_ words: String) async throws {
        let answer = try await transport.ask(.post, "/control", at: port, body: words)
        try #require(answer.status == 200, "\(answer)")
    }

    /// Replaces what the mock says of a user.
    func claims(_ user: String, _ changes: [String: any Sendable] = [:]) async throws {
        let usual: [String: any Sendable] = [
            "name": user.capitalized, "preferred_username": user, "groups": ["support-approvers"],
        ]
        let body = try JSONSerialization.data(withJSONObject: usual.merging(changes) { $1 })
        let answer = try await transport.ask(
            .put,
            "/users/\(user)",
            at: port,
            ["Content-Type": "application/json"],
            body: String(decoding: body, as: UTF8.self)
        )
        try #require(answer.status == 204, "\(answer)")
    }

    // MARK: Its pages

    /// Leads a browser through the provider's pages, until it is back at the console.
    func pass(_ browser: Browser, as user: String) async throws {
        switch kind {
        case .mock: try await browser.leaving { try await browser.click("button[name=sub][value=\(user)]") }
        case .glewlwyd:
            for _ in 0..<6 {
                guard try await settle(browser) else { break }
                if try await browser.exists("#password") {
                    if try await browser.script("return !document.querySelector('#username').disabled").flag == true {
                        try await browser.clear("#username")
                        try await browser.type("#username", user)
                    }
                    try await browser.type("#password", Operator.password)
                    try await browser.click("#loginbut")
                } else {
                    try await browser.click(".card-footer button.btn-success")
                }
            }
        }
        try await browser.wait("not back at the console", until: "location.port === '\(consolePort)'")
    }

    /// Its page loads in steps, and empties its fields in between: waits until it is at rest.
    ///
    /// - Returns: whether the browser is still at the provider.
    private func settle(_ browser: Browser) async throws -> Bool {
        var calm = 0
        for _ in 0..<400 {
            guard try await browser.url.hasPrefix("http://127.0.0.1:\(port)/") else { return false }
            let isAtRest = try? await browser.script(
                """
                return document.readyState === 'complete' && !!window.jQuery && jQuery.active === 0
                    && !!document.querySelector('#userCard')
                    && performance.getEntriesByType('resource').some(e => e.name.includes('/profile_list'))
                """
            )
            calm = isAtRest?.flag == true ? calm + 1 : 0
            if calm == 4 { return true }
            // It has to be at rest for a while: between two of its steps it seems to be at rest as well.
            try await Task.sleep(for: .milliseconds(50))
        }
        throw BrowserTooSlow(description: "the provider's page never came to rest: \(await browser.pageDescription)")
    }

    private struct BrowserTooSlow: Error, CustomStringConvertible { var description: String }

    // MARK: Without a browser

    /// A visitor who has begun to sign in: what the browser would keep, and where it would go.
    struct Begun: Sendable {
        var cookie: String
        var address: String
    }

    func begin(_ console: ConsoleSite) async throws -> Begun {
        let answer = try await transport.ask(.get, "/console/sign-in/provider", at: console.port)
        try #require(answer.status == 302 || answer.status == 303 || answer.status == 307, "\(answer)")
        let cookie = try #require(answer["Set-Cookie"]?.split(separator: ";").first)
        return Begun(cookie: String(cookie), address: try #require(answer["Location"]))
    }

    /// Has the mock sign a user in; the path that it leads back to.
    func agree(_ begun: Begun, as user: String) async throws -> String {
        let path = begun.address.replacing("http://127.0.0.1:\(port)", with: "")
        let answer = try await transport.ask(
            .post,
            path,
            at: port,
            ["Content-Type": "application/x-www-form-urlencoded"],
            body: "sub=\(user)"
        )
        let location = try #require(answer["Location"], "\(answer)")
        return location.replacing("http://127.0.0.1:\(consolePort)", with: "")
    }

    /// Comes back to the console.
    func arrive(_ path: String, cookie: String?, at console: ConsoleSite) async throws -> HTTPAnswer {
        try await transport.ask(.get, path, at: console.port, cookie.map { ["Cookie": $0] } ?? [:])
    }
}
