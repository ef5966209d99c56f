package import Entitlements
import Foundation
import Logging
import Migrations
package import Postgres
package import Testing

/// A host's database with our schema beside its tables, as tests of every level read and write it.
package protocol HostDatabase: Sendable {
    /// A pool of the test's own.
    var pool: PostgresPool { get }
}

extension HostDatabase {
    /// Adds a user.
    package func add(_ id: String, _ type: UserType = .free, status: String = "active") async throws {
        try await pool.query("INSERT INTO users (id, type, status) VALUES (\(id), \(type.rawValue), \(status))")
    }

    /// Adds assets that are frozen for the reasons given.
    package func addAssets(_ count: Int, of user: String, frozenFor reasons: [String]) async throws {
        try await pool.query(
            """
            INSERT INTO assets (user_id, frozen_reasons, frozen_at)
            SELECT \(user), \(reasons), CASE WHEN cardinality(\(reasons)) > 0 THEN now() END
              FROM generate_series(1, \(Int32(count)))
            """
        )
    }

    /// The user's type; nil if there is no such user.
    package func type(of user: String) async throws -> String? {
        try await pool.query("SELECT type FROM users WHERE id = \(user)").first?.decode(String.self)
    }

    /// The number of the user's assets that are frozen for exactly these reasons.
    package func assets(of user: String, frozenFor reasons: [String]) async throws -> Int64 {
        try await number("SELECT count(*) FROM assets WHERE user_id = \(user) AND frozen_reasons = \(reasons)")
    }

    /// One number.
    package func number(_ query: PostgresQuery) async throws -> Int64 {
        try #require(try await pool.query(query).first).decode(Int64.self)
    }

    /// Rows of one text each.
    package func texts(_ query: PostgresQuery) async throws -> [String] {
        try await pool.query(query).map { try $0.decode(String.self) }
    }

    /// Runs statements.
    package func execute(_ script: String) async throws {
        try await pool.withConnection { try await $0.execute(script: script) }
    }

    /// Waits until a query's only number is not 0.
    ///
    /// The database signals nothing of what a worker did, so this asks again and again.
    package func waitUntil(
        _ query: PostgresQuery,
        within limit: Duration = .seconds(60),
        comment: Comment = "waited in vain",
        sourceLocation: SourceLocation = #_sourceLocation
    ) async throws {
        try await eventually(comment, within: limit, sourceLocation: sourceLocation) { try await number(query) != 0 }
    }

    /// Waits until a session waits for a lock that another transaction holds.
    package func waitUntilBlocked(_ comment: Comment) async throws {
        try await waitUntil(
            """
            SELECT count(*) FROM pg_catalog.pg_stat_activity AS a
             WHERE a.datname = current_database() AND a.wait_event_type = 'Lock'
            """,
            comment: comment
        )
    }
}

extension DatabaseTemplate {
    /// The sample host tables alone.
    package static let host = DatabaseTemplate(name: "host") { try await fillHost($0) }

    /// The sample host tables, every migration and the sample adapter.
    package static let migrated = DatabaseTemplate(name: "migrated") { try await migrate($0) }

    /// The same, with the product that gives access.
    package static let selling = DatabaseTemplate(name: "selling") { url in
        try await migrate(url)
        try await fill(
            url,
            """
            INSERT INTO entitlement_sync.product (store, product_id, entitlement, grants_access)
            VALUES ('revenuecat', 'premium', 'premium', true)
            """
        )
    }

    /// Runs statements in a database.
    package static func fill(_ url: String, _ script: String) async throws {
        try await withPool(.single(url)) { pool in
            try await pool.withConnection { try await $0.execute(script: script) }
        }
    }

    private static func fillHost(_ url: String) async throws {
        try await fill(url, String(contentsOfFile: Paths.sql + "/host/schema.sql", encoding: .utf8))
    }

    private static func migrate(_ url: String) async throws {
        try await fillHost(url)
        try await withPool(.single(url)) { pool in
            let source = try SchemaSource.load(directory: Paths.sql)
            _ = try await Migrator(pool: pool, source: source).run(
                adapterPath: Paths.sql + "/host/adapter.sql",
                dryRun: false
            )
        }
    }
}

/// The folders of this package that tests read.
package enum Paths {
    package static let folder = URL(fileURLWithPath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
        .deletingLastPathComponent().path

    package static let sql = folder + "/sql"

    /// Runs a closure with a copy of the folder `sql`.
    package static func withSQLCopy<Result>(_ body: (String) async throws -> Result) async throws -> Result {
        let copy = FileManager.default.temporaryDirectory.appendingPathComponent("schema-\(UUID().uuidString)")
        try FileManager.default.copyItem(at: URL(fileURLWithPath: sql), to: copy)
        defer { try? FileManager.default.removeItem(at: copy) }
        return try await body(copy.path)
    }
}

extension PostgresConfiguration {
    /// The way of a test to its database.
    package static func test(at url: String) -> PostgresConfiguration {
        PostgresConfiguration(connectionString: url, maxConnections: 4)
    }

    fileprivate static func single(_ url: String) -> PostgresConfiguration {
        PostgresConfiguration(connectionString: url, maxConnections: 1)
    }
}

/// Runs a closure on a pool of its own.
@discardableResult
package func withPool<Result>(
    _ configuration: PostgresConfiguration,
    _ body: (PostgresPool) async throws -> Result
) async throws -> Result {
    let pool = PostgresPool(configuration: configuration, logger: .quiet)
    return try await run {
        try await body(pool)
    } finally: {
        await pool.close()
    }
}

/// Runs a closure, and then another, however the first one ended; what the first throws comes first.
package func run<Value>(
    _ body: () async throws -> Value,
    finally end: () async throws -> Void
) async throws -> Value {
    let result: Result<Value, any Error>
    do { result = .success(try await body()) } catch { result = .failure(error) }
    do { try await end() } catch { if case .success = result { throw error } }
    return try result.get()
}
