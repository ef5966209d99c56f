import FoundationEssentials

/// Users who were read as a line over time, with the number to read as another.
struct ProgressChart {
    var points: [RunReport.Point]
    var total: Int64?

    private static let width = 1000.0
    private static let height = 300.0

    /// The line from the left and the top, in the drawing's units: zero users at the bottom; one point in the middle.
    private func places() -> [(x: Double, y: Double)] {
        let sorted = points.sorted { $0.at < $1.at }
        guard let first = sorted.first?.at, let last = sorted.last?.at else { return [] }
        let span = last.timeIntervalSince(first)
        return sorted.map { point in
            let x = span > 0 ? point.at.timeIntervalSince(first) / span * Self.width : Self.width / 2
            return (x, Self.height - Figures.share(point.users, of: most) / 100 * Self.height)
        }
    }

    private var most: Int64 { max(points.map(\.users).max() ?? 0, total ?? 0, 1) }

    var markup: Markup {
        let sorted = points.sorted { $0.at < $1.at }
        guard let first = sorted.first, let last = sorted.last else { return "" }
        let ofTotal = total.map { " of \(Figures.grouped($0))" } ?? ""
        let words =
            "Users read over time: \(Figures.grouped(first.users)) at \(Timestamp.shown(first.at)), "
            + "\(Figures.grouped(last.users))\(ofTotal) at \(Timestamp.shown(last.at))"
        return """
            <svg class="progress" width="100%" height="14em" role="img" aria-label="\(words).">
            <text x="0" y="1.1em">\(total == most ? "To read: " : "")\(Figures.count(most, "user"))</text>
            <svg x="0" y="1.7em" width="100%" height="10em" viewBox="-10 -10 1020 320" preserveAspectRatio="none">
            <path class="axis" d="M0 300H1000"/>
            \(total.map { [goal($0)] } ?? [])<path class="\(points.count == 1 ? "dot" : "line")" d="\(line)"/>
            </svg>
            \(points.count == 1
                ? [time(first.at, "50%", "middle")] : [time(first.at, "0", "start"), time(last.at, "100%", "end")])
            </svg>
            \(NumberTable(title: "Users read over time", heads: ["At", "Users"], rows: sorted.map { [Timestamp.shown($0.at), Figures.grouped($0.users)] }).markup)
            """
    }

    private var line: String {
        let places = places()
        guard places.count > 1 else { return places.map { "M\(unit($0.x)) \(unit($0.y))h0.01" }.joined() }
        return places.enumerated().map { "\($0 == 0 ? "M" : "L")\(unit($1.x)) \(unit($1.y))" }.joined()
    }

    private func goal(_ total: Int64) -> Markup {
        let y = unit(Self.height - Figures.share(total, of: most) / 100 * Self.height)
        return "<path class=\"goal\" d=\"M0 \(y)H1000\"/>\n"
    }

    private func time(_ date: Date, _ x: String, _ anchor: String) -> Markup {
        "<text class=\"soft\" x=\"\(x)\" y=\"13.1em\" text-anchor=\"\(anchor)\">\(Self.short(date))</text>"
    }

    /// Without grouping: paths take no commas within numbers.
    private func unit(_ number: Double) -> String {
        Figures.decimal(number, places: 2).filter { $0 != "," }
    }

    /// `11-23 05:33`: what has room twice beside each other on a phone.
    private static func short(_ date: Date) -> String { String(Timestamp.shown(date).dropFirst(5).dropLast(7)) }
}
