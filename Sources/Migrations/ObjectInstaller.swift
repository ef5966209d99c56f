import Postgres

/// Brings functions, views, triggers and privileges to the text of their files, in one transaction.
struct ObjectInstaller {
    let connection: PostgresConnection

    /// Applies a plan's objects, drops what is no longer in a file, and notes the release of the database.
    ///
    /// Throws `.locked` where another session held an object, and a later try may succeed.
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
        // A removed view may depend on a function that changes; views may need removed functions until then.
        try await drop(plan.removed.filter { $0.kind != .function })
        for object in plan.objects { try await apply(object) }
        try await drop(plan.removed.filter { $0.kind == .function })
        // PostgreSQL lets every user call a new function.
        try await connection.query("SELECT entitlement_sync.apply_privileges()")
        try await connection.query(
            """
            SELECT entitlement_sync.maintain_partitions()
             WHERE NOT EXISTS (SELECT 1 FROM entitlement_sync.partitions_of('job_history'))
            """
        )
        try await connection.query(
            """
            INSERT INTO entitlement_sync.schema_release (release, checksum, compatible_from)
            VALUES (\(source.release), \(source.checksum), \(source.compatibleFrom))
            ON CONFLICT (release) DO UPDATE SET checksum = excluded.checksum, applied_at = coalesce(schema_release.applied_at, now())
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

    /// Replaces a function; one whose result or parameters changed is dropped first, as is an old signature.
    private func replaceFunction(_ object: SchemaObject) async throws {
        let before = try await signatures(of: object.id.name)
        guard !before.isEmpty else { return try await connection.execute(script: object.text) }
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

    /// Drops objects of a kind, never with CASCADE: one that another of them depends on is tried again after that one.
    private func drop(_ ids: [SchemaObject.ID]) async throws {
        var left = ids
        while !left.isEmpty {
            var blocked: [(id: SchemaObject.ID, error: PostgresError)] = []
            for id in left {
                if let error = try await blocker(of: id) { blocked.append((id, error)) }
            }
            if let first = blocked.first, blocked.count == left.count {
                throw MigrationError(
                    .refused,
                    "the \(first.id.kind) \(first.id.name) is no longer in its file and can't be dropped: \(first.error.message)"
                        + (first.error.detail.map { " (\($0))" } ?? "")
                        + "; drop what stands on it, then run entitlement-sync migrate again"
                )
            }
            left = blocked.map(\.id)
        }
    }

    /// Drops an object; the error where something stands on it.
    private func blocker(of id: SchemaObject.ID) async throws -> PostgresError? {
        try await connection.execute(script: "SAVEPOINT dropped")
        do {
            for statement in try await drops(id) { try await connection.execute(script: statement) }
        } catch let error as PostgresError where error.sqlState == "2BP01" {
            try await connection.execute(script: "ROLLBACK TO dropped")
            return error
        }
        try await connection.query(
            "DELETE FROM entitlement_sync.schema_object AS o WHERE o.kind = \(id.kind.rawValue) AND o.name = \(id.name)"
        )
        return nil
    }

    private func drops(_ id: SchemaObject.ID) async throws -> [String] {
        switch id.kind {
        case .function: return try await signatures(of: id.name).map { "DROP FUNCTION \($0)" }
        case .view: return ["DROP VIEW IF EXISTS \(id.name)"]
        case .trigger:
            let parts = id.name.split(separator: ".", maxSplits: 1)
            return ["DROP TRIGGER IF EXISTS \(parts[1]) ON \(parts[0])"]
        case .privileges: return []
        }
    }
}
