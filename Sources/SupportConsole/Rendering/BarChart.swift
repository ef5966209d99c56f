import SupportDesk

/// Bars with their figures written beside them, and the same as a table: drawn on the server, without a style of its own.
struct BarChart {
    private struct Bar {
        var label: String
        var parts: [(name: String, figure: Int64)] = []
        var sum: Int64 { parts.reduce(0) { $0 + $1.figure } }
    }

    /// Where things stand, in the drawing's own units: they are about a pixel each.
    private struct Layout {
        /// As the style sheet calls it.
        var name: String
        /// Of one bar with its label.
        var row: Int
        /// Where bars begin, and how wide the longest is.
        var left: Int
        var width: Int
        var all: Int
        /// Labels stand above their bars, for there is no room beside them.
        var isStacked: Bool

        static let broad = Layout(name: "broad", row: 26, left: 190, width: 460, all: 720, isStacked: false)
        /// For a phone: scaled down, the letters of the other one would be too small to read.
        static let slim = Layout(name: "slim", row: 42, left: 0, width: 270, all: 320, isStacked: true)
    }

    private let bars: [Bar]

    var isEmpty: Bool { bars.allSatisfy { $0.sum == 0 } }

    init(_ figures: [DeskUsers.Figure]) {
        var bars: [Bar] = []
        for figure in figures.sorted(by: { ($0.place, $0.bar) < ($1.place, $1.bar) }) {
            if bars.last?.label != figure.bar { bars.append(Bar(label: figure.bar)) }
            bars[bars.count - 1].parts.append((figure.part, figure.figure))
        }
        self.bars = bars
    }

    /// What the template draws.
    var values: [String: Any] {
        let most = max(bars.map(\.sum).max() ?? 1, 1)
        var parts: [String] = []
        for part in bars.flatMap(\.parts) where !part.name.isEmpty && !parts.contains(part.name) {
            parts.append(part.name)
        }
        parts.sort()
        return [
            "hasParts": !parts.isEmpty,
            "legend": parts.enumerated().map { ["name": TicketWords.plain($1), "place": $0 + 1] as [String: Any] },
            "drawings": [Layout.broad, .slim].map { layout in
                [
                    "layout": layout.name, "height": bars.count * layout.row + 8, "width": layout.all,
                    "bars": bars.enumerated().map { place, bar in
                        Self.drawn(bar, at: 4 + place * layout.row, of: most, parts, layout)
                    },
                ] as [String: Any]
            },
            "rows": bars.map { bar in
                [
                    "label": TicketWords.plain(bar.label),
                    "figures": bar.parts.sorted { $0.name < $1.name }.map {
                        ["name": $0.name.isEmpty ? "Number" : TicketWords.plain($0.name), "figure": $0.figure]
                            as [String: Any]
                    },
                ] as [String: Any]
            },
        ]
    }

    private static func drawn(
        _ bar: Bar,
        at y: Int,
        of most: Int64,
        _ order: [String],
        _ layout: Layout
    ) -> [String: Any] {
        let top = layout.isStacked ? y + 18 : y
        var x = layout.left
        var drawn: [[String: Any]] = []
        for part in bar.parts.sorted(by: { $0.name < $1.name }) where part.figure > 0 {
            let width = max(2, Int(Double(part.figure) / Double(most) * Double(layout.width)))
            drawn.append([
                "x": x, "y": top, "width": width, "height": 18,
                "place": (order.firstIndex(of: part.name) ?? 0) + 1,
                "words": part.name.isEmpty ? "\(part.figure)" : "\(TicketWords.plain(part.name)): \(part.figure)",
            ])
            x += width
        }
        return [
            "label": TicketWords.plain(bar.label), "labelX": layout.isStacked ? 0 : layout.left - 10,
            "labelY": y + (layout.isStacked ? 12 : 14), "anchor": layout.isStacked ? "start" : "end", "parts": drawn,
            "sum": bar.sum, "sumX": x == 0 ? 0 : x + 8, "sumY": top + 14,
        ]
    }
}
