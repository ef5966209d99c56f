package import Logging
import Synchronization

/// A bounded set of connections to one server, opened when needed and leased to one task at a time.
///
/// Waiting is first come, first served, and bounded in number and time. A dead connection is replaced before anything
/// is sent on it, so the pool recovers by itself when the server was restarted or another became the primary.
package final class PostgresPool: Sendable {
    /// How long a connection may rest before the server is asked whether it is still there.
    static let restBeforeCheck = Duration.seconds(30)
    /// How long a connection may rest before `run()` closes it.
    static let restBeforeClose = Duration.seconds(600)

    typealias Answer = Result<PoolState.Grant, PostgresError>

    struct Shared {
        var state: PoolState
        var connections: [PoolState.ConnectionID: PostgresConnection] = [:]
        var waiters: [PoolState.WaiterID: OneShot<Answer>] = [:]
        var lastWaiter = 0
        var lastFailure: PostgresError?
        /// When a connection was last found dead: all that rested since before then may be as dead, without a word.
        var lostAt: ContinuousClock.Instant?
        /// Runs `serve` at the end of the backoff.
        var serviceTimer: UInt64?
        /// Resolved when the last lease comes back after `close()`.
        var quiet: [OneShot<Void>] = []
        /// Ends the pause of `run()`.
        var pause: OneShot<Bool>?
    }

    let configuration: PostgresConfiguration
    let logger: Logger
    let shared: Mutex<Shared>

    /// Creates a pool; connects to nothing yet.
    package init(configuration: PostgresConfiguration, logger: Logger) {
        self.configuration = configuration
        self.logger = logger
        let state = PoolState(
            maxConnections: configuration.maxConnections,
            maxWaiters: configuration.maxWaiters,
            backoff: Backoff(base: .milliseconds(50), cap: .seconds(1))
        )
        shared = Mutex(Shared(state: state))
    }

    // MARK: Use

    /// Runs one statement on any connection.
    ///
    /// - Throws: `PostgresError`, see `PostgresConnection.query`; also `.poolExhausted`, `.connectionFailed`,
    ///   `.closed`.
    @discardableResult
    package func query(_ query: PostgresQuery) async throws(PostgresError) -> PostgresRows {
        let (id, connection) = try await lease()
        do throws(PostgresError) {
            let rows = try await connection.query(query)
            await giveBack(id, connection)
            return rows
        } catch {
            await giveBack(id, connection)
            throw error
        }
    }

    /// Sends statements together on any connection, in a transaction of their own.
    ///
    /// - Throws: `PostgresError`, see `PostgresConnection.pipeline`; also as `query` does.
    @discardableResult
    package func pipeline(_ queries: [PostgresQuery]) async throws(PostgresError) -> [PostgresRows] {
        let (id, connection) = try await lease()
        do throws(PostgresError) {
            let rows = try await connection.pipeline(queries)
            await giveBack(id, connection)
            return rows
        } catch {
            await giveBack(id, connection)
            throw error
        }
    }

    /// Lends a connection to a closure, which must not keep it.
    ///
    /// A transaction left open is rolled back.
    @discardableResult
    package func withConnection<Result>(
        _ body: (PostgresConnection) async throws -> Result
    ) async throws -> Result {
        let (id, connection) = try await lease()
        do {
            let result = try await body(connection)
            await giveBack(id, connection)
            return result
        } catch {
            await giveBack(id, connection)
            throw error
        }
    }

    /// Runs a closure in a transaction; see `PostgresConnection.withTransaction`.
    @discardableResult
    package func withTransaction<Result>(
        _ isolation: PostgresIsolation = .readCommitted,
        _ body: (PostgresConnection) async throws -> Result
    ) async throws -> Result {
        try await withConnection { connection in try await connection.withTransaction(isolation, body) }
    }

    /// Runs a closure in a transaction, again from its beginning when it lost against others (40001, 40P01) or a schema
    /// change.
    ///
    /// - Parameters:
    ///   - attempts: how often to run it at most; the last failure is thrown.
    ///   - isolation: the transaction's isolation level.
    ///   - body: the work; must have no effects outside the transaction.
    /// - Returns: what the closure returns.
    /// - Throws: see `PostgresConnection.withTransaction`.
    @discardableResult
    package func retrying<Result>(
        _ attempts: Int = 5,
        _ isolation: PostgresIsolation = .readCommitted,
        _ body: (PostgresConnection) async throws -> Result
    ) async throws -> Result {
        let backoff = Backoff(base: .milliseconds(5), cap: .milliseconds(200))
        var failures = 0
        while true {
            do {
                return try await withTransaction(isolation, body)
            } catch let error as PostgresError where error.isTransactionConflict && failures + 1 < attempts {
                failures += 1
                try await Task.sleep(for: backoff.delay(afterFailures: failures, spread: .random(in: 0..<1)))
            }
        }
    }

    /// What the pool holds at the moment.
    package struct Statistics: Sendable, Equatable {
        /// Open connections that are idle.
        package var idle: Int
        /// Connections in use.
        package var leased: Int
        /// Connections being opened.
        package var connecting: Int
        /// Tasks that wait for a connection.
        package var waiting: Int
    }

    /// What the pool holds at the moment.
    package var statistics: Statistics {
        shared.withLock { shared in
            Statistics(
                idle: shared.state.idleCount,
                leased: shared.state.leased.count,
                connecting: shared.state.connecting.count,
                waiting: shared.state.waiters.count
            )
        }
    }
}
