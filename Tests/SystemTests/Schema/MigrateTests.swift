import Foundation
@testable import Migrations
import Postgres
import TestSupport
import Testing

/// What `migrate` does to a database that another text of the SQL has made.
struct MigrateTests {
    /// A migrated database, and a copy of the SQL to change.
    private struct Site: Sendable {
        let database: TestDatabase
        let pool: PostgresPool
        let folder: String

        static func with(_ body: @Sendable (Site) async throws -> Void) async throws {
            let server = try await PrivatePostgres.shared
            let database = try await server.database(.migrated)
            try await withPool(PostgresConfiguration(connectionString: database.url, maxConnections: 3)) { pool in
                try await Paths.withSQLCopy { folder in
                    try await body(Site(database: database, pool: pool, folder: folder))
                }
            }
            try await server.drop(database)
        }

        /// Changes a file, and raises the release where the change is to be applied.
        func change(_ file: String, release: Int? = 2, _ edit: (inout String) -> Void) throws {
            let url = URL(fileURLWithPath: "\(folder)/\(file)")
            var text = (try? String(contentsOf: url, encoding: .utf8)) ?? ""
            edit(&text)
            try Data(text.utf8).write(to: url)
            guard let release else { return }
            try Data("release = \(release)\ncompatible_from = 1\n".utf8).write(
                to: URL(fileURLWithPath: "\(folder)/release")
            )
        }

        @discardableResult
        func migrate(dryRun: Bool = false) async throws -> [String] {
            let report = try await Migrator(pool: pool, source: try SchemaSource.load(directory: folder))
                .run(adapterPath: "\(folder)/host/adapter.sql", dryRun: dryRun)
            return report.changes.map { "\($0.kind) \($0.name): \($0.reason)" }
        }

        func refusal() async throws -> MigrationError {
            let before = try await versions()
            let error = await #expect(throws: MigrationError.self) { try await migrate() }
            #expect(try await versions() == before)
            return try #require(error)
        }

        /// Whether a session waits for a lock that another transaction holds.
        func isBlocked() async throws -> Bool {
            let rows = try await pool.query(
                """
                SELECT EXISTS (SELECT 1 FROM pg_catalog.pg_stat_activity AS a
                                WHERE a.datname = current_database() AND a.wait_event_type = 'Lock')
                """
            )
            return try #require(rows.first).decode(Bool.self)
        }

        /// Which objects there are, and when each was written last.
        func versions() async throws -> [String: String] {
            let rows = try await pool.query(
                """
                SELECT 'function ' || p.oid::regprocedure, p.xmin::text || ' ' || p.proacl::text FROM pg_proc AS p
                 WHERE p.pronamespace = 'entitlement_sync'::regnamespace
                 UNION ALL
                SELECT 'view ' || c.relname, r.xmin::text FROM pg_class AS c JOIN pg_rewrite AS r ON r.ev_class = c.oid
                 WHERE c.relnamespace = 'entitlement_sync'::regnamespace AND c.relkind = 'v'
                 UNION ALL
                SELECT 'trigger ' || t.tgrelid::regclass || ' ' || t.tgname, t.xmin::text FROM pg_trigger AS t WHERE NOT t.tgisinternal
                 UNION ALL
                SELECT 'release', string_agg(r.release::text, ' ') FROM entitlement_sync.schema_release AS r
                """
            )
            var all: [String: String] = [:]
            for row in rows {
                let (name, version) = try row.decode(String.self, String.self)
                all[name] = version
            }
            return all
        }

        /// The objects that differ from `before`.
        func changed(since before: [String: String]) async throws -> Set<String> {
            let now = try await versions()
            return Set(before.keys).union(now.keys).filter { before[$0] != now[$0] }
        }
    }

    @Test func `The same text is applied once`() async throws {
        try await Site.with { site in
            let before = try await site.versions()
            #expect(try await site.migrate() == [])
            #expect(try await site.changed(since: before) == [])
        }
    }

