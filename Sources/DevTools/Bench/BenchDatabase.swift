import Entitlements
import Foundation
import Logging
import Migrations
import Postgres
import Queue

/// A database of the bench's own on the configured server, with sample users and jobs.
struct BenchDatabase: Sendable {
    let pool: PostgresPool
    private let admin: PostgresPool
    /// The same work without the worker, on this database.
    let plainSQL: PlainSQL
    let name: String

    /// Creates and fills the database, under a name that ends in `suffix`; the server's user must be allowed to create
    /// databases.
    init(
        admin: PostgresConfiguration,
        configuration: PostgresConfiguration,
        sqlDirectory: String,
        logger: Logger,
        suffix: String = ""
    ) async throws {
        name = "entitlement_sync_bench_\(ProcessInfo.processInfo.processIdentifier)\(suffix)"
        self.admin = PostgresPool(configuration: admin, logger: logger)
        try await self.admin.query("CREATE DATABASE \(rawSQL: name)")
        let configuration = configuration.inDatabase(name)
        plainSQL = PlainSQL(configuration: configuration)
        pool = PostgresPool(configuration: configuration, logger: logger)
        do {
            let schema = try String(contentsOfFile: sqlDirectory + "/host/schema.sql", encoding: .utf8)
            try await pool.withConnection { try await $0.execute(script: schema) }
            let source = try SchemaSource.load(directory: sqlDirectory)
            _ = try await Migrator(pool: pool, source: source)
                .run(adapterPath: sqlDirectory + "/host/adapter.sql", dryRun: false)
            try await pool.query(
                """
                INSERT INTO entitlement_sync.product (store, product_id, entitlement, grants_access)
                VALUES ('revenuecat', 'premium', 'premium', true)
                """
            )
            try await pool.withConnection { try await $0.execute(script: PlainSQL.procedures) }
        } catch {
            await drop()
            throw error
        }
    }

    /// Gives the server files of its log to write to again, as one that has run for a while has.
    ///
    /// A new one makes each file when it gets there, and all commits wait until 16 MiB of zeros are on the disk.
    /// Source: https://www.postgresql.org/docs/15/wal-configuration.html
    ///
    /// The whole server's log grows by a gibibyte, so nothing is done where it is archived or copied elsewhere.
    ///
    /// - Returns: `false`: that, or the bench's user may not.
    func wearIn() async -> Bool {
        do {
            return try await admin.withConnection { connection in
                let isAlone = try await connection.query(
                    """
                    SELECT current_setting('archive_mode') = 'off'
                           AND NOT EXISTS (SELECT 1 FROM pg_catalog.pg_replication_slots)
                           AND NOT EXISTS (SELECT 1 FROM pg_catalog.pg_stat_replication)
                    """
                ).first?.decode(Bool.self, at: 0)
                guard isAlone == true else { return false }
                for _ in 0..<Self.logFiles {
                    try await connection.query("SELECT pg_logical_emit_message(false, 'entitlement_sync', 'bench')")
                    try await connection.query("SELECT pg_switch_wal()")
                }
                try await connection.query("CHECKPOINT")
                return true
            }
        } catch { return false }
    }

    /// A gibibyte, which is as much as a server keeps by default (`max_wal_size`).
    private static let logFiles = 64

    /// Lets the server know what was loaded, as it does by itself within minutes.
    func settle() async throws {
        try await pool.query("VACUUM (ANALYZE) users, assets, entitlement_sync.user_sync")
    }

    /// Loads free users, each with `assets` that the lapse froze, and a restore for each where they are `queued`.
    func load(_ count: Int, prefix: String, queued: Bool = true, assets: Int = 1) async throws {
        try await pool.withConnection { connection in
            try await connection.query(
                "INSERT INTO users (id) SELECT \(prefix) || n FROM generate_series(1, \(Int64(count))) AS n"
            )
            try await connection.query(
                """
                INSERT INTO assets (user_id, frozen_reasons, frozen_at)
                SELECT \(prefix) || n, '{subscription_lapsed}', now()
                  FROM generate_series(1, \(Int64(count))) AS n CROSS JOIN generate_series(1, \(Int64(assets))) AS a
                """
            )
            try await connection.query(
                """
                INSERT INTO entitlement_sync.user_sync (user_id)
                SELECT \(prefix) || n FROM generate_series(1, \(Int64(count))) AS n
                """
            )
        }
        if queued { try await queue("restore", lane: 0, prefix: prefix) }
    }

