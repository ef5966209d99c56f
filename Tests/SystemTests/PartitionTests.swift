import Foundation
import Postgres
import Queue
import TestSupport
import Testing
import UserRequests

/// The days of history and requests: made ahead, dropped when they are old, and never in the way of a request.
@Suite struct PartitionTests {
    private static let proof = #"[{"store":"google_play","kind":"purchase_token","value":"a-token"}]"#

    @Test func `Restores are taken at once while a transaction that read history is open at midnight`()
        async throws
    {
        try await World.with(isFresh: true) { world in
            let users = (1...50).map { "user-\($0)" }
            for user in users { try await world.add(user) }
            // As after midnight on a day that ends retention: one day to make, one to drop.
            for table in ["job_history", "job_request"] { try await world.lay(table, from: -92, to: 30) }
            let reader = PostgresPool(
                configuration: PostgresConfiguration(connectionString: world.database.url, maxConnections: 1),
                logger: .quiet
            )
            var slowest = Duration.zero
            var refused: [String] = []
            try await reader.withTransaction { open in
                try await open.query("SELECT count(*) FROM entitlement_sync.job_history")
                try await open.query("SELECT count(*) FROM entitlement_sync.job_request")
                await withTaskGroup(of: Void.self) { group in
                    for _ in 0..<2 {
                        group.addTask {
                            // Oftener than any worker tries.
                            while !Task.isCancelled {
                                _ = try? await world.pool.query("SELECT entitlement_sync.maintain_partitions()")
                            }
                        }
                    }
                    for (place, user) in users.enumerated() {
                        let asked = ContinuousClock.now
                        do {
                            if place.isMultiple(of: 2) {
                                _ = try await world.restore(user, proofs: Self.proof)
                            } else {
                                for answer in try await world.app.restores([
                                    RestoreWish(userID: user, proofs: Self.proof)
                                ]) {
                                    _ = try answer.get()
                                }
                            }
                        } catch { refused.append("\(user): \(error)") }
                        slowest = max(slowest, .now - asked)
                        // Spread over a second of upkeep.
                        try? await Task.sleep(for: .milliseconds(20))
                    }
                    group.cancelAll()
                }
            }
            await reader.close()
            #expect(refused.isEmpty)
            #expect(slowest < .milliseconds(500))
            #expect(try await world.number("SELECT count(*) FROM entitlement_sync.queue") == 50)
            #expect(try await Partitions(pool: world.pool, historyDays: 90).maintain())
            #expect(try await world.isCovered())
            let late: PostgresQuery = """
                SELECT count(*) FROM entitlement_sync.partitions_of('job_history') AS p
                 WHERE p.first_day IS NOT NULL AND p.high <= entitlement_sync.first_id_of((now() AT TIME ZONE 'UTC')::date - 90)
                """
            #expect(try await world.number(late) == 0)
        }
    }

