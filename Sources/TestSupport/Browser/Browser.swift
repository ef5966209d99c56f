import Glibc

/// A headless Chromium with a profile of its own, driven the way a user would.
///
/// Everything takes a limited time. What fails throws `BrowserFailure`, which tells the page's address, title and text.
/// Pages reach servers on loopback alone; certificates of those are not checked. Nothing is printed.
package struct Browser: Sendable {
    /// How long an element that is acted on may take to appear.
    package static let patience = Duration.seconds(5)

    private let client: WebDriverClient
    private let session: String

    /// Starts a browser, lets the test use it, and ends it.
    ///
    /// - Parameters:
    ///   - look: how the window looks to pages.
    ///   - driver: the driver to use; the shared one by default.
    ///   - body: the test.
    /// - Returns: what the test returns.
    /// - Throws: what the test threw, or why there is no browser.
    package static func with<Value: Sendable>(
        _ look: BrowserLook = .desktop,
        on driver: ChromeDriver? = nil,
        _ body: (Browser) async throws -> Value
    ) async throws -> Value {
        let driver = if let driver { driver } else { try await ChromeDriver.shared }
        let client = WebDriverClient(port: driver.port)
        let browser: Browser
        do {
            browser = try await Browser(look, driver, client)
        } catch {
            await client.close()
            throw BrowserFailure("no browser: \(error)\n\(driver.log)")
        }
        let result: Result<Value, any Error>
        do {
            try await browser.take(look)
            result = .success(try await body(browser))
        } catch {
            result = .failure(error)
        }
        // Also after a cancellation, which would otherwise leave it running.
        await Task { await browser.end() }.value
        return try result.get()
    }

    private init(_ look: BrowserLook, _ driver: ChromeDriver, _ client: WebDriverClient) async throws {
        self.client = client
        var arguments: [PageValue] = [
            "--headless=new", "--window-size=\(look.width),\(look.height)", "--disable-dev-shm-usage",
            // When the driver is gone, so is the browser.
            "--remote-debugging-pipe",
            "--hide-scrollbars", "--lang=en-US", "--force-color-profile=srgb", "--no-proxy-server",
            "--disable-background-networking",
            "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost, EXCLUDE *.localhost",
        ]
        // The browser refuses to run as root with a sandbox.
        if getuid() == 0 { arguments.append("--no-sandbox") }
        let answer = try await client.send(
            .post,
            "/session",
            [
                "capabilities": [
                    "alwaysMatch": [
                        "acceptInsecureCerts": true,
                        "timeouts": ["implicit": 0, "pageLoad": 30_000, "script": 30_000],
                        "goog:loggingPrefs": ["browser": "ALL"],
                        "goog:chromeOptions": ["binary": .text(driver.browser), "args": .list(arguments)],
                    ]
                ]
            ],
            within: .seconds(120)
        )
        guard let id = answer["sessionId"].text else { throw BrowserFailure("no session: \(answer)") }
        session = id
    }

    private func end() async {
        // A browser that has died has nothing left to end.
        _ = try? await client.send(.delete, "/session/\(session)", within: .seconds(20))
        await client.close()
    }

    // MARK: Commands

    /// Sends a command of the session.
    ///
    /// - Throws: `WebDriverClient.Refusal`, or `BrowserFailure` where no answer came.
    func command(_ method: WebDriverClient.Method, _ path: String, _ body: PageValue = [:]) async throws -> PageValue {
        try await client.send(method, "/session/\(session)/\(path)", body)
    }

    /// Gives a command of the browser's own protocol.
    ///
    /// - Parameters:
    ///   - name: such as `Page.getLayoutMetrics`.
    ///   - parameters: as the protocol names them.
    /// - Returns: the result.
    /// - Throws: `BrowserFailure`.
    /// - SeeAlso: https://chromedevtools.github.io/devtools-protocol/
    @discardableResult
    package func tell(_ name: String, _ parameters: PageValue = [:]) async throws -> PageValue {
        try await explained(name) {
            try await command(.post, "goog/cdp/execute", ["cmd": .text(name), "params": parameters])
        }
    }

    /// Looks different from now on.
    package func take(_ look: BrowserLook) async throws {
        for command in look.commands { try await tell(command.name, command.parameters) }
    }

    // MARK: The page

    /// Opens an address and waits until the page is loaded, whatever status it comes with.
    ///
    /// - Throws: `BrowserFailure` when nothing is there.
    package func open(_ url: String) async throws {
        try await explained("open \(url)") { _ = try await command(.post, "url", ["url": .text(url)]) }
    }

    /// Loads the page again.
    package func reload() async throws {
        try await explained("reload") { _ = try await command(.post, "refresh") }
    }

    /// Goes back to the page before.
    package func back() async throws {
        try await explained("back") { _ = try await command(.post, "back") }
    }

    /// The page's address.
    package var url: String {
        get async throws { try await explained("url") { try await command(.get, "url").text ?? "" } }
    }

    /// The page's title.
    package var title: String {
        get async throws { try await explained("title") { try await command(.get, "title").text ?? "" } }
    }

    /// Runs the body of a function in the page; a promise that it returns is waited for.
    ///
    /// - Parameters:
    ///   - body: such as `return document.links.length`, with its arguments in `arguments`.
    ///   - arguments: what it is given.
    /// - Returns: what it returns.
    /// - Throws: `BrowserFailure` with the error it throws.
    @discardableResult
    package func script(_ body: String, _ arguments: PageValue...) async throws -> PageValue {
        try await explained("script \(body.prefix(200))") { try await rawScript(body, arguments) }
    }

    /// The same, refused rather than explained when it fails.
    func rawScript(_ body: String, _ arguments: [PageValue]) async throws -> PageValue {
        try await command(.post, "execute/sync", ["script": .text(body), "args": .list(arguments)])
    }
}
