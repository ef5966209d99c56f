import Foundation
package import Postgres

/// Brings the schema up to date, under a lock: migrations, each once; functions, views, triggers and privileges
/// whenever their text changed; then the host adapter.
package struct Migrator: Sendable {
    /// The release of the schema that this build was written for.
    package static let release: Int32 = 1

    private let pool: PostgresPool
    private let source: SchemaSource

    package init(pool: PostgresPool, source: SchemaSource) {
        self.pool = pool
        self.source = source
    }

    /// What a run did, or would do.
    package struct Report: Sendable {
        package var changes: [SchemaPlan.Change] = []
        /// The adapter that was installed; `nil`: the team's own stays.
        package var adapter: String?
        package var release: Int32 = 0
        /// Database roles that are missing and that this user may not create.
        package var missingRoles: [String] = []
        /// Who migrates, as SQL writes the name.
        package var user = ""
        /// What the team's own adapter, which stays, gives that the worker can't read.
        package var adapterFaults: [String] = []
    }

    /// Applies what is missing; a dry run only says what would be done, tries the adapter and undoes it.
    ///
    /// `isOwn`: whether the team named the adapter; the sample never takes the place of a team's own. Throws
    /// `MigrationError`; `PostgresError` where the server can't be reached.
    package func run(adapterPath: String, isOwn: Bool = false, dryRun: Bool) async throws -> Report {
        let adapter = try HostAdapter(path: adapterPath, isOwn: isOwn)
        // One connection for everything: the lock belongs to its session.
        return try await pool.withConnection { connection in
            try await lock(connection)
            // The pool is closed after the command, and the lock ends with its session where something fails here.
            let plan = try SchemaPlan(source: source, state: try await state(connection))
            var report = Report()
            report.changes = plan.changes
            report.release = source.release
            if !dryRun { report.changes += try await apply(plan, on: connection) }
            let hasOwn = try await HostAdapter.isOwnInstalled(on: connection)
            if hasOwn && !isOwn {
                report.adapterFaults = try await HostAdapter.faultsOfInstalled(on: connection)
            } else {
                report.adapter = adapterPath
                try await adapter.install(isTried: dryRun, on: connection)
            }
            report.user =
                try await connection.query("SELECT quote_ident(current_user)").first?.decode(String.self, at: 0) ?? ""
            report.missingRoles =
                dryRun ? try await rolesThatLack(connection) : try await applyPrivileges(connection)
            try await connection.query("SELECT pg_advisory_unlock(\(Self.lockKey))")
            return report
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
            "another migration has been running for 30 s; wait for it, or see in pg_stat_activity what it waits for"
        )
    }

    // MARK: What the database has

    private func state(_ connection: PostgresConnection) async throws -> SchemaPlan.State {
        do {
            return try await connection.withTransaction { connection in
                // Another session may have locked a table, and migrations have no timeout of their own.
                try await connection.execute(script: "SET LOCAL lock_timeout = '10s'")
                return try await read(connection)
            }
        } catch let error as PostgresError where error.code == .serverError {
            throw MigrationError(error, doing: "the list of applied migrations")
        }
    }

    private func read(_ connection: PostgresConnection) async throws -> SchemaPlan.State {
        var state = SchemaPlan.State()
        guard try await has("schema_migration", connection) else { return state }
        for row in try await connection.query(
            "SELECT m.version, m.name, m.checksum FROM entitlement_sync.schema_migration AS m"
        ) {
            let (version, name, checksum) = try row.decode(Int32.self, String.self, String.self)
            state.migrations[version] = (name, checksum)
        }
        guard try await has("schema_release", connection) else { return state }
        for row in try await connection.query(
            """
            SELECT r.release, CASE WHEN r.applied_at IS NOT NULL THEN r.checksum END
              FROM entitlement_sync.schema_release AS r ORDER BY r.release DESC LIMIT 1
            """
        ) {
            let (number, checksum) = try row.decode(Int32.self, String?.self)
            state.release = (number, checksum)
        }
        for row in try await connection.query(
            "SELECT o.kind, o.name, o.checksum FROM entitlement_sync.schema_object AS o"
        ) {
            let (kind, name, checksum) = try row.decode(String.self, String.self, String.self)
            guard let kind = SchemaObject.Kind(rawValue: kind) else { continue }
            state.applied[SchemaObject.ID(kind: kind, name: name)] = checksum
        }
        for row in try await connection.query("\(rawSQL: Self.present)") {
            let (kind, name) = try row.decode(String.self, String.self)
            guard let kind = SchemaObject.Kind(rawValue: kind) else { continue }
            state.present.insert(SchemaObject.ID(kind: kind, name: name))
        }
        return state
    }

    private func has(_ table: String, _ connection: PostgresConnection) async throws -> Bool {
        try await connection.query("SELECT to_regclass('entitlement_sync.' || \(table)::text) IS NOT NULL")
            .first?.decode(Bool.self, at: 0) ?? false
    }

    private static let present = """
        SELECT 'function', p.proname::text FROM pg_catalog.pg_proc AS p WHERE p.pronamespace = 'entitlement_sync'::regnamespace
         UNION
        SELECT 'view', c.relname::text FROM pg_catalog.pg_class AS c
         WHERE c.relnamespace = 'entitlement_sync'::regnamespace AND c.relkind = 'v'
         UNION
        SELECT 'trigger', c.relname || '.' || t.tgname FROM pg_catalog.pg_trigger AS t JOIN pg_catalog.pg_class AS c ON c.oid = t.tgrelid
         WHERE c.relnamespace = 'entitlement_sync'::regnamespace AND NOT t.tgisinternal
        """

    // MARK: What is applied

    /// Returns what a migration has taken away and had to be put back.
    private func apply(_ plan: SchemaPlan, on connection: PostgresConnection) async throws -> [SchemaPlan.Change] {
        guard !plan.changes.isEmpty else { return [] }
        for file in plan.migrations { try await patiently { try await apply(file, on: connection) } }
        // A migration may have dropped triggers and views together with their table.
        let rest = plan.migrations.isEmpty ? plan : try SchemaPlan(source: source, state: try await state(connection))
        try await patiently { try await ObjectInstaller(connection: connection).apply(rest, of: source) }
        return rest.changes.filter { !plan.changes.contains($0) }
    }

    /// How often a step is begun again while another session holds one of its tables: ten seconds in all.
    private static let tries = 20

    /// Repeats a step while a table is held: a lock that waits holds up every request behind it, so no try waits long.
    private func patiently(_ step: () async throws -> Void) async throws {
        for _ in 1..<Self.tries {
            do {
                return try await step()
            } catch let error as MigrationError where error.code == .locked {
                try await Task.sleep(for: .milliseconds(400))
            }
        }
        try await step()
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
                            version    integer     PRIMARY KEY,
                            name       text        NOT NULL,
                            checksum   text        NOT NULL,
                            applied_at timestamptz NOT NULL DEFAULT now()
                        );
                        CREATE TABLE IF NOT EXISTS schema_release (
                            release         integer     PRIMARY KEY,
                            checksum        text        NOT NULL,
                            compatible_from integer     NOT NULL,
                            applied_at      timestamptz DEFAULT now()
                        );
                        COMMENT ON COLUMN schema_release.applied_at IS
                            'null: its migrations have begun, and its functions, views and triggers are not there yet';
                        CREATE TABLE IF NOT EXISTS schema_object (
                            kind     text NOT NULL,
                            name     text NOT NULL,
                            checksum text NOT NULL,
                            PRIMARY KEY (kind, name)
                        );
                        """
                )
                // Older processes stop before the first change that they do not fit.
                try await connection.query(
                    """
                    INSERT INTO entitlement_sync.schema_release (release, checksum, compatible_from, applied_at)
                    VALUES (\(source.release), \(source.checksum), \(source.compatibleFrom), NULL) ON CONFLICT DO NOTHING
                    """
                )
                try await connection.execute(script: file.sql)
                try await connection.query(
                    """
                    INSERT INTO entitlement_sync.schema_migration (version, name, checksum)
                    VALUES (\(file.version), \(file.name), \(file.checksum))
                    """
                )
            }
        } catch let error as PostgresError where error.code == .serverError {
            throw MigrationError(error, doing: "migration \(file.name)")
        }
    }

    // MARK: Privileges

    /// Grants what roles lack, also those made since the last migration; returns those that can't be created.
    private func applyPrivileges(_ connection: PostgresConnection) async throws -> [String] {
        do {
            return try await connection.withTransaction { connection in
                try await connection.execute(script: "SET LOCAL lock_timeout = '10s'")
                return try await connection.query("SELECT entitlement_sync.apply_privileges()").first?
                    .decode([String].self, at: 0) ?? []
            }
        } catch let error as PostgresError where error.code == .serverError {
            throw MigrationError(error, doing: "the roles' privileges")
        }
    }

    private func rolesThatLack(_ connection: PostgresConnection) async throws -> [String] {
        let grants = source.objects.first(where: { $0.id.kind == .privileges })?.text ?? ""
        let stated = Set(grants.matches(of: /\('(?<role>[a-z]+)', 'schema'/).map { "entitlement_sync_\($0.role)" })
        return try await connection.query(
            """
            SELECT x.role FROM unnest(\(stated.sorted())) AS x(role)
             WHERE NOT EXISTS (SELECT 1 FROM pg_catalog.pg_roles AS r WHERE r.rolname = x.role)
               AND NOT EXISTS (SELECT 1 FROM pg_catalog.pg_roles AS r
                                WHERE r.rolname = current_user AND (r.rolsuper OR r.rolcreaterole))
             ORDER BY 1
            """
        ).map { try $0.decode(String.self, at: 0) }
    }
}
