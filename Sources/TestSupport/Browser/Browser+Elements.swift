extension Browser {
    /// The key under which WebDriver hands out an element.
    private static let elementKey = "element-6066-11e4-a52e-4f735466cecf"

    // MARK: Looking

    /// The visible text of the first element that a selector finds; waits until there is one.
    ///
    /// - Parameter css: the selector; the whole page by default.
    /// - Returns: the text as it is laid out, without what is hidden.
    /// - Throws: `BrowserFailure` when there is none in time.
    package func text(of css: String = "body") async throws -> String {
        try await act(on: css, .get, "text").text ?? ""
    }

    /// The visible texts of all elements that a selector finds, as they are now.
    package func texts(of css: String) async throws -> [String] {
        try await script("return Array.from(document.querySelectorAll(arguments[0]), e => e.innerText)", .text(css))
            .decode()
    }

    /// How many elements a selector finds now.
    package func count(of css: String) async throws -> Int {
        try await script("return document.querySelectorAll(arguments[0]).length", .text(css)).decode()
    }

    /// Whether a selector finds something now.
    package func exists(_ css: String) async throws -> Bool { try await count(of: css) > 0 }

    /// Whether the first element that a selector finds is shown; waits until there is one.
    package func isShown(_ css: String) async throws -> Bool {
        try await act(on: css, .get, "displayed").flag ?? false
    }

    /// An attribute of the first element that a selector finds, as it stands in the page; nil without it.
    package func attribute(_ name: String, of css: String) async throws -> String? {
        try await act(on: css, .get, "attribute/\(name)").text
    }

    /// What stands in a field.
    package func value(of css: String) async throws -> String {
        try await act(on: css, .get, "property/value").text ?? ""
    }

    // MARK: Acting

    /// Clicks on the first element that a selector finds, which has to be in sight and not covered.
    ///
    /// - Throws: `BrowserFailure` when there is none to click on in time.
    package func click(_ css: String) async throws { _ = try await act(on: css, .post, "click") }

    /// Types into a field, behind what stands in it; for a field that takes a file, the file's path.
    package func type(_ css: String, _ text: String) async throws {
        _ = try await act(on: css, .post, "value", ["text": .text(text)])
    }

    /// Empties a field.
    package func clear(_ css: String) async throws { _ = try await act(on: css, .post, "clear") }

    /// Chooses an option of a list, by its text or its value.
    ///
    /// - Throws: `BrowserFailure` when there is no such option.
    package func select(_ css: String, _ option: String) async throws {
        let find = """
            const list = document.querySelector(arguments[0]);
            return Array.from(list ? list.options : [])
                .find(o => o.label.trim() === arguments[1] || o.value === arguments[1]) ?? null;
            """
        guard let id = try await script(find, .text(css), .text(option))[Self.elementKey].text else {
            throw await failure("select \(css): no option “\(option)”")
        }
        try await explained("select \(css)") { _ = try await command(.post, "element/\(id)/click") }
    }

    /// Clicks on a link or button that leads to another page, and waits until that one is loaded.
    package func follow(_ css: String) async throws { try await leaving { try await click(css) } }

    /// Sends a form, as Enter in one of its fields would, and waits until the page that answers is loaded.
    ///
    /// - Parameter css: the form, or anything in it.
    /// - Throws: `BrowserFailure`, also when the form may not be sent yet or no page answers.
    package func submit(_ css: String = "form") async throws {
        let send = """
            const found = document.querySelector(arguments[0]);
            const form = found ? found.closest("form") : null;
            if (!form) return "there is no such form";
            const wrong = form.noValidate ? null : form.querySelector(":invalid");
            if (wrong) return (wrong.name || wrong.id) + ": " + wrong.validationMessage;
            form.requestSubmit();
            return null;
            """
        _ = try await patiently("submit \(css)") { .text(try await find(css)) }
        try await leaving {
            if let fault = try await script(send, .text(css)).text { throw await failure("submit \(css): \(fault)") }
        }
    }

    // MARK: Elements

    /// Does something with the first element that a selector finds, as soon as there is one that lets it be done.
    func act(
        on css: String,
        _ method: WebDriverClient.Method,
        _ path: String,
        _ body: PageValue = [:]
    ) async throws -> PageValue {
        try await patiently("\(path) of \(css)") {
            try await command(method, "element/\(try await find(css))/\(path)", body)
        }
    }

    private func find(_ css: String) async throws -> String {
        try await command(.post, "element", ["using": "css selector", "value": .text(css)])[Self.elementKey].text ?? ""
    }

    /// Tries until the driver no longer refuses for reasons that may pass.
    private func patiently(_ what: String, _ work: () async throws -> PageValue) async throws -> PageValue {
        let deadline = ContinuousClock.now + Self.patience
        while true {
            do {
                return try await work()
            } catch let refusal as WebDriverClient.Refusal {
                guard refusal.mayPass, ContinuousClock.now < deadline else {
                    throw await failure("\(what): \(refusal)")
                }
            }
            // A page tells nobody when it is ready.
            try await Task.sleep(for: .milliseconds(20))
        }
    }
}
