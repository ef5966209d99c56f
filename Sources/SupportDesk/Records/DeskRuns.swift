package import Postgres
package import Runs

/// Runs as the console shows them: how far they are, and never which users they are about.
package struct DeskRuns: Sendable {
    private let runs: RunRecords
    private let console: DeskConsole
    private let operators: Operators
    private let session: [UInt8]

    /// - Parameters:
    ///   - pool: the database.
    ///   - session: the hash of what the operator shows.
    package init(pool: PostgresPool, session: [UInt8]) {
        self.session = session
        runs = RunRecords(pool: pool)
        console = DeskConsole(pool: pool, session: session)
        operators = Operators(pool: pool)
    }

    /// The latest, the newest first.
    ///
    /// - Throws: `PostgresError`.
    package func list() async throws -> [RunRecord] {
        try await operators.recorded(session, "view") {
            _ = try await console.me()
            return try await runs.list(limit: 20)
        }
    }
}
