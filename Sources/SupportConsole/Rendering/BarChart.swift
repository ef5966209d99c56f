import Storage
import SupportDesk

/// Bars with their figures written beside them, and the same as a table: drawn on the server, without a style of its own.
struct BarChart {
    private struct Bar {
        var label: String
        var parts: [(name: String, figure: Int64)] = []
        var sum: Int64 { parts.reduce(0) { $0 + $1.figure } }
    }

    private static let height = 26
    private static let left = 190
    private static let width = 460
    private static let all = 720

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
            "height": bars.count * Self.height + 8, "width": Self.all, "hasParts": !parts.isEmpty,
            "legend": parts.enumerated().map { ["name": TicketWords.plain($1), "place": $0 + 1] as [String: Any] },
            "bars": bars.enumerated().map { place, bar in
                Self.drawn(bar, at: 4 + place * Self.height, of: most, parts)
            },
        ]
    }

    private static func drawn(_ bar: Bar, at y: Int, of most: Int64, _ order: [String]) -> [String: Any] {
        var x = left
        var drawn: [[String: Any]] = []
        for part in bar.parts.sorted(by: { $0.name < $1.name }) where part.figure > 0 {
            let width = max(2, Int(Double(part.figure) / Double(most) * Double(Self.width)))
            drawn.append([
                "x": x, "y": y, "width": width, "height": height - 8,
                "place": (order.firstIndex(of: part.name) ?? 0) + 1,
                "words": part.name.isEmpty ? "\(part.figure)" : "\(TicketWords.plain(part.name)): \(part.figure)",
            ])
            x += width
        }
        let figures = bar.parts.sorted { $0.name < $1.name }
        return [
            "label": TicketWords.plain(bar.label), "labelX": left - 10, "labelY": y + 14, "parts": drawn,
            "sum": bar.sum, "sumX": x + 8,
            "figures": figures.map {
                ["name": $0.name.isEmpty ? "Number" : TicketWords.plain($0.name), "figure": $0.figure] as [String: Any]
            },
        ]
    }
}