    @Test func `After a failed try no process tries for minutes, and fourteen days without partitions are an alarm`()
        async throws
    {
        try await World.with(isFresh: true) { world in
            let partitions = Partitions(pool: world.pool, historyDays: 90)
            #expect(try await partitions.maintain())
            #expect(try await partitions.maintain(), "what was done is asked for again at will")
            #expect(try await world.alarms().isEmpty)
            try await world.lay("job_history", from: -3, to: 9)
            try await world.pool.withTransaction { open in
                try await open.query("SELECT count(*) FROM entitlement_sync.job_history")
                #expect(try await !partitions.maintain())
            }
            #expect(try await world.alarms() == ["partitions_low"])
            #expect(try await !partitions.maintain(), "the transaction is over, the wait is not")
            #expect(
                try await world.number(
                    """
                    SELECT count(*) FROM entitlement_sync.upkeep AS u
                     WHERE u.next_at BETWEEN now() + interval '4 minutes' AND now() + interval '5 minutes'
                    """
                ) == 1
            )
            try await world.pool.query("UPDATE entitlement_sync.upkeep SET next_at = now()")
            #expect(try await partitions.maintain())
            #expect(try await world.isCovered())
        }
    }

    @Test(arguments: [-7000, -400, -95, 40, 400, 731, 40_000])
    func `A restore is taken and answered on a day that no worker made, and stays known`(days: Int32) async throws {
        try await World.with(customers: ["{id: ann, state: active}", "{id: bob, state: active}"], isFresh: true) {
            world in
            for user in ["ann", "bob"] { try await world.add(user) }
            try await world.setClock(days)
            let there = try await world.restore("ann", proofs: Self.proof)
            // A worker of that day makes what it thinks is missing.
            try await world.pool.query("SELECT entitlement_sync.maintain_partitions()")
            try await world.setClock(0)
            let back = try await world.restore("bob", proofs: Self.proof)
            try await world.work()
            try await world.pool.query("SELECT entitlement_sync.maintain_partitions()")
            for job in [there, back] { #expect(try await world.status(job).outcome == "restored") }
            #expect(try await world.isCovered())
        }
    }

    @Test(arguments: [10, 3000])
    func `After 400 days without a worker every row is kept, and the coming days are made`(requests: Int64) async throws
    {
        try await World.with(isFresh: true) { world in
            try await world.lay("job_request", from: -490, to: -369)
            try await world.pool.query(
                """
                INSERT INTO entitlement_sync.job_request (id)
                SELECT entitlement_sync.first_id_at(now() - n * interval '2 hours')
                  FROM generate_series(0, \(requests - 1)) AS n
                UNION ALL SELECT entitlement_sync.first_id_at(now() + n * interval '40 days')
                  FROM generate_series(1, 20) AS n
                """
            )
            for _ in 0..<3 { try await world.pool.query("SELECT entitlement_sync.maintain_partitions()") }
            #expect(try await world.number("SELECT count(*) FROM entitlement_sync.job_request") == requests + 20)
            #expect(try await world.isCovered())
        }
    }

    @Test func `Holes are closed, an interrupted detach is brought to its end, and a full last range begins later`()
        async throws
    {
        try await World.with(isFresh: true) { world in
            try await world.pool.query(
                """
                INSERT INTO entitlement_sync.job_history (id, user_key, finished_at, kind, attempt, state)
                SELECT entitlement_sync.first_id_at(now() + interval '2 years' + n * interval '1 second'), 1, now(), 0, 0,
                       'done' FROM generate_series(1, 3000) AS n
                """
            )
            try await world.lay("job_history", from: -3, to: 20, keepsLast: true)
            let days = try await world.texts(
                "SELECT to_char((now() AT TIME ZONE 'UTC')::date - n, 'YYYYMMDD') FROM generate_series(2, 3) AS n ORDER BY n"
            )
            try await world.pool.query("DROP TABLE entitlement_sync.job_history_\(rawSQL: days[0])")
            // An administrator detaches a day, and stops while it waits for a reader.
            let administrator = PostgresPool(
                configuration: PostgresConfiguration(
                    connectionString: world.database.url,
                    statementTimeout: .milliseconds(500),
                    maxConnections: 1
                ),
                logger: .quiet
            )
            try await world.pool.withTransaction { reader in
                try await reader.query("SELECT count(*) FROM entitlement_sync.job_history")
                await #expect(throws: PostgresError.self) {
                    try await administrator.query(
                        """
                        ALTER TABLE entitlement_sync.job_history
                        DETACH PARTITION entitlement_sync.job_history_\(rawSQL: days[1]) CONCURRENTLY
                        """
                    )
                }
            }
            await administrator.close()
            let pending: PostgresQuery = """
                SELECT count(*) FROM entitlement_sync.partitions_of('job_history') AS p WHERE p.is_pending
                """
            #expect(try await world.number(pending) == 1)
            try await world.pool.query("SELECT entitlement_sync.maintain_partitions()")
            #expect(try await world.number(pending) == 0)
            // What was detached is the administrator's.
            try await world.pool.query("DROP TABLE entitlement_sync.job_history_\(rawSQL: days[1])")
            #expect(try await world.isCovered())
            #expect(try await world.number("SELECT count(*) FROM entitlement_sync.job_history") == 3000)
        }
    }

    @Test
    func `What a waiting job said outlives retention, and few days are dropped at once`()
        async throws
    {
        try await World.with(isFresh: true) { world in
            try await world.add("ann")
            try await world.lay("job_request", from: -120, to: 32)
            try await world.setClock(-119)
            let job = try await world.restore("ann", proofs: Self.proof)
            try await world.setClock(0)
            try await world.pool.query("SELECT entitlement_sync.maintain_partitions()")
            let said: PostgresQuery = "SELECT count(*) FROM entitlement_sync.job_request WHERE id = \(job)"
            let days: PostgresQuery = """
                SELECT count(*) FROM entitlement_sync.partitions_of('job_request') AS p
                 WHERE p.first_day IS NOT NULL AND p.low < entitlement_sync.first_id_of((now() AT TIME ZONE 'UTC')::date - 90)
                """
            #expect(try await world.number(said) == 1)
            #expect(try await world.number(days) == 29, "those of the job's day and later")
            try await world.pool.query("DELETE FROM entitlement_sync.queue")
            try await world.pool.query("SELECT entitlement_sync.maintain_partitions()")
            #expect(try await world.number(said) == 0)
            #expect(try await world.number(days) == 26)
        }
    }

    @Test func `No partition of an append-only table can be emptied, and a blocked month is an alarm`() async throws {
        try await World.with(isFresh: true) { world in
            let open = try await world.texts(
                """
                SELECT p.part::text FROM unnest('{decision}'::text[]) AS t(name)
                 CROSS JOIN LATERAL entitlement_sync.partitions_of(t.name) AS p
                 WHERE NOT EXISTS (SELECT 1 FROM pg_trigger AS g
                                    WHERE g.tgrelid = format('entitlement_sync.%I', p.part)::regclass AND g.tgname = 'no_truncate')
                """
            )
            #expect(open == [])
            let last = try await world.texts(
                "SELECT max(p.part)::text FROM entitlement_sync.partitions_of('decision') AS p WHERE p.first_day IS NOT NULL"
            )
            await #expect(throws: PostgresError.self) {
                try await world.pool.query("TRUNCATE entitlement_sync.\(rawSQL: try #require(last.first))")
            }
            try await world.pool.query("DROP TABLE entitlement_sync.\(rawSQL: try #require(last.first))")
            #expect(try await world.number("SELECT count(*) FROM entitlement_sync.days_to_partition('decision')") == 1)
            #expect(
                try await world.number(
                    "SELECT count(*) FROM entitlement_sync.days_to_partition('decision', interval '100 days')"
                ) == 1
            )
            #expect(
                try await world.number(
                    "SELECT count(*) FROM entitlement_sync.days_to_partition('decision', interval '14 days')"
                ) == 0
            )
            #expect(try await Partitions(pool: world.pool, historyDays: 90).maintain())
            #expect(try await world.number("SELECT count(*) FROM entitlement_sync.days_to_partition('decision')") == 0)
        }
    }
}

