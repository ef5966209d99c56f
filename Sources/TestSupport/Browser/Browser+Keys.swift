/// Keys on a keyboard, struck one after the other: `"j"`, `"search"`, `.tab`, `.shift(.tab)`.
package struct BrowserKey: Sendable, ExpressibleByStringLiteral {
    /// The keys of each stroke, pressed in this order and released in the opposite one.
    fileprivate var strokes: [[String]]

    package init(stringLiteral text: String) { strokes = text.map { [String($0)] } }

    // https://www.w3.org/TR/webdriver2/#keyboard-actions
    package static let tab: BrowserKey = "\u{E004}"
    package static let enter: BrowserKey = "\u{E006}"
    package static let escape: BrowserKey = "\u{E00C}"
    package static let space: BrowserKey = " "
    package static let backspace: BrowserKey = "\u{E003}"
    package static let delete: BrowserKey = "\u{E017}"
    package static let pageUp: BrowserKey = "\u{E00E}"
    package static let pageDown: BrowserKey = "\u{E00F}"
    package static let end: BrowserKey = "\u{E010}"
    package static let home: BrowserKey = "\u{E011}"
    package static let left: BrowserKey = "\u{E012}"
    package static let up: BrowserKey = "\u{E013}"
    package static let right: BrowserKey = "\u{E014}"
    package static let down: BrowserKey = "\u{E015}"

    /// The same with Shift held down.
    package static func shift(_ key: BrowserKey) -> BrowserKey { key.holding("\u{E008}") }
    /// The same with Control held down.
    package static func control(_ key: BrowserKey) -> BrowserKey { key.holding("\u{E009}") }
    /// The same with Alt held down.
    package static func alt(_ key: BrowserKey) -> BrowserKey { key.holding("\u{E00A}") }

    private func holding(_ modifier: String) -> BrowserKey {
        var key = self
        key.strokes = strokes.map { [modifier] + $0 }
        return key
    }
}

extension Browser {
    /// Strikes keys, wherever the focus is.
    package func keys(_ keys: BrowserKey...) async throws {
        let actions = keys.flatMap(\.strokes).flatMap { stroke in
            stroke.map { (["type": "keyDown", "value": .text($0)] as PageValue) }
                + stroke.reversed().map { ["type": "keyUp", "value": .text($0)] }
        }
        try await explained("keys") {
            _ = try await command(
                .post,
                "actions",
                ["actions": [["type": "key", "id": "keyboard", "actions": .list(actions)]]]
            )
        }
    }
}
