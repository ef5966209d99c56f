extension Browser {
    /// A control of several parts, such as a date, keeps the focus for so many strokes.
    private static let partsOfOneElement = 12

    private struct Look: Decodable {
        var before: [String: String]?
        var element: PageValue
        /// It had the focus at the last look too.
        var isSame: Bool
        /// It had the focus in this walk before.
        var isKnown: Bool
        var selector: String?
        var now: [String: String]?
        var box: FocusStop.Box?
        var isFixed: Bool?
        var isCovered: Bool?
    }

    /// What has the keyboard's focus; nil when nothing in the page has.
    package func focused() async throws -> FocusStop? { try await look().stop }

    /// Presses Tab from the page's beginning until the focus leaves, and notes where it stops.
    ///
    /// - Parameter limit: the greatest number of stops.
    /// - Returns: the stops, and what was not reached; its `faults` are what a test expects to be empty.
    /// - Throws: `BrowserFailure`.
    package func walkFocus(upTo limit: Int = 200) async throws -> FocusWalk {
        // From the end the focus leaves the page, and comes back at its very beginning.
        let end = try await script(FocusScripts.goToEnd)
        try await takeFocus()
        try await keys(.tab)
        try await script("arguments[0].remove(); window.scrollTo(0, 0)", end)
        try await takeFocus()
        var stops: [FocusStop] = []
        var last: Look?
        var parts = 0
        var outcome = FocusWalk.End.tooLong
        while stops.count <= limit {
            try await keys(.tab)
            let (seen, stop) = try await look()
            if let focus = last?.now, let without = seen.before, !seen.isSame {
                stops[stops.count - 1].changes = Self.changes(from: without, to: focus)
            }
            guard let stop else {
                outcome = .left
                break
            }
            if seen.isSame {
                parts += 1
                guard parts < Self.partsOfOneElement else {
                    outcome = .trapped(stop.selector)
                    break
                }
                continue
            }
            guard !seen.isKnown else {
                outcome = .trapped(stop.selector)
                break
            }
            guard stops.count < limit else { break }
            parts = 0
            stops.append(stop)
            last = seen
        }
        let missed = try await script(FocusScripts.missed).decode(as: [String].self)
        return FocusWalk(stops: stops, end: outcome, missed: missed)
    }

    /// Takes the focus from the browser's own controls, to the page as a whole.
    ///
    /// Each time that the focus leaves the page it goes on from the control where it was left the last time, though keys
    /// are struck in the page alone: behind the last control it would come back at once, as if it had never left.
    private func takeFocus() async throws { try await tell("Page.bringToFront") }

    /// Looks at what has the focus, and back at what had it before.
    private func look() async throws -> (seen: Look, stop: FocusStop?) {
        let seen = try await script(FocusScripts.look).decode(as: Look.self)
        guard let id = seen.element.fields?.values.first?.text, let box = seen.box else { return (seen, nil) }
        let (role, name) = try await explained("focus") {
            (
                try await command(.get, "element/\(id)/computedrole").text ?? "",
                try await command(.get, "element/\(id)/computedlabel").text ?? ""
            )
        }
        let stop = FocusStop(
            selector: seen.selector ?? "",
            role: role,
            name: name,
            box: box,
            isFixed: seen.isFixed ?? false,
            isCovered: seen.isCovered ?? false
        )
        return (seen, stop)
    }

    private static func changes(from without: [String: String], to focus: [String: String]) -> [String] {
        focus.filter { without[$0.key] != $0.value }.sorted { $0.key < $1.key }
            .map { "\($0.key): \(without[$0.key] ?? "none") → \($0.value)" }
    }
}
