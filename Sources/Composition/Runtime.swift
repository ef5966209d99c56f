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
    /// The app that is worked for, where there are several.
    package private(set) var app: String?
    /// The variables that `config` was read from.
    let environment: [String: String]

    /// Reads the configuration and starts logging.
    ///
    /// `level`: for commands whose own output matters more than their log.
    package init(level: Logger.Level? = nil) throws {
        let process = ProcessInfo.processInfo.environment
        let chosen = try AppChoice(in: process).app
        self.app = chosen?.name
        environment = chosen?.environment ?? process
        config = try chosen?.config() ?? Config.load(environment: process)
        logger = try Self.log(process, config.log, level: level)
        if let app = self.app { logger[metadataKey: "app"] = "\(app)" }
    }

    /// One of several apps in this process.
    init(_ app: AppsFolder.App, _ config: Config, logger: Logger) {
        (self.app, self.config, environment) = (app.name, config, app.environment)
        self.logger = logger
        self.logger[metadataKey: "app"] = "\(app.name)"
    }

    /// The app that a command names, or else all of them; starts logging.
    ///
    /// - Returns: with the faults of those whose files are broken.
    /// - Throws: `ConfigurationFaults` where it is not known which apps there are, or the only one is broken.
    package static func ofApps(
        level: Logger.Level
    ) throws -> (runtimes: [Runtime], broken: [(name: String, faults: ConfigurationFaults)]) {
        let environment = ProcessInfo.processInfo.environment
        guard AppChoice.givenName(in: environment) == nil, let path = AppsFolder.path(in: environment) else {
            return ([try Runtime(level: level)], [])
        }
        let folder = try AppsFolder.read(path, environment: environment)
        let process = try Runtime(ofProcess: environment, level: level)
        var runtimes: [Runtime] = []
        var broken: [(name: String, faults: ConfigurationFaults)] = []
        for app in folder.apps {
            do throws(ConfigurationFaults) {
                runtimes.append(Runtime(app, try app.config(), logger: process.logger))
            } catch {
                broken.append((app.name, error))
            }
        }
        return (runtimes, broken)
    }

    /// What a process is set up with that serves several apps; starts logging.
    init(ofProcess environment: [String: String], level: Logger.Level? = nil) throws {
        self.environment = environment
        config = try Config.load(environment: environment)
        logger = try Self.log(environment, config.log, level: level)
        logger[metadataKey: "app"] = ""
    }

    private static func log(_ environment: [String: String], _ log: Config.Log, level: Logger.Level? = nil) throws
        -> Logger
    {
        #if FAULT_POINTS
            do { try FaultPlan.arm(environment) } catch { throw CommandFailure(.configuration, "\(error)") }
        #endif
        LineLogHandler.bootstrap(format: log.format, level: level ?? log.level)
        return Logger(label: "entitlement-sync")
    }

    /// The time in which a request of the API or the admin address arrives and its answer is taken.
    package var requestTime: Duration { OwnValue.request.time(else: .seconds(30)) }

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
