/// A page of the reference.
struct Page {
    private var parts: [String]

    var text: String { parts.joined(separator: "\n\n") + "\n" }

    init(_ title: String, from source: String) {
        parts = [
            "# \(title)", "<!-- Made from \(source). A test fails where it differs; see .github/CONTRIBUTING.md. -->",
        ]
    }

    mutating func add(_ part: String) { if !part.isEmpty { parts.append(part) } }

    mutating func table(_ head: [String], _ rows: [[String]]) {
        func line(_ cells: [String]) -> String {
            let cells = cells.map { $0.replacing("|", with: "\\|").replacing("\n", with: " ") }
            return "| " + cells.joined(separator: " | ") + " |"
        }
        let rule = "|" + String(repeating: "---|", count: head.count)
        add(([line(head), rule] + rows.map(line)).joined(separator: "\n"))
    }
}
