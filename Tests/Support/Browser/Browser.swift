import Glibc
import HTTPTypes

/// Why a browser could not be had, or did not do what a test asked of it.
package struct BrowserFailure: Error, Sendable, CustomStringConvertible {
    /// What was asked, what came instead, and what the page showed then.
    package var description: String

    init(_ description: String) { self.description = description }
}

/// A headless Chromium with a profile of its own, driven the way a user would.
///
/// Everything takes a limited time. What fails throws `BrowserFailure`, with the page's address, title and text.
/// Pages reach servers on loopback alone; certificates of those are not checked. Nothing is printed.
package struct Browser: Sendable {
    private let client: WebDriverClient
    private let session: String

    /// Starts a browser, lets the test use it, and ends it; `driver` is the shared one by default.
    package static func with<Value: Sendable>(
        _ window: BrowserWindow = .desktop,
        on driver: ChromeDriver? = nil,
        _ body: (Browser) async throws -> Value
    ) async throws -> Value {
        let driver = if let driver { driver } else { try await ChromeDriver.shared }
        let client = WebDriverClient(port: driver.port)
        let browser: Browser
        do {
            browser = try await Browser(window, driver, client)
        } catch {
            await client.close()
            throw BrowserFailure("no browser: \(error)\n\(driver.log)")
        }
        return try await run {
            try await browser.apply(window)
            return try await body(browser)
        } finally: {
            // Also after a cancellation, which would otherwise leave it running.
            await Task { await browser.end() }.value
        }
    }

    private init(_ window: BrowserWindow, _ driver: ChromeDriver, _ client: WebDriverClient) async throws {
        self.client = client
        var arguments: [PageValue] = [
            "--headless=new", "--window-size=\(window.width),\(window.height)", "--disable-dev-shm-usage",
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

    /// Gives a command of the browser's own protocol, such as `Page.getLayoutMetrics`.
    ///
    /// - SeeAlso: https://chromedevtools.github.io/devtools-protocol/
    @discardableResult
    func devTools(_ name: String, _ parameters: PageValue = [:]) async throws -> PageValue {
        try await explained(name) {
            try await command(.post, "goog/cdp/execute", ["cmd": .text(name), "params": parameters])
        }
    }

    /// Makes the window another one from now on.
    package func apply(_ window: BrowserWindow) async throws {
        for command in window.commands { try await devTools(command.name, command.parameters) }
    }

    // MARK: The page

    /// Opens an address and waits until the page is loaded, whatever status it comes with.
    package func open(_ url: String) async throws {
        try await explained("open \(url)") { _ = try await command(.post, "url", ["url": .text(url)]) }
    }

    package func reload() async throws { try await explained("reload") { _ = try await command(.post, "refresh") } }

    package func back() async throws { try await explained("back") { _ = try await command(.post, "back") } }

    package var url: String {
        get async throws { try await explained("url") { try await command(.get, "url").text ?? "" } }
    }

    package var title: String {
        get async throws { try await explained("title") { try await command(.get, "title").text ?? "" } }
    }

    /// Runs the body of a function in the page and waits for a promise that it returns.
    ///
    /// It finds the arguments in `arguments`; an error that it throws is a `BrowserFailure`.
    @discardableResult
    package func script(_ body: String, _ arguments: PageValue...) async throws -> PageValue {
        try await explained("script \(body.prefix(200))") { try await rawScript(body, arguments) }
    }

    /// The same, refused rather than explained when it fails.
    private func rawScript(_ body: String, _ arguments: [PageValue]) async throws -> PageValue {
        try await command(.post, "execute/sync", ["script": .text(body), "args": .list(arguments)])
    }

    // MARK: Waiting

    package func wait(for css: String, within limit: Duration = .seconds(10)) async throws {
        try await wait("no \(css)", within: limit, until: "document.querySelector(arguments[0]) !== null", .text(css))
    }

    package func wait(forNo css: String) async throws {
        try await wait("still there: \(css)", until: "document.querySelector(arguments[0]) === null", .text(css))
    }

    /// Waits until the page, or an element of it, shows a text.
    package func wait(forText text: String, in css: String = "body") async throws {
        let shows = "(document.querySelector(arguments[0])?.innerText ?? '').includes(arguments[1])"
        try await wait("“\(text)” is not in \(css)", until: shows, .text(css), .text(text))
    }

    /// Waits until a JavaScript expression with `arguments` is true in the page; fails with the complaint, what is
    /// wrong as long as it is not, and what the page shows.
    package func wait(
        _ complaint: String,
        within limit: Duration = .seconds(10),
        until expression: String,
        _ arguments: PageValue...
    ) async throws {
        var last = ""
        try await eventually(within: limit) {
            do {
                last = ""
                return try await rawScript("return Boolean(\(expression))", arguments).flag == true ? () : nil
            } catch let refusal as WebDriverClient.Refusal {
                // Between two pages there is none that could answer.
                last = " (\(refusal))"
                return nil
            }
        } otherwise: {
            await failure("\(complaint) after \(limit)\(last)")
        }
    }

    /// Does something that leads to another page, and waits until that one is loaded.
    package func leaving(_ action: () async throws -> Void) async throws {
        let old = "page \(UInt64.random(in: .min ... .max))"
        try await script("window.pageThatIsLeft = arguments[0]", .text(old))
        try await action()
        try await wait(
            "the page stays",
            within: .seconds(20),
            until: "window.pageThatIsLeft !== arguments[0] && document.readyState === 'complete'",
            .text(old)
        )
    }

    // MARK: Failures

    /// Turns a driver's refusal into a failure that says what the page showed.
    func explained<Value>(_ what: String, _ work: () async throws -> Value) async throws -> Value {
        do {
            return try await work()
        } catch let refusal as WebDriverClient.Refusal {
            throw await failure("\(what): \(refusal)")
        }
    }

    func failure(_ message: String) async -> BrowserFailure {
        await BrowserFailure("\(message)\n\(pageDescription)")
    }

    /// The page's address, title and the beginning of its visible text.
    package var pageDescription: String {
        get async {
            let read = "return [location.href, document.title, document.body ? document.body.innerText : '']"
            do {
                let parts = try await rawScript(read, []).list?.map { $0.text ?? "" } ?? []
                guard parts.count == 3 else { return "no page" }
                return "page \(parts[0]) “\(parts[1])”:\n\(parts[2].prefix(2000))"
            } catch {
                return "no page: \(error)"
            }
        }
    }
}
