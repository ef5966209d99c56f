import Logging
package import Postgres

/// Databases that tests use one after the other: most of a test's time would go into making one, and into what sessions learn of it.
///
/// Between two tests all rows and sequences are set back to the template's. A database whose tables, functions, triggers, rights
/// or settings a test has changed is dropped.
package actor DatabaseShelf {
    /// A database, and a pool whose sessions stay.
    package struct Place: Sendable {
        package let database: TestDatabase
        package let pool: PostgresPool
        fileprivate let print: String
    }

    private let template: DatabaseTemplate
    private let configuration: @Sendable (_ url: String) -> PostgresConfiguration
    private var free: [Place] = []

    /// Creates a shelf on the shared server.
    package init(
        _ template: DatabaseTemplate,
        _ configuration: @escaping @Sendable (_ url: String) -> PostgresConfiguration
    ) {
        self.template = DatabaseTemplate(name: "\(template.name)_shelf") { url in
            try await template.prepare(url)
            try await DatabaseTemplate.fill(url, Self.schema)
        }
        self.configuration = configuration
    }

    /// Lends a database to a test.
    package func withPlace(_ body: @Sendable (Place) async throws -> Void) async throws {
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
        let pool = PostgresPool(
            configuration: configuration(database.url),
            logger: .quiet
        )
        return Place(database: database, pool: pool, print: try await Self.print(pool))
    }

    private func drop(_ place: Place) async throws {
        await place.pool.close()
        try await place.database.server.drop(place.database)
    }

    /// Returns whether the place can be used again.
    private func reset(_ place: Place) async throws -> Bool {
        guard try await Self.print(place.pool) == place.print else { return false }
        do {
            try await place.pool.query("SELECT kept.reset()")
            return true
        } catch {
            // A session of the test's has locked a row.
            return false
        }
    }

    private static func print(_ pool: PostgresPool) async throws -> String {
        try await pool.query("SELECT kept.print()").first?.decode(String.self) ?? ""
    }

    /// Keeps the template's rows and sequences, and sets a database back to them.
    private static let schema = """
        SELECT entitlement_sync.maintain_partitions();
        CREATE SCHEMA kept;
        CREATE TABLE kept.seed (name text, copy text);
        CREATE VIEW kept.tables AS
            SELECT c.oid, c.oid::regclass::text AS name
              FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
             WHERE n.nspname IN ('public', 'entitlement_sync') AND c.relkind = 'r';
        DO $$
        DECLARE
            t record;
        BEGIN
            FOR t IN SELECT * FROM kept.tables WHERE pg_relation_size(oid) > 0 LOOP
                EXECUTE format('CREATE TABLE kept.%I AS TABLE %s', 'rows_' || t.oid, t.name);
                INSERT INTO kept.seed VALUES (t.name, 'kept.rows_' || t.oid);
            END LOOP;
        END $$;
        CREATE TABLE kept.sequences AS
            SELECT s.schemaname, s.sequencename, s.start_value, s.last_value FROM pg_catalog.pg_sequences AS s;
        CREATE FUNCTION kept.reset() RETURNS void LANGUAGE plpgsql SET session_replication_role = replica
        SET lock_timeout = '5s' AS $$
        DECLARE
            t record;
        BEGIN
            FOR t IN SELECT * FROM kept.tables WHERE pg_relation_size(oid) > 0 LOOP
                EXECUTE format('DELETE FROM %s', t.name);
            END LOOP;
            FOR t IN SELECT * FROM kept.seed LOOP
                EXECUTE format('INSERT INTO %s OVERRIDING SYSTEM VALUE TABLE %s', t.name, t.copy);
            END LOOP;
            FOR t IN SELECT s.*, n.last_value AS now_at
                       FROM kept.sequences AS s JOIN pg_catalog.pg_sequences AS n USING (schemaname, sequencename)
                      WHERE n.last_value IS DISTINCT FROM s.last_value LOOP
                PERFORM setval(format('%I.%I', t.schemaname, t.sequencename)::regclass,
                               coalesce(t.last_value, t.start_value), t.last_value IS NOT NULL);
            END LOOP;
        END $$;
        CREATE FUNCTION kept.print() RETURNS text LANGUAGE sql AS $$
            SELECT md5(concat_ws(' ',
                (SELECT string_agg(concat_ws(',', c.oid, c.relname, c.relowner, c.relacl, c.reloptions, c.relrowsecurity),
                                   ' ' ORDER BY c.oid)
                   FROM pg_catalog.pg_class AS c WHERE c.oid >= 16384 AND c.relkind <> 't'
                    AND c.relpersistence <> 't'),
                (SELECT string_agg(p.oid || ',' || p.xmin, ' ' ORDER BY p.oid)
                   FROM pg_catalog.pg_proc AS p WHERE p.oid >= 16384),
                (SELECT string_agg(t.oid || ',' || t.xmin, ' ' ORDER BY t.oid) FROM pg_catalog.pg_trigger AS t),
                (SELECT string_agg(t.oid || ',' || t.xmin, ' ' ORDER BY t.oid)
                   FROM pg_catalog.pg_constraint AS t WHERE t.oid >= 16384),
                (SELECT count(*) || ',' || max(a.xmin::text::bigint)
                   FROM pg_catalog.pg_attribute AS a WHERE a.attrelid >= 16384 AND a.attnum > 0),
                (SELECT string_agg(n.oid || ',' || n.xmin, ' ' ORDER BY n.oid) FROM pg_catalog.pg_namespace AS n
                  WHERE n.nspname !~ '^pg_(toast_)?temp'),
                (SELECT string_agg(s.setrole || ',' || s.setconfig::text, ' ' ORDER BY s.setrole)
                   FROM pg_catalog.pg_db_role_setting AS s
                  WHERE s.setdatabase = (SELECT d.oid FROM pg_catalog.pg_database AS d
                                          WHERE d.datname = current_database())),
                (SELECT d.datacl::text || d.datallowconn FROM pg_catalog.pg_database AS d
                  WHERE d.datname = current_database())))
        $$;
        """
}
