import Dispatch
import Postgres
import Synchronization
import TestSupport
import Testing

/// A configuration for the running test's database, with limits that a busy machine keeps.
func configuration(
    _ change: (inout PostgresConfiguration) -> Void = { _ in }
) throws -> PostgresConfiguration {
    let database = try #require(TestDatabase.current)
    var configuration = PostgresConfiguration(
        connectionString: database.url,
        connectTimeout: .seconds(60),
        acquireTimeout: .seconds(60)
    )
    change(&configuration)
    return configuration
}

/// Runs a closure on a connection to the running test's database.
@discardableResult
func withConnection<Result>(
    _ change: (inout PostgresConfiguration) -> Void = { _ in },
    _ body: (PostgresConnection) async throws -> Result
) async throws -> Result {
    let connection = PostgresConnection(configuration: try configuration(change))
    try await connection.open()
    return try await run {
        try await body(connection)
    } finally: {
        await connection.close()
    }
}

/// The error that a closure throws.
func failure(of body: () async throws -> some Any) async throws -> PostgresError {
    do {
        _ = try await body()
    } catch {
        return try #require(error as? PostgresError)
    }
    throw Missing()
}

/// No error was thrown where one should have been.
struct Missing: Error {}

/// Waits until a statement that contains a text runs on the server.
func statementRuns(_ text: String, seenBy observer: PostgresConnection) async throws {
    try await eventually {
        let rows = try await observer.query(
            """
            SELECT pid FROM pg_stat_activity
             WHERE datname = current_database() AND state = 'active' AND strpos(query, \(text)) > 0
               AND pid <> pg_backend_pid()
            """
        )
        return !rows.isEmpty
    }
}

/// What happened, in order, from any task or thread.
final class Recorder<Value: Sendable>: Sendable {
    private let recorded = Mutex<[Value]>([])

    func record(_ value: Value) { recorded.withLock { $0.append(value) } }

    var values: [Value] { recorded.withLock { $0 } }
}

/// Holds a thread, never a task, until it is opened.
final class DispatchGate: Sendable {
    private let semaphore = DispatchSemaphore(value: 0)

    func wait() { semaphore.wait() }

    func open() { semaphore.signal() }
}
