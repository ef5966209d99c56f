import Foundation
package import Postgres

/// Brings the schema up to date: numbered files, each once, under a lock; then the host adapter.
package struct Migrator: Sendable {
    /// The schema version this build was written for.
    package static let version: Int32 = 48

    private let pool: PostgresPool
    private let files: [MigrationFile]

    package init(pool: PostgresPool, files: [MigrationFile]) {
        self.pool = pool
        self.files = files
    }

    /// What a run did, or would do.
    package struct Report: Sendable {
        package var applied: [String] = []
        /// The adapter that was installed; `nil`: the team's own stays.
        package var adapter: String?
        package var version: Int32 = 0
        /// Database roles that are missing and that this user may not create.
        package var missingRoles: [String] = []
        /// Who migrates, as SQL writes the name.
        package var user = ""
        /// What the team's own adapter, which stays, gives that the worker can't read.
        package var adapterFaults: [String] = []
    }

    /// Applies what is missing.
    ///
    /// `adapterPath`: the host adapter's file.
    /// `isOwn`: whether the team named it; the sample adapter never takes the place of a team's own.
    /// `dryRun`: only says what would be done; the adapter is tried, and undone.
    /// Throws `MigrationError`; `PostgresError` where the server can't be reached.
    package func run(adapterPath: String, isOwn: Bool = false, dryRun: Bool) async throws -> Report {
        let adapter = try Self.text(of: adapterPath)
        // One connection for everything: the lock belongs to its session.
        return try await pool.withConnection { connection in
            try await lock(connection)
            // The pool is closed after the command, and the lock ends with its session where something fails here.
            var report = try await migrate(connection, dryRun: dryRun)
            let keeps = try await hasOwnAdapter(connection) && !isOwn
            if keeps {
                report.adapterFaults = try await faultsOfKeptAdapter(connection)
            } else {
                report.adapter = adapterPath
                try await install(adapter, isOwn: isOwn, isTried: dryRun, on: connection)
            }
            report.user =
                try await connection.query("SELECT quote_ident(current_user)").first.map {
                    try $0.decode(String.self, at: 0)
                } ?? ""
            report.missingRoles =
                dryRun ? try await rolesThatLack(connection) : try await applyPrivileges(connection)
            try await connection.query("SELECT pg_advisory_unlock(\(Self.lockKey))")
            return report
        }
    }

    private static func text(of path: String) throws -> String {
        guard FileManager.default.fileExists(atPath: path) else {
            throw MigrationError(.adapter, "there is no adapter file \(path)")
        }
        do { return try String(contentsOfFile: path, encoding: .utf8) } catch {
            throw MigrationError(.adapter, "the adapter file \(path) can't be read as UTF-8 text")
        }
    }

    private static let lockKey: Int64 = 0x656e_7469_746c_6500

    private func lock(_ connection: PostgresConnection) async throws {
        for _ in 0..<100 {
            let rows = try await connection.query("SELECT pg_try_advisory_lock(\(Self.lockKey))")
            if try rows.first?.decode(Bool.self, at: 0) == true { return }
            try await Task.sleep(for: .milliseconds(300))
        }
        throw MigrationError(
            .locked,
            "another migration has been running for 30 s; wait for it, or look what it waits for"
        )
    }

    private func migrate(_ connection: PostgresConnection, dryRun: Bool) async throws -> Report {
        var report = Report()
        let known = try await applied(connection)
        try check(known)
        for file in files where known[file.version] == nil {
            report.applied.append(file.name)
            guard !dryRun else { continue }
            try await applyPatiently(file, on: connection)
        }
        report.version = Int32(files.count)
        return report
    }

    /// Refuses edited files, and databases that are ahead of this build.
    private func check(_ known: [Int32: (name: String, checksum: String)]) throws {
        for file in files {
            guard let row = known[file.version], row.checksum != file.checksum else { continue }
            throw MigrationError(
                .edited,
                "migration \(file.name) was edited after it was applied; restore the file and add a new migration instead"
            )
        }
        if let ahead = known.keys.max(), ahead > Int32(files.count) {
            throw MigrationError(
                .incompatible,
                "the database is at version \(ahead), this build knows \(files.count); use the newer build"
            )
        }
    }

    private func applied(_ connection: PostgresConnection) async throws -> [Int32: (name: String, checksum: String)] {
        let rows: PostgresRows?
        do {
            rows = try await connection.withTransaction { connection in
                // Somebody may hold the table; without a limit the wait has no end, as migrations have no timeout.
                try await connection.execute(script: "SET LOCAL lock_timeout = '10s'")
                let exists = try await connection.query(
                    "SELECT to_regclass('entitlement_sync.schema_migration') IS NOT NULL"
                )
                guard try exists.first?.decode(Bool.self, at: 0) == true else { return nil }
                return try await connection.query(
                    "SELECT m.version, m.name, m.checksum FROM entitlement_sync.schema_migration AS m"
                )
            }
        } catch let error as PostgresError where error.code == .serverError {
            throw Self.explained(error, doing: "the list of applied migrations")
        }
        guard let rows else { return [:] }
        var known: [Int32: (name: String, checksum: String)] = [:]
        for row in rows {
            let (version, name, checksum) = try row.decode(Int32.self, String.self, String.self)
            known[version] = (name, checksum)
        }
        return known
    }

    /// How often a migration is begun again while another session holds one of its tables: ten seconds in all.
    private static let tries = 20

    /// Applies a file, and begins again while a table is held.
    ///
    /// A lock that waits makes every request behind it wait, so each try waits for a moment only.
    private func applyPatiently(_ file: MigrationFile, on connection: PostgresConnection) async throws {
        for _ in 1..<Self.tries {
            do {
                return try await apply(file, on: connection)
            } catch let error as MigrationError where error.code == .locked {
                try await Task.sleep(for: .milliseconds(400))
            }
        }
        try await apply(file, on: connection)
    }

    private func apply(_ file: MigrationFile, on connection: PostgresConnection) async throws {
        do {
            try await connection.withTransaction { connection in
                try await connection.execute(
                    script: """
                        CREATE SCHEMA IF NOT EXISTS entitlement_sync;
                        SET LOCAL search_path = entitlement_sync, public;
                        SET LOCAL lock_timeout = '100ms';
                        SET LOCAL statement_timeout = 0;
                        SET LOCAL client_min_messages = warning;
                        CREATE TABLE IF NOT EXISTS schema_migration (
                            version         integer     PRIMARY KEY,
                            name            text        NOT NULL,
                            checksum        text        NOT NULL,
                            compatible_from integer     NOT NULL,
                            applied_at      timestamptz NOT NULL DEFAULT now()
                        );
                        """
                )
                try await connection.execute(script: file.sql)
                try await connection.query(
                    """
                    INSERT INTO entitlement_sync.schema_migration (version, name, checksum, compatible_from)
                    VALUES (\(file.version), \(file.name), \(file.checksum), \(file.compatibleFrom))
                    """
                )
            }
        } catch let error as PostgresError where error.code == .serverError {
            throw Self.explained(error, doing: "migration \(file.name)")
        }
    }

    /// What the schema of an adapter says that a team named.
    private static let ownMark = "installed with --adapter"

    private func hasOwnAdapter(_ connection: PostgresConnection) async throws -> Bool {
        let rows = try await connection.query(
            """
            SELECT EXISTS (SELECT 1 FROM pg_catalog.pg_namespace AS n
                            WHERE n.nspname = 'entitlement_sync_host'
                              AND obj_description(n.oid, 'pg_namespace') = \(Self.ownMark))
            """
        )
        return try rows.first?.decode(Bool.self, at: 0) ?? false
    }

    /// Looks for an id that the host's tables may not be able to hold: anybody can sign in with one.
    private static let oddID = "SELECT * FROM entitlement_sync_host.read_users(ARRAY['no id of anybody'])"
    /// Calls every function on nobody: what does not fit the host's tables shows now and not at the first job.
    private static let probe = """
        DO $$
        BEGIN
            PERFORM u.id, u.type, u.status, u.created_at FROM entitlement_sync_host.read_users('{}') AS u;
            PERFORM * FROM entitlement_sync_host.lock_users('{}');
            PERFORM * FROM entitlement_sync_host.set_type('{}', 'free');
            PERFORM * FROM entitlement_sync_host.freeze_assets('{}', '{}', 1);
            PERFORM * FROM entitlement_sync_host.unfreeze_assets('{}', '{}', 1);
            PERFORM * FROM entitlement_sync_host.next_asset('', NULL, true);
            PERFORM * FROM entitlement_sync_host.count_assets('{}');
            PERFORM * FROM entitlement_sync_host.page_users(NULL, 0);
            PERFORM * FROM entitlement_sync_host.count_subscribers();
            IF to_regprocedure('entitlement_sync_host.unexplained_assets(integer)') IS NOT NULL THEN
                PERFORM a.user_id || a.asset_id FROM entitlement_sync_host.unexplained_assets(0) AS a(user_id, asset_id);
            END IF;
        END
        $$
        """

    /// Ends a transaction in which an adapter was only tried.
    private struct Tried: Error {}

    private func install(
        _ adapter: String,
        isOwn: Bool,
        isTried: Bool,
        on connection: PostgresConnection
    ) async throws {
        do {
            try await connection.withTransaction { connection in
                try await connection.execute(
                    script: "SET LOCAL lock_timeout = '10s'; SET LOCAL client_min_messages = warning;"
                )
                // An adapter may leave this one out, and is not to be given another's.
                try await connection.execute(
                    script: "DROP FUNCTION IF EXISTS entitlement_sync_host.unexplained_assets(integer)"
                )
                try await connection.execute(script: adapter)
                // What one adapter has stepped over another might not come back to; whoever is at a batch is waited for.
                if !isTried {
                    try await connection.execute(
                        script: "UPDATE entitlement_sync.asset_run SET cursor = NULL WHERE cursor IS NOT NULL"
                    )
                }
                try await connection.execute(script: Self.probe)
                do {
                    try await connection.execute(script: Self.oddID)
                } catch let error as PostgresError where error.sqlState?.hasPrefix("22") == true {
                    throw MigrationError(
                        .adapter,
                        "the host adapter fails at an id that no user has (\(error.message)); let read_users leave out ids"
                            + " that your tables cannot hold"
                    )
                }
                let faults = try await AdapterCheck.faults(on: connection)
                guard faults.isEmpty else {
                    throw MigrationError(
                        .adapter,
                        "the host adapter returns unreadable values: \(faults.joined(separator: "; ")); correct its functions"
                    )
                }
                guard !isTried else { throw Tried() }
                let mark = isOwn ? Self.ownMark : "the sample adapter"
                try await connection.execute(script: "COMMENT ON SCHEMA entitlement_sync_host IS '\(mark)'")
                try await connection.execute(
                    script: """
                        REVOKE ALL ON SCHEMA entitlement_sync_host FROM PUBLIC;
                        REVOKE ALL ON ALL FUNCTIONS IN SCHEMA entitlement_sync_host FROM PUBLIC;
                        """
                )
            }
        } catch is Tried {
            return
        } catch let error as PostgresError where error.code == .serverError {
            if ["42P01", "42703", "42883", "42804"].contains(error.sqlState) {
                throw MigrationError(
                    .adapter,
                    "the host adapter does not fit the host's tables (\(error.message)); load the host's schema first, or"
                        + " pass --adapter FILE with functions for your tables"
                )
            }
            if error.sqlState == "42501" || error.sqlState == "55P03" {
                throw Self.explained(error, doing: "the host adapter")
            }
            throw MigrationError(.adapter, "the host adapter's SQL fails: \(error.message); mend the file")
        }
    }

    private func faultsOfKeptAdapter(_ connection: PostgresConnection) async throws -> [String] {
        do {
            return try await connection.withTransaction { try await AdapterCheck.faults(on: $0) }
        } catch let error as PostgresError where error.code == .serverError {
            return ["its SQL fails: \(error.message)"]
        }
    }

    /// Grants what roles lack; those that came after the schema get here what it once gave.
    ///
    /// Returns the roles that are missing and can't be created.
    private func applyPrivileges(_ connection: PostgresConnection) async throws -> [String] {
        do {
            return try await connection.withTransaction { connection in
                try await connection.execute(script: "SET LOCAL lock_timeout = '10s'")
                return try await connection.query("SELECT entitlement_sync.apply_privileges()").first?
                    .decode([String].self, at: 0) ?? []
            }
        } catch let error as PostgresError where error.code == .serverError {
            throw Self.explained(error, doing: "the roles' privileges")
        }
    }

    private func rolesThatLack(_ connection: PostgresConnection) async throws -> [String] {
        let knows = try await connection.query("SELECT to_regclass('entitlement_sync.role_privilege') IS NOT NULL")
        guard try knows.first?.decode(Bool.self, at: 0) == true else { return [] }
        return try await connection.query(
            """
            SELECT DISTINCT p.role FROM entitlement_sync.role_privilege AS p
             WHERE NOT EXISTS (SELECT 1 FROM pg_catalog.pg_roles AS r WHERE r.rolname = p.role) ORDER BY 1
            """
        ).map { try $0.decode(String.self, at: 0) }
    }

    private static func explained(_ error: PostgresError, doing what: String) -> MigrationError {
        switch error.sqlState {
        case "55P03":
            MigrationError(
                .locked,
                "\(what): a table has been locked by another session for 10 s (pg_locks shows which, pg_stat_activity by"
                    + " whom); end that session or wait for it, then run entitlement-sync migrate again"
            )
        case "42501":
            MigrationError(.refused, "\(what): \(error.message); migrate as the database's owner")
        default:
            MigrationError(.refused, "\(what): \(error.message)")
        }
    }
}

/// Whether a process of this build may work on the schema at hand.
package struct SchemaCheck: Sendable {
    private let pool: PostgresPool

    package init(pool: PostgresPool) { self.pool = pool }

    /// - Returns: the database's version.
    /// - Throws: `MigrationError` `.unmigrated` or `.incompatible`, with what to do.
    @discardableResult
    package func verify() async throws -> Int32 {
        let (version, compatibleFrom) = try await versions()
        guard let version, version >= Migrator.version else {
            throw MigrationError(
                .unmigrated,
                "the schema is at version \(version ?? 0), this build needs \(Migrator.version); run entitlement-sync migrate"
            )
        }
        if let compatibleFrom, compatibleFrom > Migrator.version {
            throw MigrationError(
                .incompatible,
                "the schema is at version \(version) and no longer works with this build; use the newer build"
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
        return version
    }

    /// The schema's version, and the oldest one whose builds it still serves.
    private func versions() async throws -> (Int32?, Int32?) {
        do {
            let rows = try await pool.query(
                "SELECT max(m.version), max(m.compatible_from) FROM entitlement_sync.schema_migration AS m"
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
