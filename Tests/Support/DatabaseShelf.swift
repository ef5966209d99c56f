import Logging
package import Postgres

/// Databases that tests use one after the other: most of a test's time would go into making one, and into what sessions learn of it.
///
/// Between two tests all rows, sequences, functions and triggers are set back to the template's. A database whose tables, rights or
/// settings a test has changed is dropped.
package actor DatabaseShelf {
    /// A database, and pools whose sessions stay.
    package struct Place: Sendable {
        package let database: TestDatabase
        /// The test's own.
        package let pool: PostgresPool
        package let workerPool: PostgresPool
        /// Tells of everything that `reset` does not set back.
        fileprivate let catalog: String
    }

    private let template: DatabaseTemplate
    private let worker: @Sendable (_ url: String) -> PostgresConfiguration
    private var free: [Place] = []

    /// Creates a shelf on the shared server; `worker`: how a worker reaches a database.
    package init(_ template: DatabaseTemplate, worker: @escaping @Sendable (_ url: String) -> PostgresConfiguration) {
        self.template = DatabaseTemplate(name: "\(template.name)_shelf") { url in
            try await template.prepare(url)
            try await DatabaseTemplate.fill(url, Self.schema)
        }
        self.worker = worker
    }

    /// Lends a database to a test.
    package func withPlace(_ body: @Sendable (Place) async throws -> Void) async throws {
        Turns.note()
        let place = if let last = free.popLast() { last } else { try await make() }
        do { try await body(place) } catch {
            // The next test gets nothing of what this one left.
            try? await drop(place)
            throw error
        }
        if try await reset(place) { free.append(place) } else { try await drop(place) }
    }

    private func make() async throws -> Place {
        let database = try await PrivatePostgres.shared.database(template)
        let pool = PostgresPool(configuration: .test(at: database.url), logger: .quiet)
        let workerPool = PostgresPool(configuration: worker(database.url), logger: .quiet)
        return Place(database: database, pool: pool, workerPool: workerPool, catalog: try await Self.catalog(pool))
    }

    private func drop(_ place: Place) async throws {
        await place.pool.close()
        await place.workerPool.close()
        try await place.database.server.drop(place.database)
    }

    /// Returns whether the place can be used again.
    private func reset(_ place: Place) async throws -> Bool {
        do {
            try await place.pool.query("SELECT kept.mend()")
            guard try await Self.catalog(place.pool) == place.catalog else { return false }
            try await place.pool.query("SELECT kept.reset()")
            return true
        } catch {
            // A session of the test's holds a lock, or what the test made can't be taken away alone.
            return false
        }
    }

    private static func catalog(_ pool: PostgresPool) async throws -> String {
        try await pool.query("SELECT kept.catalog()").first?.decode(String.self) ?? ""
    }

    /// Keeps the template's rows and sequences, and sets a database back to them.
    ///
    /// `mend` takes away functions, their triggers and tables that a test made, `reset` rows. `catalog` tells of all else, and changes
    /// with it. A table's mark tells whether its rows are those that were laid: a row that was written since has a transaction's
    /// number of its own, and one that was deleted is missing.
    private static let schema = """
        SELECT entitlement_sync.maintain_partitions();
        CREATE SCHEMA kept;
        CREATE TABLE kept.seed (name text, copy text, mark text);
        CREATE VIEW kept.tables AS
            SELECT c.oid, c.oid::regclass::text AS name
              FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
             WHERE n.nspname IN ('public', 'entitlement_sync') AND c.relkind = 'r';
        CREATE FUNCTION kept.mark(name text, OUT mark text) LANGUAGE plpgsql AS $$
        BEGIN
            EXECUTE format('SELECT count(*) || '','' || coalesce(max(xmin::text::bigint), 0) FROM %s', name) INTO mark;
        END $$;
        DO $$
        DECLARE
            t record;
        BEGIN
            FOR t IN SELECT * FROM kept.tables WHERE pg_relation_size(oid) > 0 LOOP
                EXECUTE format('CREATE TABLE kept.%I AS TABLE %s', 'rows_' || t.oid, t.name);
                INSERT INTO kept.seed VALUES (t.name, 'kept.rows_' || t.oid, kept.mark(t.name));
            END LOOP;
        END $$;
        CREATE TABLE kept.sequences AS
            SELECT s.schemaname, s.sequencename, s.start_value, s.last_value FROM pg_catalog.pg_sequences AS s;
        CREATE FUNCTION kept.reset() RETURNS void LANGUAGE plpgsql SET session_replication_role = replica
        SET lock_timeout = '5s' AS $$
        DECLARE
            t     record;
            large text := (SELECT string_agg(name, ', ') FROM kept.tables WHERE pg_relation_size(oid) > 262144);
        BEGIN
            IF EXISTS (SELECT FROM pg_catalog.pg_locks AS l JOIN pg_catalog.pg_database AS d ON d.oid = l.database
                        WHERE l.locktype = 'advisory' AND d.datname = current_database()) THEN
                RAISE 'a session of the test''s has an advisory lock';
            END IF;
            -- Dead rows of all the tests before would slow down those that come.
            IF large IS NOT NULL THEN EXECUTE format('TRUNCATE %s CASCADE', large); END IF;
            FOR t IN SELECT k.name, s.copy, coalesce(s.mark, '0,0') AS mark
                       FROM kept.tables AS k LEFT JOIN kept.seed AS s USING (name)
                      WHERE s.name IS NOT NULL OR pg_relation_size(k.oid) > 0 LOOP
                CONTINUE WHEN kept.mark(t.name) = t.mark;
                EXECUTE format('DELETE FROM %s', t.name);
                CONTINUE WHEN t.copy IS NULL;
                EXECUTE format('INSERT INTO %s OVERRIDING SYSTEM VALUE TABLE %s', t.name, t.copy);
                UPDATE kept.seed SET mark = kept.mark(t.name) WHERE name = t.name;
            END LOOP;
            FOR t IN SELECT s.*
                       FROM kept.sequences AS s JOIN pg_catalog.pg_sequences AS n USING (schemaname, sequencename)
                      WHERE n.last_value IS DISTINCT FROM s.last_value LOOP
                PERFORM setval(format('%I.%I', t.schemaname, t.sequencename)::regclass,
                               coalesce(t.last_value, t.start_value), t.last_value IS NOT NULL);
            END LOOP;
        END $$;
        CREATE FUNCTION kept.mend() RETURNS void LANGUAGE plpgsql SET lock_timeout = '5s' AS $$
        DECLARE
            f record;
            t record;
        BEGIN
            FOR f IN SELECT p.oid, k.oid IS NULL AS is_new, k.definition
                       FROM pg_catalog.pg_proc AS p LEFT JOIN kept.functions AS k USING (oid)
                      WHERE p.oid >= 16384 AND p.xmin::text IS DISTINCT FROM k.version LOOP
                IF f.is_new THEN
                    EXECUTE format('DROP ROUTINE %s CASCADE', f.oid::regprocedure);
                ELSE
                    EXECUTE f.definition;
                    UPDATE kept.functions AS k SET version = (SELECT p.xmin FROM pg_catalog.pg_proc AS p WHERE p.oid = k.oid)
                     WHERE k.oid = f.oid;
                END IF;
            END LOOP;
            FOR t IN SELECT x.tgrelid::regclass AS place, x.tgname AS name, k.tgenabled AS enabled
                       FROM pg_catalog.pg_trigger AS x JOIN kept.triggers AS k USING (oid) WHERE x.tgenabled <> k.tgenabled LOOP
                EXECUTE format('ALTER TABLE %s %s TRIGGER %I', t.place,
                               CASE t.enabled WHEN 'D' THEN 'DISABLE' WHEN 'A' THEN 'ENABLE ALWAYS' ELSE 'ENABLE' END, t.name);
            END LOOP;
            FOR t IN SELECT c.oid::regclass AS place FROM pg_catalog.pg_class AS c
                      WHERE c.relnamespace = 'public'::regnamespace AND c.relkind = 'r'
                        AND NOT EXISTS (SELECT FROM kept.relations AS k WHERE k.oid = c.oid) LOOP
                EXECUTE format('DROP TABLE %s', t.place);
            END LOOP;
        END $$;
        CREATE FUNCTION kept.catalog() RETURNS text LANGUAGE sql AS $$
            SELECT concat_ws(' ',
                (SELECT sum(hash_record_extended(
                            ROW(c.oid, c.relname, c.relowner, c.relacl, c.reloptions, c.relrowsecurity), 0))
                   FROM pg_catalog.pg_class AS c WHERE c.oid >= 16384 AND c.relkind <> 't'
                    AND c.relpersistence <> 't'),
                (SELECT sum(hash_record_extended(ROW(p.oid, p.proname, p.pronamespace, p.proowner, p.proacl), 0))
                   FROM pg_catalog.pg_proc AS p WHERE p.oid >= 16384),
                (SELECT sum(hash_record_extended(ROW(t.oid, t.tgname, t.tgfoid, t.tgtype, t.tgenabled), 0))
                   FROM pg_catalog.pg_trigger AS t),
                (SELECT sum(hash_record_extended(ROW(t.oid, t.xmin), 0))
                   FROM pg_catalog.pg_constraint AS t WHERE t.oid >= 16384),
                (SELECT count(*) || ',' || max(a.xmin::text::bigint)
                   FROM pg_catalog.pg_attribute AS a WHERE a.attrelid >= 16384 AND a.attnum > 0),
                (SELECT sum(hash_record_extended(ROW(n.oid, n.xmin), 0)) FROM pg_catalog.pg_namespace AS n
                  WHERE n.nspname !~ '^pg_(toast_)?temp'),
                (SELECT sum(hash_record_extended(ROW(s.setrole, s.setconfig), 0)) FROM pg_catalog.pg_db_role_setting AS s
                  WHERE s.setdatabase = (SELECT d.oid FROM pg_catalog.pg_database AS d
                                          WHERE d.datname = current_database())),
                (SELECT hash_record_extended(ROW(d.datacl, d.datallowconn), 0) FROM pg_catalog.pg_database AS d
                  WHERE d.datname = current_database()))
        $$;
        CREATE TABLE kept.functions AS
            SELECT p.oid, p.xmin::text AS version,
                   CASE WHEN p.prokind <> 'a' THEN pg_get_functiondef(p.oid) END AS definition
              FROM pg_catalog.pg_proc AS p WHERE p.oid >= 16384;
        CREATE TABLE kept.triggers AS SELECT t.oid, t.tgenabled FROM pg_catalog.pg_trigger AS t;
        CREATE TABLE kept.relations AS SELECT c.oid FROM pg_catalog.pg_class AS c;
        """
}