    /// Loads users without assets and without jobs, each with a check within the month; `type`: `free` or `subscriber`.
    func loadKnown(_ count: Int, prefix: String, type: String) async throws {
        try await pool.query(
            "INSERT INTO users (id, type) SELECT \(prefix) || n, \(type) FROM generate_series(1, \(Int64(count))) AS n"
        )
        try await pool.query(
            """
            INSERT INTO entitlement_sync.user_sync (user_id, next_check_at)
            SELECT \(prefix) || n, now() + interval '1 day' + n * interval '29 days' / \(Int64(count))
              FROM generate_series(1, \(Int64(count))) AS n
            """
        )
    }

    func check(prefix: String) async throws { try await queue("reconcile", lane: 2, prefix: prefix) }

    private func queue(_ kind: String, lane: Int16, prefix: String) async throws {
        try await pool.query(
            """
            INSERT INTO entitlement_sync.queue (user_key, due, lane, \(rawSQL: kind)_id, \(rawSQL: kind)_due)
            SELECT u.user_key, now(), \(lane), entitlement_sync.new_id(), now()
              FROM entitlement_sync.user_sync AS u WHERE u.user_id LIKE \(prefix + "%")
            """
        )
    }

    /// Queues a check of every so many users of `SampleHistory`.
    ///
    /// - Returns: how many checks.
    func check(every step: Int, of users: Int) async throws -> Int {
        try await pool.query(
            """
            INSERT INTO entitlement_sync.queue (user_key, due, lane, reconcile_id, reconcile_due)
            SELECT \(Int64(SampleHistory.firstKey)) + n, now(), 2, entitlement_sync.new_id(), now()
              FROM generate_series(\(Int64(step)), \(Int64(users)), \(Int64(step))) AS n
            ON CONFLICT (user_key) DO NOTHING
            RETURNING 1
            """
        ).count
    }

    /// Adds an operator whose session is open; `session`: what they show with each request.
    func signIn(_ session: [UInt8]) async throws {
        try await pool.query(
            """
            WITH who AS (
                INSERT INTO entitlement_sync.operator (name, role) VALUES ('bench', 'admin') RETURNING id
            )
            INSERT INTO entitlement_sync.operator_session (digest, operator_id, kind)
            SELECT sha256(\(PostgresBytes(session))), w.id, 'terminal' FROM who AS w
            """
        )
    }

    /// Counts so many demotions toward the brake, in every minute of the last day.
    func loadDemotions(_ count: Int) async throws {
        try await pool.query(
            """
            INSERT INTO entitlement_sync.brake_minute (minute, demotions)
            SELECT date_trunc('minute', now()) - n * interval '1 minute', \(Int32(count / 1440))
              FROM generate_series(0, 1439) AS n
            """
        )
    }

    /// Whether the pass over the known users that plans their checks is under way.
    func isInRound() async throws -> Bool {
        try await pool.query("SELECT r.after_key > 0 FROM entitlement_sync.check_round AS r").first?
            .decode(Bool.self, at: 0) ?? false
    }

    /// Bytes of all tables and indexes of the schema after VACUUM: of the jobs' history, which retention drops, and of the rest.
    func bytes() async throws -> (kept: Double, history: Double) {
        try await pool.query("VACUUM")
        return try await pool.query(
            """
            SELECT coalesce(sum(s.bytes) FILTER (WHERE s.name !~ '^job_history_'), 0)::double precision,
                   coalesce(sum(s.bytes) FILTER (WHERE s.name ~ '^job_history_'), 0)::double precision
              FROM (SELECT c.relname AS name, pg_table_size(c.oid) + pg_indexes_size(c.oid) AS bytes
                      FROM pg_catalog.pg_class AS c
                     WHERE c.relnamespace = 'entitlement_sync'::regnamespace AND c.relkind = 'r') AS s
            """
        ).one.decode(Double.self, Double.self)
    }

    /// How far the server's log has come, in bytes.
    func logPosition() async throws -> Double {
        Double(try await number("SELECT (pg_current_wal_lsn() - '0/0'::pg_lsn)::bigint"))
    }

    func clearUsers() async throws {
        try await pool.query(
            """
            TRUNCATE users, assets, entitlement_sync.user_sync, entitlement_sync.queue, entitlement_sync.purchase,
                     entitlement_sync.purchase_identifier, entitlement_sync.run, entitlement_sync.run_part,
                     entitlement_sync.run_change CASCADE
            """
        )
    }

    /// How long users waited for restores, in milliseconds, by the database's clock; only of those that have ended.
    func restoreTimes(_ ids: [UUID]) async throws -> [Double] {
        try await pool.query(
            """
            SELECT extract(epoch FROM s.finished_at - s.created_at)::double precision * 1000
              FROM entitlement_sync.job_status AS s WHERE s.id = ANY (\(ids)) AND s.state = 'done'
            """
        ).map { try $0.decode(Double.self, at: 0) }
    }

