/// Bars with their names and figures above them, and the same as a table.
///
/// Widths are shares of the drawing's, and letters are as large as elsewhere: it fits a phone and a wide page alike.
struct BarChart {
    struct Bar {
        var name: String
        var number: Int64
        /// As the style sheet calls its colour.
        var colour = "p1"
    }

    /// What it shows, for who cannot see it and for its table.
    var title: String
    /// What the numbers count, as the table's head.
    var unit: String
    var bars: [Bar]

    /// Heights in letters.
    private static let row = 3.0

    var markup: Markup {
        let most = bars.map(\.number).max() ?? 0
        let words = bars.map { "\($0.name) \(Figures.grouped($0.number))" }.joined(separator: ", ")
        return """
            <svg class="bars" width="100%" height="\(Self.em(Double(bars.count) * Self.row - 0.6))" role="img" \
            aria-label="\(title): \(words).">
            \(bars.enumerated().map { Self.drawn($1, at: Double($0) * Self.row, of: most) })\
            </svg>
            \(NumberTable(title: title, heads: ["Name", unit], rows: bars.map { [$0.name, Figures.grouped($0.number)] }).markup)
            """
    }

    private static func drawn(_ bar: Bar, at top: Double, of most: Int64) -> Markup {
        let scalars = bar.name.unicodeScalars
        let name = scalars.count <= 32 ? bar.name : String(scalars.prefix(31)) + "…"
        let share = Figures.decimal(Figures.share(bar.number, of: most), places: 3)
        return """
            <text x="0" y="\(em(top + 1.1))">\(name)</text>\
            <text class="sum" x="100%" y="\(em(top + 1.1))" text-anchor="end">\(bar.number)</text>\
            <rect class="track" x="0" y="\(em(top + 1.5))" width="100%" height="0.8em" rx="2"/>\
            <rect class="\(bar.colour)" x="0" y="\(em(top + 1.5))" width="\(share)%" height="0.8em" rx="2"/>

            """
    }

    /// A height in letters.
    static func em(_ height: Double) -> String { Figures.decimal(height) + "em" }
}

/// The numbers of a chart, for who would rather read them.
struct NumberTable {
    var title: String
    var heads: [String]
    var rows: [[String]]

    var markup: Markup {
        """
        <details><summary>As a table</summary>
        <table><caption>\(title)</caption>
        <thead><tr>\(heads.enumerated().map { cell($1, $0 == 0 ? #" scope="col""# : #" scope="col" class="number""#, "th") })\
        </tr></thead>
        <tbody>
        \(rows.map(row))\
        </tbody></table>
        </details>
        """
    }

    private func row(_ cells: [String]) -> Markup {
        "<tr>\(cells.enumerated().map { $0 == 0 ? cell($1, #" scope="row""#, "th") : cell($1, #" class="number""#, "td") })</tr>\n"
    }

    private func cell(_ text: String, _ attributes: Markup, _ tag: Markup) -> Markup {
        "<\(tag)\(attributes)>\(text)</\(tag)>"
    }
}
