/// The changes as a table, whose rows become cards on a phone.
struct ChangesSection {
    let changes: [RunReport.Change]
    let total: Int64
    /// How many are not in the table.
    let cutOff: Int64
    let showsUsers: Bool

    private static let heads = ["User", "Outcome", "Rule", "Type", "Assets", "State", "Explanation"]

    var markup: Markup {
        """
        <section class="card" aria-labelledby="changes">
        <h2 id="changes">Changes</h2>
        \(changes.isEmpty ? nothing : table)
        </section>
        """
    }

    private var nothing: Markup {
        cutOff == 0
            ? "<p class=\"help\">No changes.</p>"
            : "<p class=\"cut\">The page shows none of \(Figures.count(cutOff, "change")).</p>"
    }

    private var caption: Markup {
        let shown = Int64(changes.count)
        return cutOff == 0
            ? "All \(Figures.count(shown, "change"))."
            : """
            The first \(shown) of \(Figures.count(max(0, total), "change")): \(cutOff) \(cutOff == 1 ? "is" : "are") not on this \
            page.
            """
    }

    private var table: Markup {
        """
        <table class="rows" role="table">
        <caption\(cutOff == 0 ? "" : " class=\"cut\"" as Markup)>\(caption)</caption>
        <thead role="rowgroup"><tr role="row">\
        \(Self.heads.map { "<th role=\"columnheader\" scope=\"col\"\($0 == "Assets" ? " class=\"number\"" : "" as Markup)>\($0)</th>" as Markup })\
        </tr></thead>
        <tbody role="rowgroup">
        \(changes.map(row))\
        </tbody>
        </table>
        """
    }

    private func row(_ change: RunReport.Change) -> Markup {
        let user = showsUsers ? change.userID : UserMask.masked(change.userID)
        let explanation =
            showsUsers ? change.explanation : UserMask.explanation(change.explanation, about: change.userID)
        return """
            <tr role="row">\
            <th role="rowheader" scope="row"><code>\(user)</code></th>\
            <td role="cell" data-label="Outcome">\(ReportPage.plain(change.outcome))</td>\
            <td role="cell" data-label="Rule" class="rule">\(change.rule ?? "–")</td>\
            <td role="cell" data-label="Type">\(type(of: change))</td>\
            <td role="cell" data-label="Assets" class="number">\(change.assets)</td>\
            <td role="cell" data-label="State"><span class="state\(Self.style(change.state))">\(change.state)</span></td>\
            <td role="cell" data-label="Explanation" class="words">\(change.explanation.isEmpty ? "–" : explanation)</td>\
            </tr>

            """
    }

    private func type(of change: RunReport.Change) -> Markup {
        switch (change.typeBefore, change.typeAfter) {
        case (let before?, let after?) where before != after: "\(before) → \(after)"
        case (let before?, _): "\(before)"
        case (nil, let after?): "\(after)"
        case (nil, nil): "–"
        }
    }

    private static func style(_ state: String) -> Markup {
        switch state {
        case "held": " s-held"
        case "applied": " s-applied"
        default: ""
        }
    }
}

/// Ids for eyes that need not know whose they are.
enum UserMask {
    /// The first two signs of an id; of a short one no more than half, so that no id is ever whole.
    static func masked(_ id: String) -> String {
        let scalars = id.unicodeScalars
        return String(scalars.prefix(min(2, scalars.count / 2))) + "…"
    }

    /// An explanation without the id of its user; ids of a few letters are left, for they are in other words.
    static func explanation(_ text: String, about id: String) -> String {
        guard id.unicodeScalars.count >= 4 else { return text }
        return String(text.unicodeScalars.replacing(id.unicodeScalars, with: masked(id).unicodeScalars))
    }
}
