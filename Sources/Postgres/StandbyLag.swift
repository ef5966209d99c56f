/// How far a standby is behind its primary.
package struct StandbyLag: Sendable {
    package var seconds: Double

    package var words: String { seconds < 1 ? "less than a second behind" : "\(Int(seconds)) s behind" }

    /// `nil`: the server is the primary.
    package init?(in pool: PostgresPool) async throws(PostgresError) {
        // Where the primary is idle, the last transaction's age says nothing: all that came is replayed. Where none comes, it does.
        let found = try await pool.query(
            """
            SELECT CASE WHEN NOT pg_is_in_recovery() THEN NULL
                        WHEN pg_last_wal_receive_lsn() = pg_last_wal_replay_lsn()
                             AND EXISTS (SELECT 1 FROM pg_stat_wal_receiver AS r WHERE r.pid IS NOT NULL) THEN 0
                        ELSE coalesce(extract(epoch FROM clock_timestamp() - pg_last_xact_replay_timestamp()), 0)
                   END::double precision
            """
        ).one.decode(Double?.self)
        guard let found else { return nil }
        seconds = found
    }
}
