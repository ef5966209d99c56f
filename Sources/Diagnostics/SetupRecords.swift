package import Postgres

/// What is on record of how the program is set up.
package struct SetupRecords: Sendable {
    private let pool: PostgresPool

    package init(pool: PostgresPool) { self.pool = pool }

    /// How many products of each store are mapped; `play_store` is Google Play's other name.
    package func products() async throws -> [String: Int64] {
        let rows = try await pool.query(
            """
            SELECT CASE p.store WHEN 'play_store' THEN 'google_play' ELSE p.store END, count(*)
              FROM entitlement_sync.product AS p GROUP BY 1
            """
        )
        return Dictionary(try rows.map { try $0.decode(String.self, Int64.self) }) { $1 }
    }

    /// How many workers are alive by version and mode.
    package func workers() async throws -> [(version: String, mode: String?, count: Int64)] {
        try await pool.query(
            """
            SELECT w.version, w.mode, count(*) FROM entitlement_sync.worker AS w
             WHERE w.expires_at > clock_timestamp() GROUP BY 1, 2 ORDER BY 3 DESC, 1, 2
            """
        ).map { try $0.decode(String.self, String?.self, Int64.self) }
    }
}
