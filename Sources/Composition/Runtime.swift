package import Configuring
import FaultPoints
import Foundation
package import Logging
import Migrations
package import Postgres
import Queue
import Telemetry

/// What every command shares: the configuration and the way to the database.
package struct Runtime {
    package var config: Config
    package var logger: Logger

    /// Reads the configuration and starts logging.
    ///
    /// `level`: for commands whose own output matters more than their log.
    package init(level: Logger.Level? = nil) throws {
        let environment = ProcessInfo.processInfo.environment
        config = try Config.load(environment: environment)
        #if FAULT_POINTS
            do { try FaultPlan.arm(environment) } catch { throw CommandFailure(.configuration, "\(error)") }
        #endif
        LineLogHandler.bootstrap(format: config.log.format, level: level ?? config.log.level)
        logger = Logger(label: "entitlement-sync")
    }

    /// A configuration for ordinary statements, or for a session of its own (LISTEN, migrations).
    package func postgres(
        connections: Int = 4,
        direct: Bool = false,
        url other: Secret? = nil
    ) -> PostgresConfiguration {
        let url = other ?? (direct ? config.database.sessionURL : config.database.url)
        return PostgresConfiguration(
            connectionString: url?.reveal(),
            applicationName: "entitlement-sync",
            connectTimeout: .seconds(5),
            statementTimeout: .seconds(30),
            maxConnections: connections,
            maxWaiters: 4096,
            acquireTimeout: .seconds(10),
            sessionState: direct || !config.database.isPooled,
            sessionSettings: SessionSettings.ordinary
        ).withFaults
    }

    /// Where reports are read; `nil`: where everything else is.
    package func reports() -> PostgresConfiguration? {
        // Without session state each statement would ask for a transaction that writes, which a standby refuses.
        config.database.reportURL.map { postgres(connections: 2, direct: true, url: $0) }
    }

    /// Hears what the database notifies of, on a connection of its own.
    func listener() -> PostgresListener {
        PostgresListener(configuration: postgres(connections: 1, direct: true), logger: logger)
    }

    /// Runs a body with a pool, and closes it.
    package func withPool<Result>(
        _ configuration: PostgresConfiguration? = nil,
        checkingSchema: Bool = true,
        _ body: (PostgresPool) async throws -> Result
    ) async throws -> Result {
        let pool = PostgresPool(configuration: configuration ?? postgres(connections: 2), logger: logger)
        return try await cleaningUp({ await pool.close() }) {
            if checkingSchema { try await SchemaCheck(pool: pool).verify() }
            return try await body(pool)
        }
    }

    /// Runs a body with a pool for what is only read; where that is a standby, says on stderr how far it is behind.
    package func withReportPool<Result>(_ body: (PostgresPool) async throws -> Result) async throws -> Result {
        let configuration = reports()
        return try await withPool(configuration) { pool in
            if configuration != nil, let lag = try await StandbyLag(in: pool) {
                Output.write("entitlement-sync: read from a standby, \(lag.words)\n", to: .standardError)
            }
            return try await body(pool)
        }
    }

    /// The folder with migrations and the host adapter.
    ///
    /// - Throws: `CommandFailure`.
    package func sqlDirectory() throws -> String { try SQLFolder.find(config.sqlDirectory) }
}

/// Runs a body, and cleans up behind it, also where it throws.
package func cleaningUp<Value>(
    _ cleanUp: () async -> Void,
    _ body: () async throws -> Value
) async throws -> Value {
    let result: Result<Value, any Error>
    do { result = .success(try await body()) } catch { result = .failure(error) }
    await cleanUp()
    return try result.get()
}
