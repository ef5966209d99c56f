import HTTPTypes

/// The sets of rules that axe-core knows by these tags.
package enum AccessibilityTag: String, Sendable, CaseIterable {
    case wcag2a, wcag2aa, wcag21a, wcag21aa, wcag22aa
    /// What no success criterion asks for, such as landmarks, one main heading and headings in order.
    case bestPractice = "best-practice"
}

extension Browser {
    private struct Finding: Decodable {
        struct Place: Decodable {
            var selector: String
            var summary: String
        }

        var rule: String
        var impact: String
        var help: String
        var places: [Place]
    }

    private static let check = """
        const tags = arguments[0], options = { runOnly: { type: "tag", values: tags }, resultTypes: ["violations"] };
        // Not asked for by its tag alone, as it is newer than most pages.
        if (tags.includes("wcag22aa")) options.rules = { "target-size": { enabled: true } };
        return axe.run(arguments[1] === null ? document : document.querySelector(arguments[1]), options)
            .then(results => results.violations.map(violation => ({
                rule: violation.id, impact: violation.impact ?? "unknown", help: violation.help,
                places: violation.nodes.map(node => ({
                    selector: node.target.flat(9).join(" "),
                    summary: (node.failureSummary ?? "").replace(/\\s+/g, " ").trim(),
                })),
            })));
        """

    /// Checks the page as it is now, or a part of it, against axe-core's rules.
    ///
    /// - Returns: a line for each element that breaks a rule, with rule, impact, help, selector and what to do; empty
    ///   when no rule is broken, which is no proof that people can use the page.
    package func accessibilityFaults(
        tags: [AccessibilityTag] = AccessibilityTag.allCases,
        within css: String? = nil
    ) async throws -> [String] {
        let isThere = try await script("return typeof window.axe !== 'undefined'").flag
        if isThere != true { try await script(AxeCore.source) }
        let names = PageValue.list(tags.map { .text($0.rawValue) })
        let findings = try await script(Self.check, names, css.map { .text($0) } ?? .null).decode(as: [Finding].self)
        return findings.flatMap { finding in
            finding.places.map {
                "\(finding.rule) (\(finding.impact)): \(finding.help): \($0.selector): \($0.summary)"
            }
        }
    }
}

extension Browser {
    /// A control of several parts, such as a date, keeps the focus for so many strokes.
    private static let partsOfOneElement = 12
    private static let mostStops = 200

    private struct Focus: Decodable {
        var before: [String: String]?
        var element: PageValue
        /// It had the focus the last time too.
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
    package func focused() async throws -> FocusStop? { try await readFocus().stop }

    /// Presses Tab from the page's beginning until the focus leaves, and notes where it stops.
    ///
    /// - Returns: the stops, and what was not reached; its `faults` are what a test expects to be empty.
    package func walkFocus() async throws -> FocusWalk {
        // From the end the focus leaves the page, and comes back at its very beginning.
        let end = try await script(FocusScripts.goToEnd)
        try await takeFocus()
        try await keys(.tab)
        try await script("arguments[0].remove(); window.scrollTo(0, 0)", end)
        try await takeFocus()
        var stops: [FocusStop] = []
        var last: Focus?
        var parts = 0
        var outcome = FocusWalk.End.tooLong
        while stops.count <= Self.mostStops {
            try await keys(.tab)
            let (seen, stop) = try await readFocus()
            if let focus = last?.now, let without = seen.before, !seen.isSame {
                stops[stops.count - 1].changes = Self.changes(from: without, to: focus)
            }
            guard let stop else {
                outcome = .left
                break
            }
            parts = seen.isSame ? parts + 1 : 0
            guard parts < Self.partsOfOneElement, seen.isSame || !seen.isKnown else {
                outcome = .trapped(stop.selector)
                break
            }
            if seen.isSame { continue }
            guard stops.count < Self.mostStops else { break }
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
    private func takeFocus() async throws { try await devTools("Page.bringToFront") }

    /// Reads what has the focus, and once more what had it before.
    private func readFocus() async throws -> (seen: Focus, stop: FocusStop?) {
        let seen = try await script(FocusScripts.focus).decode(as: Focus.self)
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