    /// Queues a restore again for the next users of a prefix, those behind the key `after`.
    ///
    /// - Returns: the key of the last one.
    @discardableResult
    func tap(_ count: Int, prefix: String, after: Int64 = 0) async throws -> Int64 {
        try await pool.query(
            """
            WITH tapped AS (
                INSERT INTO entitlement_sync.queue (user_key, due, lane, restore_id, restore_due)
                SELECT u.user_key, now(), 0, entitlement_sync.new_id(), now()
                  FROM entitlement_sync.user_sync AS u
                 WHERE u.user_key > \(after) AND u.user_id LIKE \(prefix + "%")
                 ORDER BY u.user_key
                 LIMIT \(Int64(count))
                RETURNING user_key
            )
            SELECT max(t.user_key) FROM tapped AS t
            """
        ).first?.decode(Int64?.self, at: 0) ?? after
    }

    func clearQueue() async throws { try await pool.query("TRUNCATE entitlement_sync.queue") }

    /// The size of the hot queue with its indexes, in MiB.
    func queueSize() async throws -> Double {
        Double(try await number("SELECT pg_total_relation_size('entitlement_sync.queue')")) / 1_048_576
    }

    /// What it costs to claim a job, 500 at a time as a worker does, in microseconds.
    ///
    /// Queues a restore for users of a prefix, claims them all, and empties the queue without a trace.
    func claimCost(_ count: Int, prefix: String) async throws -> Double {
        let queue = JobQueue(pool: pool)
        let leases = Leases(pool: pool, duration: .seconds(60))
        try await tap(count, prefix: prefix)
        let epoch = try await leases.register(.init(host: "bench", pid: 0, version: "bench"))
        let limits = JobLane.allCases.filter { $0 != .quarantine }.map { JobQueue.LaneLimit(lane: $0, limit: 500) }
        var (claimed, last) = (0, 0)
        let elapsed = try await ContinuousClock().measure {
            repeat {
                last = try await queue.claim(limits, upTo: 500, for: epoch).count
                claimed += last
            } while last > 0
        }
        try await pool.query("DELETE FROM entitlement_sync.queue")
        try await leases.end(epoch)
        return elapsed.milliseconds * 1000 / Double(max(claimed, 1))
    }

    /// Runs a body while another session holds a snapshot of now, as a forgotten transaction or a long report does.
    func withPinnedHorizon(_ body: () async throws -> Void) async throws {
        try await pool.withConnection { connection in
            try await connection.execute(
                script: "SET idle_in_transaction_session_timeout = 0; BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1"
            )
            try await body()
            try await connection.execute(script: "ROLLBACK; RESET idle_in_transaction_session_timeout")
        }
    }

    /// The median time of a commit that writes one row, in milliseconds.
    func commitLatency() async throws -> Double {
        try await pool.query("CREATE TABLE IF NOT EXISTS bench_commit (n integer)")
        let clock = ContinuousClock()
        return try await pool.withConnection { connection in
            var times: [Double] = []
            for n in 0..<300 {
                let started = clock.now
                try await connection.query("INSERT INTO bench_commit VALUES (\(Int32(n)))")
                times.append((clock.now - started).milliseconds)
            }
            return times.percentile(50)
        }
    }

    func subscribers(prefix: String) async throws -> Int64 {
        try await number("SELECT count(*) FROM users AS u WHERE u.type = 'subscriber' AND u.id LIKE \(prefix + "%")")
    }

    /// A query's only number; 0 where there is none.
    func number(_ query: PostgresQuery) async throws -> Int64 {
        try await pool.query(query).first?.decode(Int64.self, at: 0) ?? 0
    }

    /// Settings that matter for the figures.
    func settings() async throws -> String {
        try await pool.query(
            """
            SELECT string_agg(s.name || '=' || s.setting || coalesce(s.unit, ''), ' ' ORDER BY s.name)
              FROM pg_settings AS s
             WHERE s.name IN ('server_version', 'fsync', 'full_page_writes', 'synchronous_commit', 'shared_buffers',
                              'max_wal_size', 'autovacuum')
            """
        ).first?.decode(String.self, at: 0) ?? ""
    }

    /// Removes the database, also after a signal, when the task is cancelled.
    func drop() async {
        await Task {
            await pool.close()
            do {
                try await admin.query("DROP DATABASE IF EXISTS \(rawSQL: name) WITH (FORCE)")
            } catch {
                let text = "the database \(name) could not be removed; drop it by hand\n"
                FileHandle.standardError.write(Data(text.utf8))
            }
            await admin.close()
        }.value
    }
}
