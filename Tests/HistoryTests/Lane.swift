import Entitlements
import Logging
import Postgres
import TestSupport

/// A database on which one history after the other takes place, with the pools of two workers and a host.
struct Lane: HostDatabase {
    let database: TestDatabase
    let pools: [Side: PostgresPool]
    let host: PostgresPool

    var pool: PostgresPool { host }

    /// Opens a database of its own and closes it at the end.
    static func with<Value: Sendable>(
        _ template: DatabaseTemplate = .histories,
        _ body: @Sendable (Lane) async throws -> Value
    ) async throws -> Value {
        let server = try await PrivatePostgres.shared
        let database = try await server.database(template)
        let lane = Lane(
            database: database,
            pools: [.a: pool(database, worker: true), .b: pool(database, worker: true)],
            host: pool(database, worker: false)
        )
        return try await run {
            try await body(lane)
        } finally: {
            for pool in lane.pools.values { await pool.close() }
            await lane.host.close()
            try await server.drop(database)
        }
    }

    private static func pool(_ database: TestDatabase, worker: Bool) -> PostgresPool {
        var settings = ["lock_timeout": "2s"]
        // The witnesses look at workers alone.
        if !worker { settings["hist.host"] = "on" }
        return PostgresPool(
            configuration: PostgresConfiguration(
                connectionString: database.url,
                maxConnections: 2,
                sessionSettings: settings
            ),
            logger: .quiet
        )
    }

    /// The pool of a worker.
    func pool(_ side: Side) -> PostgresPool { pools[side] ?? host }

    /// Forgets the history before.
    func reset() async throws {
        try await host.withConnection { connection in
            try await connection.execute(
                // Past the triggers, of which one keeps decisions for ever.
                script: "BEGIN; SET LOCAL session_replication_role = replica; SELECT hist.reset(); COMMIT"
            )
        }
    }

    /// The state as sorted lines; lines that begin with `broken` are broken laws.
    func lines() async throws -> [String] {
        try await host.query("SELECT s.line FROM hist.state AS s").map { plain(try $0.decode(String.self)) }
    }
}

extension DatabaseTemplate {
    /// The sample host, every migration, and witnesses that record who changed what in which transaction.
    static let histories = DatabaseTemplate(name: "histories") { url in try await Lane.fill(url) }
}

extension Lane {
    /// Fills an empty database with the sample host, every migration, the witnesses, and further ones.
    static func fill(_ url: String, _ witnesses: String...) async throws {
        try await DatabaseTemplate.migrated.prepare(url)
        for witness in [Witness.schema] + witnesses { try await DatabaseTemplate.fill(url, witness) }
    }
}
