import Composition
import Foundation
import Reports

/// Something that is listed as a line of JSON, a row of CSV or a row of a table.
protocol PrintedDifference: Encodable {
    /// Of a row of CSV.
    var fields: [String] { get }
    /// Of a row of a table.
    var cells: [String] { get }
}

/// Prints differences as they are found, so that a list of any length needs no memory; a table is short.
final class DifferenceList<Difference: PrintedDifference> {
    private static var shownInTable: Int { 200 }

    private let format: OutputFormat?
    private let limit: Int
    private let head: [String]
    private var rows: [[String]] = []
    private var found = 0

    /// - Parameters:
    ///   - format: `nil`: CSV.
    ///   - limit: of the differences that are printed; `nil`: all, or as many as a table has.
    ///   - head: of the table.
    init(format: OutputFormat?, limit: Int?, head: [String]) {
        self.format = format
        self.limit = limit ?? (format == .text ? Self.shownInTable : .max)
        self.head = head
    }

    /// Prints the head line of a CSV file.
    func begin(csv head: String) {
        if format == nil { Output.write(head + "\r\n", to: .standardOutput) }
    }

    func add(_ difference: Difference) throws {
        found += 1
        guard found <= limit else { return }
        switch format {
        case nil: Output.write(CSV.row(difference.fields), to: .standardOutput)
        case .json: try Output.json(difference)
        case .text: rows.append(difference.cells)
        }
    }

    /// Prints the table, if it is one, and the totals.
    func end(_ summary: some Encodable, sentences: [String]) throws {
        switch format {
        // The file holds rows alone.
        case nil: for line in sentences { Output.write(line + "\n", to: .standardError) }
        case .json: try Output.json(["summary": summary])
        case .text:
            if !rows.isEmpty { Output.table(head, rows) }
            if found > rows.count {
                Output.line("and \(found - rows.count) more: --limit, --csv or --output json has them")
            }
            for line in sentences { Output.line(line) }
        }
    }
}
