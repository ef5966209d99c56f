package import Postgres

/// Whether a process of this build may work on the schema at hand.
package struct SchemaCheck: Sendable {
    private let pool: PostgresPool

    package init(pool: PostgresPool) { self.pool = pool }

    /// - Returns: the database's release.
    /// - Throws: `MigrationError` `.unmigrated` or `.incompatible`, with what to do.
    @discardableResult
    package func verify() async throws -> Int32 {
        let (release, compatibleFrom) = try await releases()
        guard let release, release >= Migrator.release else {
            throw MigrationError(
                .unmigrated,
                "the schema is at release \(release ?? 0), this build needs \(Migrator.release); run entitlement-sync migrate"
            )
        }
        if let compatibleFrom, compatibleFrom > Migrator.release {
            throw MigrationError(
                .incompatible,
                "the schema is at release \(release) and no longer works with this build; use the newer build"
            )
        }
        // A migration may have stopped before its last step, and without the adapter every job fails.
        let adapter = try await pool.query(
            """
            SELECT EXISTS (SELECT 1 FROM pg_catalog.pg_proc AS p
                             JOIN pg_catalog.pg_namespace AS n ON n.oid = p.pronamespace
                            WHERE n.nspname = 'entitlement_sync_host' AND p.proname = 'lock_users')
            """
        )
        guard try adapter.first?.decode(Bool.self, at: 0) == true else {
            throw MigrationError(
                .unmigrated,
                "the host adapter is not installed; run entitlement-sync migrate, with --adapter FILE for tables of other"
                    + " names"
            )
        }
        return release
    }

    /// The schema's release, and the oldest one whose builds it still serves.
    private func releases() async throws -> (Int32?, Int32?) {
        do {
            let rows = try await pool.query(
                """
                SELECT max(r.release) FILTER (WHERE r.applied_at IS NOT NULL), max(r.compatible_from)
                  FROM entitlement_sync.schema_release AS r
                """
            )
            guard let row = rows.first else { return (nil, nil) }
            return try row.decode(Int32?.self, Int32?.self)
        } catch {
            switch error.sqlState {
            case "42P01", "3F000":
                throw MigrationError(
                    .unmigrated,
                    "the database has no entitlement_sync schema yet; run entitlement-sync migrate"
                )
            case "42501":
                throw MigrationError(
                    .refused,
                    "this database user may not read the entitlement_sync schema; grant it the role entitlement_sync_worker, or"
                        + " entitlement_sync_api for serve; if it has one, run entitlement-sync migrate, which gives roles their"
                        + " privileges"
                )
            default: throw error
            }
        }
    }
}