    @Test func `Only what changed is touched, and a dry run says what, and why`() async throws {
        try await Site.with { site in
            try site.change("functions/ids.sql") {
                $0 = $0.replacingOccurrences(of: "FUNCTION id_time(id uuid)", with: "FUNCTION id_time(id uuid) ")
                $0 +=
                    "CREATE OR REPLACE FUNCTION probe(a integer) RETURNS integer LANGUAGE sql AS $$ SELECT a + 1 $$;\n"
            }
            try site.change("views.sql") {
                $0 = $0.replacingOccurrences(of: "VIEW inbox_log AS", with: "VIEW inbox_log  AS")
            }
            try site.change("triggers.sql") {
                $0 = $0.replacingOccurrences(
                    of: "TRIGGER product_changed AFTER",
                    with: "TRIGGER product_changed  AFTER"
                )
            }
            let before = try await site.versions()
            let planned = [
                "function id_time: changed", "function probe: new", "view inbox_log: changed",
                "trigger product.product_changed: changed", "release 2: new",
            ]
            #expect(try await site.migrate(dryRun: true) == planned)
            #expect(try await site.changed(since: before) == [])
            #expect(try await site.migrate() == planned)
            #expect(
                try await site.changed(since: before) == [
                    "function entitlement_sync.id_time(uuid)", "function entitlement_sync.probe(integer)",
                    "view inbox_log",
                    "trigger entitlement_sync.product product_changed", "release",
                ]
            )
            #expect(
                try await site.pool.query(
                    "SELECT has_function_privilege('entitlement_sync_client', 'entitlement_sync.probe(integer)', 'EXECUTE')"
                ).map { try $0.decode(Bool.self) } == [false]
            )
        }
    }

    @Test func `A function with another signature takes the place of the old one`() async throws {
        try await Site.with { site in
            for (release, definition) in [
                (2, "probe(a integer) RETURNS integer LANGUAGE sql AS $$ SELECT a $$;"),
                (3, "probe(a integer, b integer) RETURNS integer LANGUAGE sql AS $$ SELECT a + b $$;"),
                (4, "probe(one integer, two integer) RETURNS bigint LANGUAGE sql AS $$ SELECT 1::bigint $$;"),
            ] {
                try site.change("functions/zz.sql", release: release) {
                    $0 = "CREATE OR REPLACE FUNCTION " + definition
                }
                try await site.migrate()
                let there = try await site.versions().keys.filter { $0.contains("probe(") }
                #expect(
                    there.count == 1
                        && there.allSatisfy { $0.contains(release == 2 ? "(integer)" : "(integer,integer)") }
                )
            }
        }
    }

    @Test func `What is gone from its file is dropped, unless something stands on it`() async throws {
        try await Site.with { site in
            try site.change("functions/zz.sql") {
                $0 = "CREATE OR REPLACE FUNCTION probe() RETURNS integer LANGUAGE sql AS $$ SELECT 1 $$;"
            }
            try await site.migrate()
            try await site.pool.query("CREATE VIEW own_report AS SELECT entitlement_sync.probe()")
            try site.change("functions/zz.sql", release: 3) { $0 = "" }
            try site.change("triggers.sql", release: 3) { text in
                text = SQLStatements.split(text).filter { !$0.contains("spell_sandbox_user") }.joined(separator: "\n")
            }
            let refusal = try await site.refusal()
            #expect(
                refusal.description.contains("own_report") && refusal.description.contains("drop what stands on it")
            )
            try await site.pool.query("DROP VIEW own_report")
            let before = try await site.versions()
            #expect(
                try await site.migrate() == [
                    "trigger sandbox_user.spell_sandbox_user: removed", "function probe: removed", "release 3: new",
                ]
            )
            #expect(
                try await site.changed(since: before) == [
                    "function entitlement_sync.probe()", "trigger entitlement_sync.sandbox_user spell_sandbox_user",
                    "release",
                ]
            )
        }
    }

    @Test func `A function that somebody dropped comes back`() async throws {
        try await Site.with { site in
            try await site.pool.query("DROP FUNCTION entitlement_sync.erase_user")
            #expect(try await site.migrate() == ["function erase_user: lost"])
            let lack = try await site.pool.query("SELECT m.target FROM entitlement_sync.missing_privileges() AS m")
            #expect(try lack.map { try $0.decode(String.self) } == [])
        }
    }

    @Test func `Other text needs a new release, and an older release applies nothing`() async throws {
        try await Site.with { site in
            try site.change("functions/zz.sql", release: nil) {
                $0 = "CREATE OR REPLACE FUNCTION probe() RETURNS integer LANGUAGE sql AS $$ SELECT 1 $$;"
            }
            let edited = try await site.refusal()
            #expect(edited.code == .edited && edited.description.contains("raise the number in sql/release"))
            try site.change("release", release: 3) { _ in }
            try await site.migrate()
            try site.change("release", release: 2) { _ in }
            let older = try await site.refusal()
            #expect(
                older.code == .incompatible
                    && older.description.contains("the database is at release 3, this build has 2")
            )
        }
    }

    @Test func `A privilege that is no longer listed is revoked, and one that the team granted stays`() async throws {
        try await Site.with { site in
            try await site.pool.query("GRANT SELECT ON entitlement_sync.purchase TO entitlement_sync_client")
            try site.change("grants.sql") {
                $0 = $0.replacingOccurrences(of: "decision_log entitlement_status", with: "entitlement_status")
            }
            #expect(try await site.migrate() == ["privileges grants: changed", "release 2: new"])
            let held = try await site.pool.query(
                """
                SELECT has_table_privilege('entitlement_sync_client', 'entitlement_sync.' || t.name, 'SELECT')
                  FROM unnest('{decision_log,inbox_log,purchase}'::text[]) AS t(name)
                """
            ).map { try $0.decode(Bool.self) }
            #expect(held == [false, true, true])
        }
    }

    @Test func `A trigger whose table is locked is waited for, and requests are not`() async throws {
        try await Site.with { site in
            try site.change("triggers.sql") {
                $0 = $0.replacingOccurrences(
                    of: "TRIGGER product_changed AFTER",
                    with: "TRIGGER product_changed  AFTER"
                )
            }
            try await withThrowingTaskGroup(of: Void.self) { group in
                let (locked, lock) = AsyncStream.makeStream(of: Void.self)
                group.addTask {
                    try await site.pool.withTransaction { connection in
                        try await connection.query(
                            "INSERT INTO entitlement_sync.product VALUES ('onside', 'p', NULL, 'premium', true)"
                        )
                        lock.yield()
                        // Until the migrator has waited for the lock, and has given up its first try.
                        for isWaiting in [true, false] {
                            try await eventually("the migrator does not come to the lock, or stays there") {
                                try await site.isBlocked() == isWaiting
                            }
                        }
                    }
                }
                _ = await locked.first { _ in true }
                #expect(try await site.migrate() == ["trigger product.product_changed: changed", "release 2: new"])
                try await group.waitForAll()
            }
        }
    }

    @Test func `Two migrators at once apply a release once`() async throws {
        try await Site.with { site in
            try site.change("functions/zz.sql") {
                $0 = "CREATE OR REPLACE FUNCTION probe() RETURNS integer LANGUAGE sql AS $$ SELECT 1 $$;"
            }
            let done = try await withThrowingTaskGroup(of: [String].self) { group in
                for _ in 0..<2 { group.addTask { try await site.migrate() } }
                return try await group.reduce(into: []) { $0.append($1) }
            }
            #expect(Set(done) == [[], ["function probe: new", "release 2: new"]])
        }
    }

    @Test func `What a migration takes away with a table comes back in the same run`() async throws {
        try await Site.with { site in
            try site.change("migrations/0002_rebuild.sql") {
                $0 = """
                    CREATE TABLE made AS TABLE operator_event;
                    DROP TABLE operator_event CASCADE;
                    ALTER TABLE made RENAME TO operator_event;
                    """
            }
            let done = try await site.migrate()
            #expect(done.first == "migration 0002_rebuild: new")
            #expect(
                Set(done.suffix(2)) == [
                    "trigger operator_event.append_only: lost", "trigger operator_event.no_truncate: lost",
                ]
            )
        }
    }

    @Test func `A release that was begun and not finished stops older builds, and is finished by the next run`()
        async throws
    {
        try await Site.with { site in
            let older = try SchemaSource.load(directory: site.folder)
            try site.change("migrations/0002_new.sql") { $0 = "CREATE TABLE new_one (id integer);" }
            // A view that does not fit: the migration stands, and what comes after it does not.
            try site.change("views.sql") { $0 += "CREATE OR REPLACE VIEW new_view AS SELECT n.none FROM new_one AS n;" }
            await #expect(throws: MigrationError.self) { try await site.migrate() }
            let refusal = await #expect(throws: MigrationError.self) {
                _ = try await Migrator(pool: site.pool, source: older)
                    .run(adapterPath: "\(site.folder)/host/adapter.sql", dryRun: false)
            }
            #expect(refusal?.code == .incompatible)
            #expect(try await SchemaCheck(pool: site.pool).verify() == 1, "the release before is the finished one")
            try site.change("views.sql") { $0 = $0.replacingOccurrences(of: "n.none", with: "n.id") }
            #expect(try await site.migrate() == ["view new_view: new", "release 2: new"])
            #expect(try await SchemaCheck(pool: site.pool).verify() == 2)
        }
    }

    @Test func `Views that stand on each other go together`() async throws {
        try await Site.with { site in
            try site.change("views.sql") {
                $0 +=
                    "CREATE OR REPLACE VIEW a_base AS SELECT 1 AS n; CREATE OR REPLACE VIEW b_top AS SELECT n FROM a_base;"
            }
            try await site.migrate()
            try site.change("views.sql", release: 3) {
                $0 = String($0.prefix(upTo: $0.range(of: "CREATE OR REPLACE VIEW a_base")!.lowerBound))
            }
            #expect(try await site.migrate() == ["view a_base: removed", "view b_top: removed", "release 3: new"])
        }
    }

    @Test func `A function with another signature is nobody's to call but those who are listed`() async throws {
        try await Site.with { site in
            try site.change("functions/erasure.sql") {
                $0 = $0.replacingOccurrences(of: "FUNCTION erase_user(", with: "FUNCTION erase_user(more integer, ")
            }
            try Data("SELECT 1/0;".utf8).write(to: URL(fileURLWithPath: "\(site.folder)/host/adapter.sql"))
            await #expect(throws: MigrationError.self) { try await site.migrate() }
            let held = try await site.pool.query(
                """
                SELECT r.rolname::text FROM pg_roles AS r, pg_proc AS p
                 WHERE p.proname = 'erase_user' AND r.rolname LIKE 'entitlement_sync_%' AND has_function_privilege(r.oid, p.oid, 'EXECUTE')
                """
            ).map { try $0.decode(String.self) }
            #expect(held == ["entitlement_sync_worker"])
        }
    }

    @Test func `An adapter that controls transactions is refused before anything is written`() async throws {
        try await Site.with { site in
            let url = URL(fileURLWithPath: "\(site.folder)/host/adapter.sql")
            let text = try String(contentsOf: url, encoding: .utf8)
            try Data(("BEGIN;\n" + text + "\nCOMMIT;").utf8).write(to: url)
            let refusal = await #expect(throws: MigrationError.self) { try await site.migrate(dryRun: true) }
            #expect(refusal?.code == .adapter && refusal?.description.contains("controls transactions") == true)
        }
    }

    /// Bodies are not checked as they are applied, for they may call what stands in a later file.
    @Test func `Every body of SQL fits the schema`() async throws {
        try await Site.with { site in
            let source = try SchemaSource.load(directory: site.folder)
            try await site.pool.withTransaction { connection in
                try await connection.execute(script: "SET LOCAL search_path = entitlement_sync, public")
                for object in source.objects where object.id.kind == .function {
                    try await connection.execute(script: object.text)
                }
            }
        }
    }
}
