extension RunReport {
    /// The report for a terminal, without users: what happened, what to do, and the numbers.
    ///
    /// Signs that would steer a terminal are replaced.
    package func summary() -> [String] {
        let headline = headline
        var lines = ["Reconciliation \(isDryRun ? "dry run" : "run") \(run)", "", headline.happened, headline.next]
        if let command = headline.command { lines.append("    " + command) }
        let facts = { (facts: [Fact]) in facts.map { ($0.name, $0.text) } }
        let sorted = { (numbers: [(name: String, number: Int64)]) in
            numbers.map { ($0.name, Figures.grouped($0.number)) }
        }
        lines += table("The run", facts(identity), isNumeric: false)
        lines += table("Numbers", facts(numbers))
        lines += table("Users by outcome", sorted(orderedOutcomes))
        lines += table("Users by rule", sorted(Self.ordered(rules)))
        lines += table("Errors", sorted(Self.ordered(errors)))
        lines += table("Drift", facts(strayed), isNumeric: false)
        let cutOff = cutOff == 0 ? "" : ", of which the report holds \(Figures.grouped(Int64(changes.count)))"
        lines += ["", "\(Figures.count(changesTotal, "change"))\(cutOff)."]
        return lines.map { PlainText.harmless($0) }
    }

    private func table(_ title: String, _ rows: [(String, String)], isNumeric: Bool = true) -> [String] {
        guard !rows.isEmpty else { return [] }
        let rows = rows.map { (PlainText.harmless($0.0), PlainText.harmless($0.1)) }
        let name = rows.map(\.0.count).max() ?? 0
        let value = isNumeric ? rows.map(\.1.count).max() ?? 0 : 0
        return ["", title]
            + rows.map { row in
                let gap = name - row.0.count + 2 + max(0, value - row.1.count)
                return "  " + row.0 + String(repeating: " ", count: gap) + row.1
            }
    }
}

extension RunReport {
    /// The report as one page, XML as well as HTML, which loads nothing: no scripts, its style and its charts in it.
    ///
    /// Unless it shows users, their ids are cut to their first two characters.
    package func html(showsUsers: Bool = true) -> String {
        ReportPage(report: self, showsUsers: showsUsers).markup.text
    }

    /// The head line of a CSV file with the changes, with its end.
    package static let csvHeader = "user_id,outcome,rule,type_before,type_after,assets,state,explanation\r\n"

    /// One change, with its end; rows are made one by one, so that files of any length need no memory.
    package static func csvRow(_ change: Change) -> String {
        CSV.row([
            change.userID, change.outcome, change.rule ?? "", change.typeBefore ?? "", change.typeAfter ?? "",
            String(change.assets), change.state, change.explanation,
        ])
    }
}
