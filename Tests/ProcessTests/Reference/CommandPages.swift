import Foundation

/// A command as the program describes itself.
struct CommandHelp: Decodable {
    struct Root: Decodable { var command: CommandHelp }

    struct Argument: Decodable {
        struct Name: Decodable {
            var kind: String
            var name: String

            var typed: String { kind == "short" ? "-\(name)" : "--\(name)" }
        }

        var kind: String
        var shouldDisplay: Bool
        var isOptional: Bool
        var isRepeating: Bool
        var names: [Name]?
        var valueName: String?
        var abstract: String?
        var defaultValue: String?

        var typed: String {
            let value = "<\(valueName ?? "value")>"
            guard let name = names?.last?.typed else { return value + (isRepeating ? " ..." : "") }
            return kind == "flag" ? name : "\(name) \(value)"
        }
    }

    var commandName: String
    var abstract: String?
    var discussion: String?
    var arguments: [Argument]?
    var subcommands: [CommandHelp]?

    var ownArguments: [Argument] {
        (arguments ?? []).filter { argument in
            argument.shouldDisplay && !(argument.names ?? []).contains { ["help", "version"].contains($0.name) }
        }
    }

    /// The program's own description.
    static func read(program: String) throws -> CommandHelp {
        let process = Process()
        process.executableURL = URL(fileURLWithPath: program)
        process.arguments = ["--experimental-dump-help"]
        let pipe = Pipe()
        process.standardOutput = pipe
        try process.run()
        let data = pipe.fileHandleForReading.readDataToEndOfFile()
        process.waitUntilExit()
        return try JSONDecoder().decode(Root.self, from: data).command
    }

    /// Every command with its words, the root first.
    func all(after words: [String] = []) -> [(words: [String], command: CommandHelp)] {
        let own = words + [commandName]
        return [(own, self)] + (subcommands ?? []).filter { $0.commandName != "help" }.flatMap { $0.all(after: own) }
    }

    /// The lines of the help below `EXAMPLES:`.
    var examples: [String] {
        let parts = (discussion ?? "").components(separatedBy: "EXAMPLES:\n")
        guard parts.count == 2 else { return [] }
        return parts[1].split(separator: "\n").map { $0.trimmingCharacters(in: .whitespaces) }
    }

    /// The paragraphs before the examples; those with columns stay as they are typed.
    var explanation: [String] {
        (discussion ?? "").components(separatedBy: "EXAMPLES:\n")[0].components(separatedBy: "\n\n").filter {
            !$0.isEmpty
        }
    }
}

/// Makes reference/commands.md.
func commandsPage(_ root: CommandHelp) -> String {
    var page = Page("Commands", from: "`entitlement-sync --help`")
    page.add(
        """
        Results go to stdout, logs and progress to stderr. `--output json` prints what `--help` of the command calls JSON.
        On a terminal tables have aligned columns; a program reads tabs between the cells. Colors and bold heads appear on a terminal only,
        and not where `NO_COLOR` is set. `doctor` ends with 0 whatever it finds: `--output json` has `ok`.
        `entitlement-sync completion bash`, `zsh` or `fish` prints a script that completes commands and options.

        | exit code | meaning |
        |---|---|
        | 0 | done, whatever the outcome |
        | 64 | the command line is wrong |
        | 65 | the data is wrong, such as an unknown user |
        | 69 | a store or the database can't be reached; the outcome `store_unavailable` |
        | 75 | the time to wait is over; the work goes on |
        | 77 | not allowed |
        | 78 | the configuration is wrong |
        """
    )
    for (words, command) in root.all() where words.count > 1 {
        let name = words.dropFirst().joined(separator: " ")
        page.add(String(repeating: "#", count: min(words.count, 3)) + " " + name)
        page.add(command.abstract ?? "")
        for part in command.explanation { page.add(part.contains("   ") ? indented(part) : part) }
        page.add(indented(command.examples.joined(separator: "\n")))
        let arguments = command.ownArguments
        guard !arguments.isEmpty else { continue }
        page.table(
            ["argument", "meaning", "default"],
            arguments.map { ["`\($0.typed)`", $0.abstract ?? "", $0.defaultValue.map { "`\($0)`" } ?? ""] }
        )
    }
    return page.text
}

private func indented(_ text: String) -> String {
    text.split(separator: "\n", omittingEmptySubsequences: false).map { $0.isEmpty ? "" : "    \($0)" }
        .joined(separator: "\n")
}
