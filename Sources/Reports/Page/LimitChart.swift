/// Demotions that count toward the limit as a bar, with a mark where the limit is.
struct LimitChart {
    var demotions: Int64
    var announced: Int64
    var limit: Int64?

    /// The widest that a bar or a mark may be, so that the mark at the end is not cut in half.
    private static let width = 98.0

    var markup: Markup {
        let most = max(demotions, limit ?? 0)
        let exceeds = limit.map { demotions > $0 } ?? false
        let words =
            limit.map {
                "\(Figures.count(demotions, "demotion")) that \(demotions == 1 ? "counts" : "count"), "
                    + "\(exceeds ? "more than" : "within") the limit of \(Figures.grouped($0))"
            }
            ?? "\(Figures.count(demotions, "demotion")) that \(demotions == 1 ? "counts" : "count"); no limit is known"
        let bar = Figures.decimal(Figures.share(demotions, of: most) / 100 * Self.width, places: 3)
        let rows =
            [("Count toward the limit", demotions), ("Announced by a store, do not count", announced)]
            + (limit.map { [("Limit", $0)] } ?? [])
        return """
            <svg class="limit" width="100%" height="5em" role="img" aria-label="\(words).">
            <text x="0" y="1.1em">Demotions that count</text>\
            <text class="sum" x="100%" y="1.1em" text-anchor="end">\(demotions)</text>
            <rect class="track" x="0" y="1.8em" width="100%" height="1.2em" rx="2"/>\
            <rect class="\(exceeds ? "over" : "p1")" x="0" y="1.8em" width="\(bar)%" height="1.2em" rx="2"/>
            \(limit.map { mark($0, of: most) } ?? "<text class=\"soft\" x=\"0\" y=\"4.7em\">No limit is known.</text>\n")</svg>
            \(NumberTable(title: "Demotions and the limit", heads: ["Demotions", "Number"], rows: rows.map { [$0, Figures.grouped($1)] }).markup)
            """
    }

    private func mark(_ limit: Int64, of most: Int64) -> Markup {
        let place = Figures.share(limit, of: most) / 100 * Self.width
        let x = Figures.decimal(place, places: 3) + "%"
        // The words stand where there is room for them.
        return """
            <line class="edge" x1="\(x)" x2="\(x)" y1="1.5em" y2="3.6em"/>\
            <line class="mark" x1="\(x)" x2="\(x)" y1="1.5em" y2="3.6em"/>\
            <text x="\(x)" y="4.7em" text-anchor="\(place > 50 ? "end" : "start")">Limit \(limit)</text>

            """
    }
}
