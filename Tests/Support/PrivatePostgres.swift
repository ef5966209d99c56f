import Dispatch
import Logging
import Postgres
import Synchronization

/// A PostgreSQL server for tests alone, on a Unix socket and on loopback, gone when the process is.
///
/// The shared one is started once a process, by the first test that needs it. A test that stops or restarts the server
/// takes one of its own from `start(settings:)`.
package final class PrivatePostgres: Sendable {
    /// Where commands that block run; one after the other, so that the shared server is started once.
    private static let queue = DispatchQueue(label: "test.postgres")
    private static let sharedServer = Task { try await start() }

    private let cluster: PostgresCluster
    /// The databases that others are cloned from, by the template's name.
    private let templates = Mutex<[String: Task<String, any Error>]>([:])
    private let databases = Atomic(0)
    /// Makes and drops databases.
    private let administration: PostgresPool

    private init(_ cluster: PostgresCluster) {
        self.cluster = cluster
        let url = Self.url(of: cluster, database: "postgres")
        administration = PostgresPool(
            configuration: PostgresConfiguration(
                connectionString: url,
                statementTimeout: nil,
                maxConnections: 2,
                acquireTimeout: .seconds(60)
            ),
            logger: Logger(label: "private-postgres") { _ in SwiftLogNoOpLogHandler() }
        )
    }

    /// The server that all tests of this process share.
    package static var shared: PrivatePostgres {
        get async throws {
            Turns.note()
            return try await sharedServer.value
        }
    }

    /// Starts a server of one's own; ends with the process, or with `stop()`.
    ///
    /// `settings` are lines for `postgresql.conf`, values quoted as there; `options` are further ones of `initdb`.
    package static func start(
        settings: [String: String] = [:],
        options: [String] = []
    ) async throws -> PrivatePostgres {
        Turns.note()
        return try await queue.run {
            try PrivatePostgres(started { try PostgresCluster(settings: settings, options: options) })
        }
    }

    /// Starts a standby that streams from this server, under the name `standby`.
    package func standby() async throws -> PrivatePostgres {
        try await blocking { cluster in try PrivatePostgres(Self.started { try PostgresCluster(standbyOf: cluster) }) }
    }

    package func promote() async throws { try await blocking { try $0.promote() } }

    /// Gives a file or directory to the user that servers run as.
    package static func giveToServerUser(_ path: String) throws { try ServerUser.own(path) }

    /// Starts a new server; one whose port another process took meanwhile is made again.
    private static func started(_ make: () throws -> PostgresCluster) throws -> PostgresCluster {
        for _ in 0..<3 {
            let cluster = try make()
            do {
                try cluster.start()
                return cluster
            } catch let failure as ChildProcess.Failure where failure.description.contains("Address already in use") {}
        }
        let cluster = try make()
        try cluster.start()
        return cluster
    }

    package var port: UInt16 { cluster.port }

    package var socketDirectory: String { cluster.directory }

    /// Dumps a schema by `pg_dump`, without data, owners, privileges and the `tables` of these patterns.
    package func dump(_ database: TestDatabase, schema: String, without tables: [String]) async throws -> String {
        let program = cluster.program("pg_dump")
        let file = try Files.makeTemporaryDirectory() + "/dump.sql"
        let arguments =
            [
                program, "--schema-only", "--no-owner", "--no-privileges", "--schema=\(schema)", "--file=\(file)",
                "--dbname=\(url(database: database.name))",
            ] + tables.map { "--exclude-table=\($0)" }
        return try await Self.queue.run {
            try ChildProcess.run(arguments, log: file + ".log")
            return try Files.read(file)
        }
    }

    /// How to reach a database of this server, over the Unix socket or loopback.
    ///
    /// A `user` needs no password, unless it is a member of `password_required` and comes over TCP.
    package func url(database: String, overTCP: Bool = false, user: String = "postgres") -> String {
        Self.url(of: cluster, database: database, overTCP: overTCP, user: user)
    }

    private static func url(
        of cluster: PostgresCluster,
        database: String,
        overTCP: Bool = false,
        user: String = "postgres"
    ) -> String {
        let host = overTCP ? "127.0.0.1" : cluster.directory
        return "host='\(host)' port=\(cluster.port) user='\(user)' dbname='\(database)'"
    }

    package func stop(immediately: Bool = false) async throws {
        try await blocking { try $0.stop(immediately: immediately) }
    }

    package func start() async throws { try await blocking { try $0.start() } }

    package var isRunning: Bool { cluster.isRunning }

    /// Stops, `immediate` as in a crash, and starts the server.
    package func restart(immediate: Bool = false) async throws {
        try await stop(immediately: immediate)
        try await start()
    }

    /// Makes a database, cloned from a template that is prepared on its first use.
    package func database(_ template: DatabaseTemplate = .empty) async throws -> TestDatabase {
        let source = try await templates.withLock { templates in
            let made = templates[template.name] ?? Task { try await make(template) }
            templates[template.name] = made
            return made
        }.value
        let name = "test_\(databases.add(1, ordering: .relaxed).newValue)"
        // By default the server writes each block of the template to its log, which takes longer than most tests do.
        try await administer("CREATE DATABASE \(name) TEMPLATE \(source) STRATEGY FILE_COPY")
        return TestDatabase(name: name, server: self)
    }

    private func make(_ template: DatabaseTemplate) async throws -> String {
        let name = "template_\(template.name)"
        try await administer("CREATE DATABASE \(name)")
        try await template.prepare(url(database: name))
        return name
    }

    /// Drops a database; its connections are closed.
    package func drop(_ database: TestDatabase) async throws {
        try await administer("DROP DATABASE IF EXISTS \(database.name) WITH (FORCE)")
    }

    /// Runs one statement as superuser in the database `postgres`.
    package func administer(_ sql: String) async throws {
        try await administration.withConnection { try await $0.execute(script: sql) }
    }

    private func blocking<Value: Sendable>(
        _ work: @escaping @Sendable (PostgresCluster) throws -> Value
    ) async throws -> Value {
        try await Self.queue.run { [cluster] in try work(cluster) }
    }
}

/// What every database of a kind of tests begins with.
package struct DatabaseTemplate: Sendable {
    /// Names the template among those of the process; letters, digits and underscores.
    package var name: String
    /// Fills the template, given how to reach it; must have closed its connections on return.
    package var prepare: @Sendable (_ url: String) async throws -> Void

    package init(name: String, prepare: @escaping @Sendable (_ url: String) async throws -> Void) {
        self.name = name
        self.prepare = prepare
    }

    package static let empty = DatabaseTemplate(name: "empty") { _ in }
}

/// A database of one test.
package struct TestDatabase: Sendable {
    /// The database of the running test, which the trait `.database` provides.
    @TaskLocal package static var current: TestDatabase?

    package let name: String
    package let server: PrivatePostgres

    package var url: String { server.url(database: name) }
    package var tcpURL: String { server.url(database: name, overTCP: true) }
}