extension World {
    /// Lays out a table's partitions: days from one to another (not included), and the open ends.
    fileprivate func lay(_ table: String, from: Int32, to: Int32, keepsLast: Bool = false) async throws {
        try await pool.query(
            """
            CREATE OR REPLACE FUNCTION pg_temp.lay(parent text, first integer, until integer, keeps boolean) RETURNS void
            LANGUAGE plpgsql SET search_path = entitlement_sync, pg_temp AS $$
            DECLARE
                today date := (now() AT TIME ZONE 'UTC')::date;
                p     record;
            BEGIN
                FOR p IN SELECT x.part FROM partitions_of(parent) AS x LOOP
                    IF keeps AND p.part = parent || '_after' THEN
                        EXECUTE format('ALTER TABLE %I DETACH PARTITION %I', parent, p.part);
                    ELSE
                        EXECUTE format('DROP TABLE %I', p.part);
                    END IF;
                END LOOP;
                PERFORM cover_ids(parent, parent || '_before', NULL, first_id_of(today + first));
                FOR n IN first .. until - 1 LOOP
                    PERFORM cover_ids(parent, parent || to_char(today + n, '_YYYYMMDD'), first_id_of(today + n),
                                      first_id_of(today + n + 1));
                END LOOP;
                IF keeps THEN
                    EXECUTE format('ALTER TABLE %I ATTACH PARTITION %I FOR VALUES FROM (%L) TO (MAXVALUE)', parent,
                                   parent || '_after', first_id_of(today + until));
                ELSE
                    PERFORM cover_ids(parent, parent || '_after', first_id_of(today + until), NULL);
                END IF;
            END
            $$;
            """
        )
        try await pool.query("SELECT pg_temp.lay(\(table), \(from), \(to), \(keepsLast))")
    }

    /// Moves the clock by which ids are made.
    fileprivate func setClock(_ days: Int32) async throws {
        try await pool.query(
            """
            CREATE OR REPLACE FUNCTION entitlement_sync.new_id() RETURNS uuid
            LANGUAGE sql VOLATILE PARALLEL SAFE AS $$
                SELECT overlay(encode(set_bit(set_bit(uuid_send(gen_random_uuid()), 52, 1), 53, 1), 'hex') PLACING
                               left(replace(entitlement_sync.first_id_at(clock_timestamp()
                                            + \(rawSQL: "\(days)") * interval '1 day')::text, '-', ''), 12)
                               FROM 1 FOR 12)::uuid
            $$
            """
        )
    }

    /// Whether the coming days have partitions of their own, and every id has one.
    fileprivate func isCovered() async throws -> Bool {
        try await number(
            """
            SELECT (count(*) = 0)::int FROM entitlement_sync.partitioned_tables() AS t
             WHERE EXISTS (SELECT 1 FROM entitlement_sync.days_to_partition(t.name))
                OR EXISTS (SELECT 1 FROM entitlement_sync.partitions_of(t.name) AS p
                            WHERE p.is_default OR p.is_pending)
                OR (SELECT count(*) FROM entitlement_sync.partitions_of(t.name) AS p
                     WHERE EXISTS (SELECT 1 FROM entitlement_sync.partitions_of(t.name) AS q WHERE q.high = p.low)) + 1
                   <> (SELECT count(*) FROM entitlement_sync.partitions_of(t.name))
                OR NOT EXISTS (SELECT 1 FROM entitlement_sync.partitions_of(t.name) AS p WHERE p.low IS NULL)
                OR NOT EXISTS (SELECT 1 FROM entitlement_sync.partitions_of(t.name) AS p WHERE p.high IS NULL)
                OR EXISTS (SELECT 1 FROM pg_catalog.pg_class AS c
                            WHERE c.relkind = 'r' AND NOT c.relispartition AND c.relname ~ ('^' || t.name || '_'))
            """
        ) == 1
    }
}
