import Postgres
import Queue

/// What the server does to a table whose rows live for a second: dead ones have to go as fast as they come.
struct ServerChecks {
    let pool: PostgresPool
    let limits: DoctorLimits

    /// Whatever keeps dead rows from being removed.
    ///
    /// A session that may not see others' activity still sees how many transactions ago they began.
    func horizon() async throws -> Check? {
        let rows = try await pool.query(
            """
            SELECT h.kind, h.name, h.detail, h.seconds, h.transactions, count(*) OVER ()
              FROM (SELECT 'session' AS kind, a.pid::text AS name,
                           coalesce(nullif(a.application_name, ''), 'no name') || ', user '
                               || coalesce(a.usename, 'unknown') AS detail,
                           coalesce(extract(epoch FROM clock_timestamp() - a.xact_start), 0)::bigint AS seconds,
                           coalesce(greatest(age(a.backend_xmin), age(a.backend_xid)), 0)::bigint AS transactions
                      FROM pg_catalog.pg_stat_activity AS a
                     WHERE a.pid <> pg_backend_pid() AND a.backend_type <> 'autovacuum worker'
                       AND (a.datname = current_database() OR a.backend_type = 'walsender')
                       AND (a.backend_xmin IS NOT NULL OR a.backend_xid IS NOT NULL)
                     UNION ALL
                    SELECT 'prepared', x.gid, 'owner ' || x.owner,
                           extract(epoch FROM clock_timestamp() - x.prepared)::bigint, age(x.transaction)
                      FROM pg_catalog.pg_prepared_xacts AS x WHERE x.database = current_database()
                     UNION ALL
                    SELECT 'slot', s.slot_name, CASE WHEN s.active THEN 'in use' ELSE 'not in use' END, 0,
                           coalesce(greatest(age(s.xmin), age(s.catalog_xmin)), 0)
                      FROM pg_catalog.pg_replication_slots AS s) AS h
             WHERE h.seconds > \(limits.transaction / .seconds(1)) OR h.transactions > \(limits.horizon)
             ORDER BY h.transactions DESC, h.seconds DESC LIMIT 1
            """
        )
        guard let row = rows.first else { return Check("horizon", fine: "nothing keeps dead rows from being removed") }
        let (kind, name, detail, seconds, transactions, count) = try row.decode(
            String.self,
            String.self,
            String.self,
            Int64.self,
            Int64.self,
            Int64.self
        )
        let (what, fix) =
            switch kind {
            case "session":
                (
                    "the transaction of session",
                    "SELECT pg_terminate_backend(\(name)) ends it; idle_in_transaction_session_timeout forbids the next."
                )
            case "prepared":
                ("the prepared transaction", "COMMIT PREPARED or ROLLBACK PREPARED '\(name)', as its owner.")
            default:
                (
                    "the replication slot",
                    "Start its reader again, or SELECT pg_drop_replication_slot('\(name)') if it has none any more."
                )
            }
        let others = count > 1 ? "; so do \(count - 1) more" : ""
        let age = "open for \(seconds) s, \(transactions) transactions behind"
        return Check(
            name: "horizon",
            ok: false,
            detail: "\(what) \(name) (\(detail)) keeps dead rows from being removed: \(age)\(others)",
            fix: fix
        )
    }

    /// Whether the hot table is much bigger than what is in it.
    func bloat() async throws -> Check? {
        let rows = try await pool.query(
            """
            SELECT pg_total_relation_size(t.relid), t.n_live_tup, t.n_dead_tup
              FROM pg_catalog.pg_stat_user_tables AS t
             WHERE t.schemaname = 'entitlement_sync' AND t.relname = 'queue'
            """
        )
        guard let (bytes, live, dead) = try rows.first?.decode(Int64.self, Int64.self, Int64.self) else { return nil }
        // A row with its places in the indexes, in pages that are half full.
        let isBig = bytes > limits.queueBytes + live * 1024
        let isDead = dead > limits.deadRows && dead > live
        return Check(
            name: "bloat",
            ok: !isBig && !isDead,
            detail: "entitlement_sync.queue takes \(bytes >> 20) MiB for \(live) rows, and \(dead) dead ones",
            fix: "Mend the finding horizon first, then VACUUM entitlement_sync.queue; where it stays big, stop the"
                + " workers for a moment and VACUUM FULL it."
        )
    }

    /// Whether notifications pile up because a listener does not take them.
    func notifications() async throws -> Check? {
        let usage = try await pool.query("SELECT pg_notification_queue_usage()").first?.decode(Double.self, at: 0) ?? 0
        return Check(
            name: "notifications",
            ok: usage <= limits.notifications,
            detail: "the server's queue of notifications is \(Int((usage * 100).rounded())) % full",
            fix: "Some session listens and stays in a transaction: find it in pg_stat_activity and end it. Once the"
                + " queue is full no user can ask for a restore."
        )
    }

    /// Whether a crash or a failover can lose commits that were acknowledged.
    func durability() async throws -> Check? {
        let row = try await pool.query(
            """
            SELECT current_setting('synchronous_commit'), current_setting('synchronous_standby_names'),
                   entitlement_sync.standbys()
            """
        ).one
        let (waits, standbys, following) = try row.decode(String.self, String.self, Int64.self)
        let fault: String? =
            switch (waits, standbys, following) {
            case ("off", _, _): "synchronous_commit is off: a crash may lose the last commits"
            case ("local", _, 1...): "synchronous_commit is local: a failover may lose the last commits"
            case (_, "", 1...): "synchronous_standby_names is empty: a failover may lose the last commits"
            case ("on", let names, 0) where !names.isEmpty: "commits wait until a standby follows"
            default: nil
            }
        let follow =
            switch following {
            case 0: "no standby follows"
            case 1: "1 standby follows"
            default: "\(following) standbys follow"
            }
        return Check(
            name: "durability",
            ok: fault == nil,
            detail: "\(follow); " + (fault ?? "a commit waits for \(standbys.isEmpty ? "the disk" : "a standby")"),
            fix: "Have standbys follow, set synchronous_standby_names (with Patroni: synchronous_mode and"
                + " synchronous_mode_strict), and leave synchronous_commit on."
        )
    }

    /// Slots that are not read keep the write-ahead log until the disk is full.
    func slots() async throws -> Check? {
        let rows = try await pool.query(
            """
            SELECT s.slot_name, pg_wal_lsn_diff(pg_current_wal_lsn(), s.restart_lsn)::bigint
              FROM pg_catalog.pg_replication_slots AS s
             WHERE NOT pg_is_in_recovery() AND NOT s.active AND s.restart_lsn IS NOT NULL
               AND pg_wal_lsn_diff(pg_current_wal_lsn(), s.restart_lsn) > \(limits.slotBytes)
             ORDER BY 2 DESC LIMIT 1
            """
        )
        guard let row = rows.first else {
            return Check("replication_slots", fine: "no idle slot keeps much of the log")
        }
        let (name, bytes) = try row.decode(String.self, Int64.self)
        return Check(
            name: "replication_slots",
            ok: false,
            detail: "no client reads the slot \(name), which keeps \(bytes >> 20) MiB of the write-ahead log",
            fix: "Start its reader again, or SELECT pg_drop_replication_slot('\(name)') before the disk is full."
        )
    }
}
