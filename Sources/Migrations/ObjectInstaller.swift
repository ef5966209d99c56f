import Postgres

/// Brings functions, views, triggers and privileges to the text of their files, in one transaction.
struct ObjectInstaller {
    let connection: PostgresConnection

    /// Applies a plan's objects, drops what is no longer in a file, and notes the release that the database has from now on.
    ///
    /// - Throws: `MigrationError`; `.locked` where another session held an object, and a later try may succeed.
    func apply(_ plan: SchemaPlan, of source: SchemaSource) async throws {
        do {
            try await connection.withTransaction { _ in try await write(plan, of: source) }
        } catch let error as PostgresError where error.code == .serverError {
            throw MigrationError(error, doing: "functions, views and triggers")
        }
    }

    private func write(_ plan: SchemaPlan, of source: SchemaSource) async throws {
        // Bodies are checked by the tests; here they may call what stands in a later file.
        try await connection.execute(
            script: """
                SET LOCAL search_path = entitlement_sync, public;
                SET LOCAL lock_timeout = '100ms';
                SET LOCAL statement_timeout = 0;
                SET LOCAL client_min_messages = warning;
                SET LOCAL check_function_bodies = off;
                """
        )
        for object in plan.objects { try await apply(object) }
        for id in plan.removed { try await drop(id) }
        try await connection.query(
            """
            SELECT entitlement_sync.maintain_partitions()
             WHERE NOT EXISTS (SELECT 1 FROM entitlement_sync.partitions_of('job_history'))
            """
        )
        try await connection.query(
            """
            INSERT INTO entitlement_sync.schema_release (release, checksum, compatible_from)
            VALUES (\(source.release), \(source.checksum), \(source.compatibleFrom)) ON CONFLICT DO NOTHING
            """
        )
    }

    private func apply(_ object: SchemaObject) async throws {
        do {
            if object.id.kind == .function {
                try await replaceFunction(object)
            } else {
                try await connection.execute(script: object.text)
            }
        } catch let error as PostgresError where error.code == .serverError && error.sqlState != "55P03" {
            throw MigrationError(error, doing: "the \(object.id.kind) \(object.id.name)")
        }
        try await connection.query(
            """
            INSERT INTO entitlement_sync.schema_object (kind, name, checksum)
            VALUES (\(object.id.kind.rawValue), \(object.id.name), \(object.checksum))
            ON CONFLICT (kind, name) DO UPDATE SET checksum = excluded.checksum
            """
        )
    }

    /// Replaces a function; one whose result or parameters changed is dropped first, and of two signatures the new one stays.
    private func replaceFunction(_ object: SchemaObject) async throws {
        let before = try await signatures(of: object.id.name)
        if before.isEmpty {
            try await connection.execute(script: object.text)
            return
        }
        try await connection.execute(script: "SAVEPOINT replaced")
        if try await isReplaced(by: object.text) {
            let after = try await signatures(of: object.id.name)
            if after.count > before.count { try await dropFunctions(before) }
        } else {
            try await dropFunctions(before)
            try await connection.execute(script: object.text)
        }
    }

    /// Whether `CREATE OR REPLACE` is enough: it is not for another result, or for parameters of other names.
    private func isReplaced(by text: String) async throws -> Bool {
        do {
            try await connection.execute(script: text)
            return true
        } catch {
            if error.sqlState != "42P13" { throw error }
        }
        try await connection.execute(script: "ROLLBACK TO replaced")
        return false
    }

    private func dropFunctions(_ signatures: [String]) async throws {
        for signature in signatures { try await connection.execute(script: "DROP FUNCTION \(signature)") }
    }

    /// The schema's functions of a name, each as `name(types)`.
    private func signatures(of name: String) async throws -> [String] {
        try await connection.query(
            """
            SELECT p.oid::regprocedure::text FROM pg_catalog.pg_proc AS p
             WHERE p.pronamespace = 'entitlement_sync'::regnamespace AND p.proname = \(name)
            """
        ).map { try $0.decode(String.self, at: 0) }
    }

    /// Never with CASCADE: what stands on it is an error that names it.
    private func drop(_ id: SchemaObject.ID) async throws {
        do {
            switch id.kind {
            case .function:
                try await dropFunctions(try await signatures(of: id.name))
            case .view: try await connection.execute(script: "DROP VIEW IF EXISTS \(id.name)")
            case .trigger:
                let parts = id.name.split(separator: ".", maxSplits: 1)
                try await connection.execute(script: "DROP TRIGGER IF EXISTS \(parts[1]) ON \(parts[0])")
            case .privileges: break
            }
        } catch let error as PostgresError where error.sqlState == "2BP01" {
            throw MigrationError(
                .refused,
                "the \(id.kind) \(id.name) is no longer in its file and can't be dropped: \(error.message)"
                    + (error.detail.map { " (\($0))" } ?? "")
                    + "; drop what stands on it, then run entitlement-sync migrate again"
            )
        }
        try await connection.query(
            "DELETE FROM entitlement_sync.schema_object AS o WHERE o.kind = \(id.kind.rawValue) AND o.name = \(id.name)"
        )
    }
}
