import Foundation
import Postgres

/// The functions in schema `entitlement_sync_host`, through which the worker reaches the host's tables.
struct HostAdapter {
    private let sql: String
    /// Whether the team named it; the sample never takes the place of a team's own.
    private let isOwn: Bool

    /// Throws `.adapter` where the file is missing, no text, or controls transactions.
    init(path: String, isOwn: Bool) throws {
        sql = try Self.text(of: path)
        // Not `END`, which also ends the body of a function in standard SQL.
        let controls = ["BEGIN", "START TRANSACTION", "COMMIT", "ROLLBACK", "ABORT"]
        let statement = SQLStatements.split(sql).first { statement in
            controls.contains { statement.uppercased().hasPrefix($0) }
        }
        if let statement {
            throw MigrationError(
                .adapter,
                "the adapter file \(path) controls transactions (\(statement.prefix(40))): take that out, migrate installs the file in one"
            )
        }
        self.isOwn = isOwn
    }

    private static func text(of path: String) throws -> String {
        guard FileManager.default.fileExists(atPath: path) else {
            throw MigrationError(.adapter, "there is no adapter file \(path)")
        }
        do { return try String(contentsOfFile: path, encoding: .utf8) } catch {
            throw MigrationError(.adapter, "the adapter file \(path) can't be read as UTF-8 text")
        }
    }

    /// What the schema of an adapter says that a team named.
    private static let ownMark = "installed with --adapter"

    static func isOwnInstalled(on connection: PostgresConnection) async throws -> Bool {
        try await connection.query(
            """
            SELECT EXISTS (SELECT 1 FROM pg_catalog.pg_namespace AS n
                            WHERE n.nspname = 'entitlement_sync_host'
                              AND obj_description(n.oid, 'pg_namespace') = \(Self.ownMark))
            """
        ).first?.decode(Bool.self, at: 0) ?? false
    }

    /// Searches for an id that the host's tables may not be able to hold: any caller can sign in with one.
    private static let oddID = "SELECT * FROM entitlement_sync_host.read_users(ARRAY['no id of anybody'])"
    /// Calls every function without a user: what does not fit the host's tables shows now and not at the first job.
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
            IF to_regprocedure('entitlement_sync_host.newest_users(integer)') IS NOT NULL THEN
                PERFORM n.id || '' FROM entitlement_sync_host.newest_users(0) AS n(id);
            END IF;
            IF to_regprocedure('entitlement_sync_host.other_access(text[])') IS NOT NULL THEN
                PERFORM o.id, o.source, o.until FROM entitlement_sync_host.other_access('{}') AS o(id, source, until);
            END IF;
            IF to_regprocedure('entitlement_sync_host.unexplained_assets(integer)') IS NOT NULL THEN
                PERFORM a.user_id || a.asset_id FROM entitlement_sync_host.unexplained_assets(0) AS a(user_id, asset_id);
            END IF;
        END
        $$
        """

    /// Sets a user's type to either value and reads it back, which is undone: words that only a promotion would write show now.
    private static let probeOfTypes = """
        DO $$
        DECLARE
            who text;
            wanted text;
            found text;
            fault text;
        BEGIN
            SELECT u.id INTO who FROM entitlement_sync_host.page_users(NULL, 20) AS p
             CROSS JOIN LATERAL entitlement_sync_host.lock_users(ARRAY[p.id]) AS u LIMIT 1;
            IF who IS NULL THEN
                RETURN;
            END IF;
            BEGIN
                FOREACH wanted IN ARRAY ARRAY['subscriber', 'free'] LOOP
                    PERFORM * FROM entitlement_sync_host.set_type(ARRAY[who], wanted);
                    SELECT r.type INTO found FROM entitlement_sync_host.read_users(ARRAY[who]) AS r;
                    IF found IS DISTINCT FROM wanted THEN
                        fault := format('set_type with %L leaves a user that read_users gives the type %L', wanted, found);
                    END IF;
                END LOOP;
                RAISE EXCEPTION SQLSTATE 'ES999';
            EXCEPTION WHEN SQLSTATE 'ES999' THEN NULL;
            END;
            IF fault IS NOT NULL THEN
                RAISE EXCEPTION '%', fault;
            END IF;
        END
        $$
        """

    /// Ends a transaction in which an adapter was only tried.
    private struct Tried: Error {}

    /// Installs the adapter in one transaction, or tries it in one that is undone.
    ///
    /// Throws `.adapter` for functions that do not fit the host's tables or return what the worker can't read.
    func install(isTried: Bool, on connection: PostgresConnection) async throws {
        do {
            try await connection.withTransaction { connection in
                // Writers of the host's tables wait behind a statement that waits for their lock: so not for long.
                try await connection.execute(
                    script: "SET LOCAL lock_timeout = '5s'; SET LOCAL client_min_messages = warning;"
                )
                // An adapter may leave these out, and is not to be given another's.
                try await connection.execute(
                    script: """
                        DROP FUNCTION IF EXISTS entitlement_sync_host.newest_users(integer);
                        DROP FUNCTION IF EXISTS entitlement_sync_host.other_access(text[]);
                        DROP FUNCTION IF EXISTS entitlement_sync_host.unexplained_assets(integer);
                        """
                )
                try await connection.execute(script: sql)
                // Another adapter may order assets differently. Workers in a batch are waited for.
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
                try await connection.execute(script: Self.probeOfTypes)
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
                    "the host adapter does not fit the host's tables (\(error.message)\(Self.place(of: error))); "
                        + (isOwn
                            ? "mend the file, whose functions keep their names, arguments and result columns"
                            : "load the host's schema first, or pass --adapter FILE with functions for your tables")
                )
            }
            if error.sqlState == "42501" || error.sqlState == "55P03" {
                throw MigrationError(error, doing: "the host adapter")
            }
            throw MigrationError(
                .adapter,
                "the host adapter's SQL fails: \(error.message)\(Self.place(of: error)); mend the file"
            )
        }
    }

    /// The adapter's function in which an error arose, and its line there, as far as the server says so.
    private static func place(of error: PostgresError) -> String {
        let places =
            /unction "?(?:entitlement_sync_host\.)?(?<name>[a-z_]+)(?:\([^)]*\))?"?(?: statement (?<part>\d+))?(?: (?:near )?line (?<line>\d+))?/
        guard let match = error.detail?.firstMatch(of: places), match.name != "inline_code_block" else { return "" }
        return ", in \(match.name)" + (match.line.map { " line \($0)" } ?? match.part.map { " statement \($0)" } ?? "")
    }

    /// What the installed adapter gives that the worker can't read.
    static func faultsOfInstalled(on connection: PostgresConnection) async throws -> [String] {
        do {
            return try await connection.withTransaction { try await AdapterCheck.faults(on: $0) }
        } catch let error as PostgresError where error.code == .serverError {
            return ["its SQL fails: \(error.message)"]
        }
    }
}
