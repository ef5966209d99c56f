import HTTPTypes

/// Keys on a keyboard, struck one after the other: `"j"`, `"search"`, `.tab`, `.shift(.tab)`.
package struct BrowserKey: Sendable {
    /// The keys of each stroke, pressed in this order and released in the opposite one.
    fileprivate var strokes: [[String]]

    // https://www.w3.org/TR/webdriver2/#keyboard-actions
    package static let tab: BrowserKey = "\u{E004}"
    package static let enter: BrowserKey = "\u{E006}"
    package static let escape: BrowserKey = "\u{E00C}"

    package static func shift(_ key: BrowserKey) -> BrowserKey {
        BrowserKey(strokes: key.strokes.map { ["\u{E008}"] + $0 })
    }
}

extension BrowserKey: ExpressibleByStringLiteral {
    package init(stringLiteral text: String) { strokes = text.map { [String($0)] } }
}

extension Browser {
    /// How long an element that is acted on may take to appear.
    private static let patience = Duration.seconds(5)
    /// The key under which WebDriver hands out an element.
    private static let elementKey = "element-6066-11e4-a52e-4f735466cecf"

    /// The visible text, as it is laid out, of the first element that a selector finds; waits until there is one.
    package func text(of css: String = "body") async throws -> String {
        try await act(on: css, .get, "text").text ?? ""
    }

    package func exists(_ css: String) async throws -> Bool {
        try await script("return document.querySelector(arguments[0]) !== null", .text(css)).decode()
    }

    package func value(of css: String) async throws -> String {
        try await act(on: css, .get, "property/value").text ?? ""
    }

    /// Strikes keys, wherever the focus is.
    package func keys(_ keys: BrowserKey...) async throws {
        let actions = keys.flatMap(\.strokes).flatMap { stroke in
            stroke.map { (["type": "keyDown", "value": .text($0)] as PageValue) }
                + stroke.reversed().map { ["type": "keyUp", "value": .text($0)] }
        }
        let keyboard: PageValue = ["type": "key", "id": "keyboard", "actions": .list(actions)]
        try await explained("keys") { _ = try await command(.post, "actions", ["actions": [keyboard]]) }
    }

    /// Clicks on the first element that a selector finds, once it is in sight and not covered.
    package func click(_ css: String) async throws { _ = try await act(on: css, .post, "click") }

    /// Types into a field, behind what stands in it; for a field that takes a file, the file's path.
    package func type(_ css: String, _ text: String) async throws {
        _ = try await act(on: css, .post, "value", ["text": .text(text)])
    }

    package func clear(_ css: String) async throws { _ = try await act(on: css, .post, "clear") }

    /// Chooses an option of a list, by its text or its value.
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

    package func follow(_ css: String) async throws { try await leaving { try await click(css) } }

    /// Sends the form that the selector finds, or finds something in, as Enter in one of its fields would, and waits
    /// until the page that answers is loaded; fails when the form may not be sent yet.
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

    /// Does something with the first element that a selector finds, as soon as there is one that lets it be done.
    private func act(
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
        try await explained(what) {
            var last: any Error = CancellationError()
            return try await eventually(within: Self.patience) {
                do { return try await work() } catch let refusal as WebDriverClient.Refusal where refusal.mayPass {
                    last = refusal
                    return nil
                }
            } otherwise: {
                last
            }
        }
    }
}
