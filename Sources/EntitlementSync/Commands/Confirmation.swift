import ArgumentParser
import Composition
import Foundation

/// The option of commands that can't be undone: a person at a terminal is asked first, a script is not.
struct Confirmation: ParsableArguments {
    @Flag(help: "Don't ask. Without a terminal nothing is asked.") var yes = false

    /// - Throws: `CommandFailure` where the answer is not `yes`.
    func confirm(_ question: String) async throws {
        guard !yes, isatty(STDIN_FILENO) == 1 else { return }
        let answer = await Terminal.ask(question + " Type yes to go on: ", shown: true)
        guard answer?.trimmingCharacters(in: .whitespaces).lowercased() == "yes" else {
            throw CommandFailure(.data, "nothing was done; pass --yes to be asked nothing")
        }
    }
}
