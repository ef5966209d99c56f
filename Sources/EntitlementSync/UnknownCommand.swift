import ArgumentParser
import Configuring
import Reports

/// Words that stand where a command's name has to stand, and are none.
enum UnknownCommand {
    /// What to say of such a word; `nil` where every name is known: what follows the names is the parser's to judge.
    static func message(for arguments: [String], of root: any ParsableCommand.Type) -> String? {
        var command = root
        var path: [String] = []
        for argument in arguments {
            let subcommands = command.configuration.subcommands
            guard !subcommands.isEmpty, !argument.hasPrefix("-"), argument != "help" else { return nil }
            guard let next = subcommands.first(where: { $0._commandName == argument }) else {
                let name = (path + [PlainText.harmless(argument)]).joined(separator: " ")
                let similar = SimilarNames.nearest(to: argument, among: subcommands.map { $0._commandName })
                let help = (["entitlement-sync"] + path + ["--help"]).joined(separator: " ")
                return
                    "there is no command \(name)\(similar.map { "; did you mean \($0)?" } ?? "")\n  See '\(help)' for all."
            }
            command = next
            path.append(argument)
        }
        return nil
    }
}
