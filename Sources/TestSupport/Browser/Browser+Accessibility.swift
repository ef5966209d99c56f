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

    /// Checks the page as it is now against axe-core's rules.
    ///
    /// - Parameters:
    ///   - tags: which rules; all by default.
    ///   - css: the part of the page that is checked; the whole page by default.
    /// - Returns: a line for each element that breaks a rule, with rule, impact, help, selector and what to do; empty
    ///   when no rule is broken, which is no proof that people can use the page.
    /// - Throws: `BrowserFailure`, also when axe-core cannot be installed.
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
