import Foundation
import ArgumentParser
import Composition
import Reports

/// How many differences are listed, and as what.
struct ListOptions: ParsableArguments {
    @Option(help: "Print at most so many differences (200 in a table, else all); the totals count all.")
    var limit: Int?

    @Flag(help: "Print the differences as CSV, and the totals on stderr.")
    var csv = false

    func checkLimit() throws {
        guard limit.map({ $0 >= 0 }) ?? true else { throw ValidationError("--limit: give 0 or more") }
    }
}

/// Something that is listed as a line of JSON, a row of CSV or a row of a table.
protocol PrintedDifference {
    var json: JSONObject { get }
    /// Of a row of CSV.
    var fields: [String] { get }
    /// Of a row of a table.
    var cells: [String] { get }
}

/// Prints differences as they are found, so that a list of any length needs no memory; a table is short.
final class DifferenceList<Difference: PrintedDifference> {
    private static var shownInTable: Int { 200 }

    /// `nil`: CSV.
    private let format: OutputFormat?
    private let limit: Int
    private let head: [String]
    private var rows: [[String]] = []
    private var found = 0

    /// `format` is that of what is not CSV, `head` the table's, and `csv` the head line of the CSV file, printed at once.
    init(_ options: ListOptions, format: OutputFormat, head: [String], csv: String) {
        self.format = options.csv ? nil : format
        self.head = head
        limit = options.limit ?? (self.format == .text ? Self.shownInTable : .max)
        if options.csv { Output.write(csv + "\r\n", to: .standardOutput) }
    }

    func add(_ difference: Difference) throws {
        found += 1
        guard found <= limit else { return }
        switch format {
        case nil: Output.write(CSV.row(difference.fields), to: .standardOutput)
        case .json: try Output.json(difference.json)
        case .text: rows.append(difference.cells)
        }
    }

    /// Prints the table, if it is one, and the totals.
    func end(_ summary: JSONObject, sentences: [String]) throws {
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
