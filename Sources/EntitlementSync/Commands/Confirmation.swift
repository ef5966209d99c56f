import ArgumentParser
import Composition
import Foundation

/// The option of commands that can't be undone: a person at a terminal is asked first, a script is not.
struct Confirmation: ParsableArguments {
    @Flag(help: "Don't ask. A command whose input, output or errors are not a terminal asks nothing.") var yes = false

    /// - Throws: `CommandFailure` where the answer is not `yes`.
    func confirm(_ question: String) async throws {
        let isAtTerminal = [STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO].allSatisfy { isatty($0) == 1 }
        guard !yes, isAtTerminal else { return }
        let answer = await Terminal.ask(question + " Type yes to go on: ", shown: true)
        guard answer?.trimmingCharacters(in: .whitespaces).lowercased() == "yes" else {
            throw CommandFailure(.usage, "nothing was done; answer yes, or pass --yes to be asked nothing")
        }
    }
}
