/// How far a server is behind its primary.
package enum StandbyLag {
    /// In seconds; `nil`: the server is the primary.
    package static func seconds(in pool: PostgresPool) async throws(PostgresError) -> Double? {
        // Where the primary is idle, the last transaction's age says nothing: all that came is replayed.
        try await pool.query(
            """
            SELECT CASE WHEN NOT pg_is_in_recovery() THEN NULL
                        WHEN pg_last_wal_receive_lsn() = pg_last_wal_replay_lsn() THEN 0
                        ELSE coalesce(extract(epoch FROM clock_timestamp() - pg_last_xact_replay_timestamp()), 0) END::double precision
            """
        ).one.decode(Double?.self)
    }

    /// The same as words; `nil`: the server is the primary.
    package static func words(in pool: PostgresPool) async throws(PostgresError) -> String? {
        try await seconds(in: pool).map { seconds in
            seconds < 1 ? "less than a second behind" : "\(Int(seconds)) s behind"
        }
    }
}
