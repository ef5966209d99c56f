package import ArgumentParser
import Configuring
package import Foundation
import Reports

/// How results are printed.
package enum OutputFormat: String, ExpressibleByArgument, CaseIterable {
    case text, json
}

/// The option that every command on the records takes; it stands for the variable, which then is set for this command.
package struct AppOption: ParsableArguments {
    @Option(
        help:
            "Which of several apps (APPS_DIR). Default: ENTITLEMENT_SYNC_APP; else all for processes and doctor, for the rest the only one, or the one called default."
    )
    package var app: String?

    package init() {}

    package func validate() { if let app { setenv(Variable.app.rawValue, app, 1) } }
}

/// The options that every printing command takes.
package struct OutputOptions: ParsableArguments {
    @Option(help: "How results are printed: text or json.")
    package var output = OutputFormat.text
    @OptionGroup package var choice: AppOption

    package init() {}
}

/// Results go to stdout; colour only on a terminal.
package enum Output {
    /// Whether a person reads who wants colour; see https://no-color.org.
    package static let usesColor =
        isatty(STDOUT_FILENO) == 1 && (ProcessInfo.processInfo.environment["NO_COLOR"] ?? "").isEmpty

    package static func line(_ text: String) { write(text + "\n", to: .standardOutput) }

    /// Writes text whose reader may be gone (`| head`), which is no failure of the command: its work is done.
    package static func write(_ text: String, to handle: FileHandle) { try? handle.write(contentsOf: Data(text.utf8)) }

    /// One JSON document on one line, keys in order.
    package static func json(_ value: some Encodable) throws {
        line(PlainText.escaped(try value.jsonLine()))
    }

    /// A table: on a terminal with aligned columns and a bold head, for a program with tabs between the cells.
    package static func table(_ head: [String], _ rows: [[String]]) {
        let rows = rows.map { $0.map { PlainText.harmless($0) } }
        guard isatty(STDOUT_FILENO) == 1 else {
            for row in [head] + rows { line(row.joined(separator: "\t")) }
            return
        }
        var widths = head.map(\.count)
        for row in rows {
            for (index, cell) in row.enumerated() where index < widths.count {
                widths[index] = max(widths[index], cell.count)
            }
        }
        func render(_ cells: [String]) -> String {
            zip(cells, widths).map { cell, width in cell + String(repeating: " ", count: width - cell.count) }
                .joined(separator: "  ").trimmingCharacters(in: .init(charactersIn: " "))
        }
        line(usesColor ? "\u{1b}[1m" + render(head) + "\u{1b}[0m" : render(head))
        for row in rows { line(render(row)) }
    }

    /// A word in a colour that says whether it is well.
    package static func mark(_ isWell: Bool) -> String {
        guard usesColor else { return isWell ? "ok" : "!!" }
        return isWell ? "\u{1b}[32mok\u{1b}[0m" : "\u{1b}[31m!!\u{1b}[0m"
    }

    /// Says on stderr what a program's log is to have of a wait: a terminal has a bar.
    package static func note(_ sentence: String) {
        guard isatty(STDERR_FILENO) == 0 else { return }
        write("entitlement-sync: \(sentence)\n", to: .standardError)
    }

    /// A progress bar on stderr, if that is a terminal.
    package static func progress(_ done: Int, of total: Int) {
        guard isatty(STDERR_FILENO) == 1, total > 1 else { return }
        write(bar(Int64(done), of: Int64(total)) + (done == total ? "\n" : ""), to: .standardError)
    }

    /// A bar at the beginning of the line, with its figures; without a total, it is not counted yet.
    package static func bar(_ done: Int64, of total: Int64?) -> String {
        let filled = total.map { $0 > 0 ? Int(30 * min(max(done, 0), $0) / $0) : 30 } ?? 0
        let bar = String(repeating: "#", count: filled) + String(repeating: "-", count: 30 - filled)
        return "\r[\(bar)] \(done)/\(total.map { "\($0)" } ?? "?")"
    }
}
