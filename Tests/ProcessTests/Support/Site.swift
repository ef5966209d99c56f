import Foundation
import Glibc
import Logging
import Postgres
import TestSupport
import Testing

/// A host application's database, and the settings its operator wrote.
struct Site: HostDatabase {
    /// On a server of the tests; `nil`: on another one.
    let own: TestDatabase?
    let pool: PostgresPool
    /// The program's environment beside what every process has.
    var settings: [String: String]

    /// Makes a site, lets the test act on it, and takes it down.
    ///
    /// - Parameters:
    ///   - template: what the database begins with.
    ///   - server: where it is; the shared server by default.
    ///   - address: how the database is reached; over loopback by default.
    ///   - store: the base address of the store, where there is one.
    ///   - settings: further settings.
    ///   - body: the test.
    /// - Throws: what the test threw, or why there is no such site.
    static func with(
        _ template: DatabaseTemplate = .selling,
        on server: PrivatePostgres? = nil,
        at address: @Sendable (TestDatabase) -> String = \.tcpURL,
        store: String? = nil,
        settings: [String: String] = [:],
        _ body: @Sendable (Site) async throws -> Void
    ) async throws {
        let home = if let server { server } else { try await PrivatePostgres.shared }
        let database = try await home.database(template)
        try await TestSupport.run {
            try await with(database, at: address(database), store: store, settings: settings, body)
        } finally: {
            // A server of the test's own goes as a whole.
            if server == nil { try await home.drop(database) }
        }
    }

    /// Makes a site of a database that there is, and lets the test act on it.
    ///
    /// - Parameters:
    ///   - database: on a server of the tests; `nil`: on another one.
    ///   - url: how it is reached.
    ///   - store: the base address of the store, where there is one.
    ///   - settings: further settings.
    ///   - body: the test.
    /// - Throws: what the test threw.
    static func with(
        _ database: TestDatabase?,
        at url: String,
        store: String? = nil,
        settings: [String: String] = [:],
        _ body: @Sendable (Site) async throws -> Void
    ) async throws {
        var all = Site.settings(url)
        all["REVENUECAT_BASE_URL"] = store
        all.merge(settings) { $1 }
        let configuration = PostgresConfiguration(
            connectionString: url,
            applicationName: "process-tests",
            maxConnections: 4
        )
        try await withPool(configuration) { [all] pool in
            try await body(Site(own: database, pool: pool, settings: all))
        }
    }

    /// What an operator sets at least.
    static func settings(_ url: String) -> [String: String] {
        var settings = [
            "DATABASE_URL": url, "ENTITLEMENT_SYNC_SQL_DIR": Paths.sql, "REVENUECAT_API_KEY": "sk_process_tests",
            "REVENUECAT_PROJECT_ID": "proj0a1b2c3d", "REVENUECAT_REQUESTS_PER_MINUTE": "0",
            // Worlds of tests lapse in a minute as others do in a year.
            "DEMOTION_BRAKE_MINIMUM": "1000000",
            "JOB_BACKOFF_BASE_MS": "50", "JOB_BACKOFF_CAP_MS": "500", "JOB_MAX_ATTEMPTS": "4",
        ]
        // Making sessions takes longer than what most tests do with them.
        if !Profile.isFull { settings["FAULT_POINT_OWN_VALUES"] = "connections=4" }
        return settings
    }

    /// Starts the program with this site's settings.
    func start(_ arguments: String...) async throws -> Program {
        try await Program([Paths.program] + arguments, environment: Self.environment(settings))
    }

    /// Runs the program to its end.
    func run(_ arguments: String..., within limit: Duration = .seconds(60)) async throws -> Program.Ending {
        try await Self.run(arguments, settings: settings, within: limit)
    }

    /// Runs the program to its end, with settings of one's own.
    static func run(
        _ arguments: [String],
        settings: [String: String],
        within limit: Duration = .seconds(60)
    ) async throws -> Program.Ending {
        try await Program([Paths.program] + arguments, environment: environment(settings)).ending(within: limit)
    }

    /// Nothing of the environment of whoever runs the tests may leak in, save what programs need to start.
    static func environment(_ settings: [String: String]) -> [String: String] {
        let kept = ["PATH", "LD_LIBRARY_PATH", "TMPDIR", "ENTITLEMENT_SYNC_RUN", "TSAN_OPTIONS"]
        var all = ProcessInfo.processInfo.environment.filter { kept.contains($0.key) }
        all["HOME"] = "/nonexistent"
        all.merge(settings) { $1 }
        return all
    }

    /// The database on a server of the tests.
    var database: TestDatabase { get throws { try #require(own) } }

    /// A restore's outcome and message key, as `job_status` shows the user's last one.
    func answer(_ user: String, kind: String = "restore") async throws -> String {
        try await texts(
            """
            SELECT concat_ws(' ', s.state, s.outcome, s.message_key) FROM entitlement_sync.job_status AS s
             WHERE s.user_id = \(user) AND s.kind = \(kind) ORDER BY s.created_at DESC LIMIT 1
            """
        ).first ?? "no job"
    }
}

extension Logger {
    /// Says only what should never happen in a test.
    static var silent: Logger {
        var logger = Logger(label: "process-tests")
        logger.logLevel = .critical
        return logger
    }
}

extension Site {
    /// Everything in the database's tables.
    func content() async throws -> String {
        let schemas = try await texts(
            "SELECT n.nspname FROM pg_namespace AS n WHERE n.nspname !~ '^(pg_|information_schema)' ORDER BY 1"
        )
        var content = ""
        for schema in schemas {
            content += try await texts("SELECT schema_to_xml(\(schema), true, false, '')::text").joined()
        }
        return content
    }
}
