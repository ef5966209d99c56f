package import ArgumentParser

extension CommandConfiguration {
    /// A command whose help ends with examples.
    ///
    /// `json`: what `--output json` prints.
    /// `examples`: what is typed after `entitlement-sync`, a use each; `NAME=value` at the beginning sets a variable for it.
    package init(
        commandName: String? = nil,
        abstract: String,
        discussion: String = "",
        json: String? = nil,
        examples: [String],
        subcommands: [any ParsableCommand.Type] = [],
        defaultSubcommand: (any ParsableCommand.Type)? = nil
    ) {
        let block = "EXAMPLES:\n" + examples.map { "  \(Self.typed($0))" }.joined(separator: "\n")
        let parts = [discussion, json.map { "JSON: \($0)" } ?? "", block].filter { !$0.isEmpty }
        self.init(
            commandName: commandName,
            abstract: abstract,
            discussion: parts.joined(separator: "\n\n"),
            subcommands: subcommands,
            defaultSubcommand: defaultSubcommand
        )
    }

    private static func typed(_ example: String) -> String {
        guard let variable = example.prefixMatch(of: #/[A-Z_]+=\S* /#)?.output else {
            return "entitlement-sync " + example
        }
        return variable + "entitlement-sync " + example.dropFirst(variable.count)
    }
}
