/// A line of the browser's console.
package struct ConsoleLine: Sendable, Hashable, Decodable, CustomStringConvertible {
    /// `SEVERE`, `WARNING`, `INFO` or `DEBUG`.
    package var level: String
    /// Where it comes from, such as `javascript`, `security` (a violated policy), `network` (a load that failed) or
    /// `console-api`.
    package var source: String
    /// The address it is about, and what is wrong.
    package var message: String

    package var description: String { "\(source): \(message)" }

    /// Whether something went wrong.
    package var isError: Bool { level == "SEVERE" || source == "security" }
}

extension Browser {
    /// What came to the console since this was last asked, of all pages.
    package func consoleLines() async throws -> [ConsoleLine] {
        try await explained("console") { try await command(.post, "se/log", ["type": "browser"]).decode() }
    }

    /// What went wrong in pages since the console was last asked: exceptions, violations of the content security
    /// policy, loads that failed.
    ///
    /// - Parameter statuses: those of answers that the test expects; the browser counts a page that comes with a status
    ///   from 400 as a load that failed, although it shows it.
    /// - Returns: one line for each; empty when all is well.
    /// - Throws: `BrowserFailure`.
    package func consoleErrors(expecting statuses: Int...) async throws -> [String] {
        try await consoleLines().filter { line in
            line.isError
                && !(line.source == "network" && statuses.contains { line.message.contains("status of \($0) ") })
        }.map(\.description)
    }
}
