package import Postgres

/// Which database this is, by whatever address it is reached.
package struct DatabaseIdentity: Hashable, Sendable {
    /// Drawn when the schema was made.
    private let installation: String
    /// Its oid: a copy on the same server has another.
    private let database: Int64

    /// Reads it.
    ///
    /// - Throws: `MigrationError.unmigrated`; `PostgresError`.
    package init(in pool: PostgresPool) async throws {
        let rows = try await pool.query(
            """
            SELECT i.id::text, d.oid::bigint FROM entitlement_sync.installation AS i, pg_catalog.pg_database AS d
             WHERE d.datname = current_database()
            """
        )
        guard let row = rows.first else {
            throw MigrationError(.unmigrated, "the schema has no id yet; run entitlement-sync migrate")
        }
        (installation, database) = try row.decode(String.self, Int64.self)
    }
}
