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

    /// Workers that are set up alike.
    package struct Workers: Sendable {
        package var version: String
        package var mode: String?
        /// The names of the stores that they ask, with commas between them.
        package var stores: String?
        package var sandbox: String?
        package var count: Int64
    }

    /// How many workers are alive by version, mode, stores and whose sandbox purchases count.
    package func workers() async throws -> [Workers] {
        try await pool.query(
            """
            SELECT w.version, w.mode, CASE w.stores WHEN '{}' THEN 'none' ELSE array_to_string(w.stores, ', ') END, w.sandbox, count(*)
              FROM entitlement_sync.worker AS w
             WHERE w.expires_at > clock_timestamp() GROUP BY 1, 2, 3, 4 ORDER BY 5 DESC, 1, 2, 3, 4
            """
        ).map { try $0.decode(into: Workers.init) }
    }
}
