/// How to reach the server, and how much of it to use.
package struct PostgresConfiguration: Sendable {
    /// A URI or `keyword=value` list as libpq takes it, multi-host lists included; nil leaves all to libpq's `PG*`
    /// variables.
    package var connectionString: String?
    /// Replaces the connection string's database, where set.
    package var databaseName: String? = nil
    /// What `pg_stat_activity` shows, unless the connection string or `PGAPPNAME` says otherwise.
    package var applicationName: String
    /// The time to reach a usable server, over all hosts; a positive `connect_timeout` in the connection string wins.
    package var connectTimeout: Duration
    /// The longest a statement may run, enforced by the server and after it by this client; nil sets no limit.
    package var statementTimeout: Duration?
    /// The most connections a pool opens; at least 1.
    package var maxConnections: Int
    /// The most tasks that may wait for a connection; the next one fails at once.
    package var maxWaiters: Int
    /// The longest a task waits for a connection.
    package var acquireTimeout: Duration
    /// Whether sessions keep state; false behind a transaction pooler: no named statements, no start-up options.
    package var sessionState: Bool
    /// Server settings by name: sent at start-up, or with each transaction where sessions keep no state.
    package var sessionSettings: [String: String]
    /// Interrupts sessions; `nil`: nothing does.
    package var hook: SessionHook? = nil

    /// The defaults suit a small service.
    package init(
        connectionString: String?,
        applicationName: String = "entitlement-sync",
        connectTimeout: Duration = .seconds(10),
        statementTimeout: Duration? = .seconds(30),
        maxConnections: Int = 10,
        maxWaiters: Int = 1000,
        acquireTimeout: Duration = .seconds(10),
        sessionState: Bool = true,
        sessionSettings: [String: String] = [:]
    ) {
        self.connectionString = connectionString
        self.applicationName = applicationName
        self.connectTimeout = connectTimeout
        self.statementTimeout = statementTimeout
        self.maxConnections = maxConnections
        self.maxWaiters = maxWaiters
        self.acquireTimeout = acquireTimeout
        self.sessionState = sessionState
        self.sessionSettings = sessionSettings
    }
}

extension PostgresConfiguration {
    /// What our statements and decoders rely on: the server's own defaults, over those that a role or database carries.
    ///
    /// `search_path` is not among them: every statement names its schemas, and the host's triggers may need their own.
    static let plain = [
        "array_nulls": "on", "bytea_output": "hex", "DateStyle": "ISO,MDY", "extra_float_digits": "1",
        "IntervalStyle": "postgres", "idle_in_transaction_session_timeout": "0", "lock_timeout": "0",
        "standard_conforming_strings": "on", "statement_timeout": "0", "TimeZone": "UTC",
        "transform_null_equals": "off",
    ]
    /// The same for what holds between transactions, or from a transaction's first statement.
    static let plainSession = [
        "default_transaction_deferrable": "off", "default_transaction_isolation": "read committed",
        "default_transaction_read_only": "off", "idle_session_timeout": "0",
    ]

    /// The settings with the limit on statements.
    var allSettings: [String: String] {
        var settings = sessionSettings
        if let statementTimeout, settings["statement_timeout"] == nil {
            // 0 would switch the limit off.
            settings["statement_timeout"] = String(max(1, statementTimeout.milliseconds))
        }
        return settings
    }

    /// What a statement outside a transaction block needs ahead of it where sessions keep no state.
    ///
    /// As plain SET: `set_config` is a query, before which these have to be set, and SET LOCAL and SET TRANSACTION warn
    /// outside a block. The server forgets them with the transaction all the same.
    var localTransaction: [PostgresQuery] {
        ["SET transaction_isolation = 'read committed'", Self.writable, localSettings]
    }

    /// Takes back a default of read-only transactions; a standby refuses it.
    static let writable: PostgresQuery = "SET transaction_read_only = off"

    /// The statement that makes the settings hold until the transaction ends.
    var localSettings: PostgresQuery {
        let settings = Self.plain.merging(allSettings) { $1 }.sorted { $0.key < $1.key }
        return """
            SELECT set_config(s.name, s.setting, true)
              FROM unnest(\(settings.map(\.key)), \(settings.map(\.value))) AS s(name, setting)
            """
    }
}

extension PostgresConfiguration {
    /// The same server and user, another database.
    package func inDatabase(_ name: String) -> PostgresConfiguration {
        var copy = self
        copy.databaseName = name
        return copy
    }

    /// The server, user and database as libpq's `PG*` variables, for another program; holds the password.
    package func libpqEnvironment() throws(PostgresError) -> [String: String] {
        try ConnectParameters(self).environment()
    }
}

/// The connection string holds a password, so nothing that prints a configuration shows it.
extension PostgresConfiguration: CustomStringConvertible, CustomDebugStringConvertible, CustomReflectable {
    package var description: String {
        "PostgresConfiguration(\(applicationName), at most \(maxConnections) connections)"
    }
    package var debugDescription: String { description }
    package var customMirror: Mirror { Mirror(self, children: []) }
}

extension Duration {
    /// Whole milliseconds, rounded up.
    var milliseconds: Int64 {
        let (seconds, attoseconds) = components
        return seconds * 1000 + (attoseconds + 999_999_999_999_999) / 1_000_000_000_000_000
    }
}
