package import Postgres

/// Counts requests of a minute over all processes.
package struct RequestCounts: Sendable {
    private let pool: PostgresPool

    package init(pool: PostgresPool) { self.pool = pool }

    /// What was given.
    package struct Given: Sendable, Hashable {
        package var requests: Int
        /// How long the minute lasts that they are counted in.
        package var wait: Duration
    }

    /// Takes requests of the minute that began with the first one of this key.
    ///
    /// `wanted`: 1 or more. `allowed`: how many a minute has. `key`: a digest of the caller that they are counted for.
    ///
    /// - Returns: at most `wanted`; none where the minute is used up.
    package func take(_ wanted: Int, of allowed: Int, for key: PostgresBytes) async throws(PostgresError) -> Given {
        let (given, wait) = try await pool.query(
            """
            SELECT t.given, t.wait
              FROM entitlement_sync.take_requests(\(key), \(Int32(clamping: allowed)), \(Int32(clamping: wanted))) AS t
            """
        ).one.decode(Int.self, Double.self)
        return Given(requests: given, wait: .seconds(wait))
    }
}
