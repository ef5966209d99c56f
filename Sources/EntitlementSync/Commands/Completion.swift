import ArgumentParser
import Composition

struct Completion: ParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "Prints a script with which a shell completes commands and options.",
        examples: [
            "completion bash >/etc/bash_completion.d/entitlement-sync",
            "completion fish >~/.config/fish/completions/entitlement-sync.fish",
        ]
    )

    enum Shell: String, ExpressibleByArgument, CaseIterable {
        case bash, zsh, fish
    }

    @Argument(help: "bash, zsh or fish.") var shell: Shell

    func run() {
        Output.line(EntitlementSync.completionScript(for: CompletionShell(rawValue: shell.rawValue) ?? .bash))
    }
}
