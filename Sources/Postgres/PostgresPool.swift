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

    /// `PostgresConnection.query` on any connection; throws also `.poolExhausted`, `.connectionFailed` and `.closed`.
    @discardableResult
    package func query(_ query: PostgresQuery) async throws(PostgresError) -> PostgresRows {
        try await leased { connection throws(PostgresError) in try await connection.query(query) }.get()
    }

    /// Sends statements together on any connection, in a transaction of their own; see `PostgresConnection.pipeline`.
    @discardableResult
    package func pipeline(_ queries: [PostgresQuery]) async throws(PostgresError) -> [PostgresRows] {
        try await leased { connection throws(PostgresError) in try await connection.pipeline(queries) }.get()
    }

    /// Runs a closure with a connection, which it must not keep; a transaction left open is rolled back.
    @discardableResult
    package func withConnection<Result>(
        _ body: (PostgresConnection) async throws -> Result
    ) async throws -> Result {
        try await leased(body).get()
    }

    private func leased<Value, Failure>(
        _ body: (PostgresConnection) async throws(Failure) -> Value
    ) async throws(PostgresError) -> Result<Value, Failure> {
        let (id, connection) = try await lease()
        let result: Result<Value, Failure>
        do throws(Failure) {
            result = .success(try await body(connection))
        } catch {
            result = .failure(error)
        }
        await giveBack(id, connection)
        return result
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
    /// change, `attempts` times at most; it must have no effects outside the transaction.
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

    /// How many connections are idle, leased and being opened, and how many tasks wait for one.
    package var statistics: (idle: Int, leased: Int, connecting: Int, waiting: Int) {
        shared.withLock {
            ($0.state.idleCount, $0.state.leased.count, $0.state.connecting.count, $0.state.waiters.count)
        }
    }

    // MARK: Maintenance and end

    /// Closes idle connections until the pool is closed or the task is cancelled, and the pool then; optional.
    package func run() async {
        var goesOn = true
        while goesOn {
            let pause = OneShot<Bool>()
            let isClosed = shared.withLock { shared in
                shared.pause = pause
                return shared.state.isClosed
            }
            if isClosed { break }
            let timer = Reactor.shared.schedule(at: .now + Self.restBeforeCheck) { pause.resolve(true) }
            goesOn = await withTaskCancellationHandler {
                await pause.wait()
            } onCancel: {
                pause.resolve(false)
            }
            Reactor.shared.cancel(timer)
            if goesOn { await closeIdle(since: .now - Self.restBeforeClose) }
        }
        await close()
    }

    /// Closes the pool: waiting tasks get `.closed`, connections in use end within the grace period, then by force.
    package func close(grace: Duration = .seconds(5)) async {
        let quiet = OneShot<Void>()
        let (waiters, idle, pause) = shared.withLock { shared in
            let (waiterIDs, idleIDs) = shared.state.close()
            if shared.state.isQuiet { quiet.resolve(()) } else { shared.quiet.append(quiet) }
            return (
                waiterIDs.compactMap { shared.waiters.removeValue(forKey: $0) },
                idleIDs.compactMap { shared.connections.removeValue(forKey: $0) },
                shared.pause
            )
        }
        pause?.resolve(false)
        for waiter in waiters { waiter.resolve(.failure(PostgresError(.closed, message: "the pool is closed"))) }
        for connection in idle { await connection.close() }

        let timer = Reactor.shared.schedule(at: .now + grace) { quiet.resolve(()) }
        await quiet.wait()
        Reactor.shared.cancel(timer)
        for connection in shared.withLock({ Array($0.connections.values) }) { await connection.close() }
    }

    /// Opens at most so many connections from now on; tasks wait for those that are open.
    package func limit(to connections: Int) {
        shared.withLock { $0.state.maxConnections = min(connections, configuration.maxConnections) }
        serve()
    }

    /// Closes the connections that nothing has used since.
    package func closeIdle(since moment: ContinuousClock.Instant) async {
        let old = shared.withLock { shared in
            shared.state.removeIdle(since: moment).compactMap { shared.connections.removeValue(forKey: $0) }
        }
        for connection in old { await connection.close() }
    }
}
