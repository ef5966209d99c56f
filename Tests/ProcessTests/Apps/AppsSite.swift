import Foundation
import HTTPTypes
import Postgres
import TestSupport
import Testing

/// Several apps, each with a database and a Firebase project of its own, before one set of simulated stores.
struct AppsSite: Sendable {
    /// The stores, and the first app's database.
    let endpoints: EndpointSite
    /// The folder with the apps' files.
    let folder: String
    /// Each app's records, by its name.
    let records: [String: Site]
    private let settings: [String: String]

    /// What belongs to the process and not to an app.
    private static let ofProcess = [
        "HTTP_PORT", "ADMIN_PORT", "LOG_FORMAT", "ENTITLEMENT_SYNC_SQL_DIR", "FAULT_POINT_OWN_VALUES",
    ]

    /// Makes a site, lets the test act on it, and takes it down.
    ///
    /// - Parameters:
    ///   - names: the apps.
    ///   - scenario: what the stores hold.
    ///   - users: the users of each app, all free.
    ///   - server: where the databases are; the shared server by default.
    ///   - body: the test.
    /// - Throws: what the test threw, or why there is no such site.
    static func with(
        _ names: [String],
        scenario: String = AccessScene.scenario,
        users: [String] = ["ann", "ben"],
        on server: PrivatePostgres? = nil,
        _ body: @escaping @Sendable (AppsSite) async throws -> Void
    ) async throws {
        let home = if let server { server } else { try await PrivatePostgres.shared }
        try await EndpointSite.with(on: home, scenario: scenario, users: users) { endpoints in
            let folder = try Files.makeTemporaryDirectory()
            defer { try? FileManager.default.removeItem(atPath: folder) }
            let settings = endpoints.site.settings
            let site = try await make(names, endpoints, home, folder, settings, users)
            try await TestSupport.run {
                for name in names { try site.write(name) }
                try await body(site)
            } finally: {
                for record in site.records.values { await record.pool.close() }
                if server == nil {
                    for name in names.dropFirst() { try? await home.drop(try site.record(name).database) }
                }
            }
        }
    }

    private static func make(
        _ names: [String],
        _ endpoints: EndpointSite,
        _ home: PrivatePostgres,
        _ folder: String,
        _ settings: [String: String],
        _ users: [String]
    ) async throws -> AppsSite {
        var records: [String: Site] = [:]
        for name in names {
            let database = try await home.database(.selling)
            var own = settings.filter { !ofProcess.contains($0.key) }
            own["DATABASE_URL"] = database.tcpURL
            own["FIREBASE_PROJECT_ID"] = project(of: name)
            own["REVENUECAT_WEBHOOK_AUTHORIZATION"] = "Bearer of \(name)"
            own["REVENUECAT_WEBHOOK_SECRET"] = nil
            let pool = PostgresPool(
                configuration: PostgresConfiguration(connectionString: database.tcpURL, maxConnections: 1),
                logger: .silent
            )
            let site = Site(own: database, pool: pool, settings: own)
            try await site.execute(EndpointSite.products)
            try await site.pool.query("INSERT INTO users (id) SELECT unnest(\(users)::text[])")
            await pool.closeIdle(since: .now)
            records[name] = site
        }
        return AppsSite(endpoints: endpoints, folder: folder, records: records, settings: settings)
    }

    /// The project whose tokens an app takes.
    static func project(of name: String) -> String { "project-\(name)" }

    func record(_ name: String) throws -> Site { try #require(records[name]) }

    // MARK: Files

    /// Writes an app's file, as one step for those who read it.
    func write(_ name: String, as file: String? = nil, changing changes: [String: String?] = [:]) throws {
        var own = try record(name).settings
        for (variable, value) in changes { own[variable] = value }
        let text = own.sorted { $0.key < $1.key }.map { "\($0)=\($1)\n" }.joined()
        try put(text, in: "\(file ?? name).env")
    }

    /// Writes a file into the folder.
    func put(_ text: String, in file: String) throws {
        try Data(text.utf8).write(to: URL(fileURLWithPath: "\(folder)/\(file)"), options: .atomic)
    }

    func remove(_ name: String) throws { try FileManager.default.removeItem(atPath: "\(folder)/\(name).env") }

    // MARK: Processes

    /// What a process for all apps is started with.
    var environment: [String: String] {
        settings.filter { Self.ofProcess.contains($0.key) }.merging(["APPS_DIR": folder]) { $1 }
    }

    /// Starts a process for all apps, and waits until it listens.
    func open(_ role: String = "run", settings: [String: String] = [:]) async throws -> Endpoint {
        let program = try await Program(
            [Paths.program, role],
            environment: Site.environment(environment.merging(settings) { $1 })
        )
        return try await Endpoint(program, over: endpoints.transport)
    }

    /// Runs a command to its end.
    func run(
        _ arguments: String...,
        settings: [String: String] = [:],
        within limit: Duration = .seconds(60)
    ) async throws -> Program.Ending {
        try await Site.run(arguments, settings: environment.merging(settings) { $1 }, within: limit)
    }

    /// A user of an app.
    func caller(_ user: String, of name: String, at endpoint: Endpoint) async throws -> Caller {
        let claims = #"{"sub": "\#(user)", "project": "\#(Self.project(of: name))"}"#
        return Caller(endpoint: endpoint, token: try await endpoints.token(claims))
    }

    /// Waits until a process says of its apps what a test is after.
    func untilReady(_ endpoint: Endpoint, _ condition: @escaping @Sendable (HTTPAnswer) -> Bool) async throws {
        try await endpoint.program.find("the apps' readiness", within: .seconds(30)) {
            let answer = try await endpoint.ask(.get, "/health/ready")
            return condition(answer) ? answer : nil
        }
    }

    /// Waits until all apps are served.
    func untilAllReady(_ endpoint: Endpoint) async throws {
        try await untilReady(endpoint) { $0.status == 200 && !$0.text.contains("app ") }
    }
}
