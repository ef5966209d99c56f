extension Browser {
    /// Waits until a selector finds something.
    ///
    /// - Throws: `BrowserFailure` that tells what the page shows instead.
    package func wait(for css: String, within limit: Duration = .seconds(10)) async throws {
        try await wait("no \(css)", within: limit, until: "document.querySelector(arguments[0]) !== null", .text(css))
    }

    /// Waits until a selector finds nothing any more.
    package func wait(forNo css: String, within limit: Duration = .seconds(10)) async throws {
        try await wait(
            "still there: \(css)",
            within: limit,
            until: "document.querySelector(arguments[0]) === null",
            .text(css)
        )
    }

    /// Waits until the page, or an element of it, shows a text.
    package func wait(
        forText text: String,
        in css: String = "body",
        within limit: Duration = .seconds(10)
    ) async throws {
        try await wait(
            "“\(text)” is not in \(css)",
            within: limit,
            until: "(document.querySelector(arguments[0])?.innerText ?? '').includes(arguments[1])",
            .text(css),
            .text(text)
        )
    }

    /// Waits until an expression is true in the page.
    ///
    /// - Parameters:
    ///   - complaint: what is wrong as long as it is not.
    ///   - limit: how long to wait.
    ///   - expression: JavaScript, with its arguments in `arguments`.
    ///   - arguments: what it is given.
    /// - Throws: `BrowserFailure` with the complaint and what the page shows.
    package func wait(
        _ complaint: String,
        within limit: Duration = .seconds(10),
        until expression: String,
        _ arguments: PageValue...
    ) async throws {
        let deadline = ContinuousClock.now + limit
        var last = ""
        while true {
            do {
                if try await rawScript("return Boolean(\(expression))", arguments).flag == true { return }
                last = ""
            } catch let refusal as WebDriverClient.Refusal {
                // Between two pages there is none that could answer.
                last = " (\(refusal))"
            }
            guard ContinuousClock.now < deadline else { throw await failure("\(complaint) after \(limit)\(last)") }
            try await Task.sleep(for: .milliseconds(20))
        }
    }

    /// Does something that leads to another page, and waits until that one is loaded.
    ///
    /// - Parameters:
    ///   - limit: how long to wait.
    ///   - action: what leads there.
    /// - Throws: `BrowserFailure` when the old page stays.
    package func leaving(within limit: Duration = .seconds(20), _ action: () async throws -> Void) async throws {
        let old = "page \(UInt64.random(in: .min ... .max))"
        try await script("window.pageThatIsLeft = arguments[0]", .text(old))
        try await action()
        try await wait(
            "the page stays",
            within: limit,
            until: "window.pageThatIsLeft !== arguments[0] && document.readyState === 'complete'",
            .text(old)
        )
    }
}
