package import Postgres

/// How the stores answer, for `doctor`.
package struct StoreHealth: Sendable {
    private let pool: PostgresPool

    package init(pool: PostgresPool) { self.pool = pool }

    /// What was learned of a store.
    struct News {
        var hasAnswered = false
        /// A code.
        var error: String?
        /// How far the store's clock is ahead of ours.
        var skewSeconds: Double?
        /// How long its answers take; the newest count most.
        var latencySeconds: Double?

        /// Both together.
        func with(_ other: News) -> News {
            News(
                hasAnswered: hasAnswered || other.hasAnswered,
                error: error ?? other.error,
                skewSeconds: skewSeconds ?? other.skewSeconds,
                // The slower of two endpoints is what people wait for.
                latencySeconds: [latencySeconds, other.latencySeconds].compactMap(\.self).max()
            )
        }
    }

    /// Notes answers, errors and the store's clock.
    func note(_ store: String, _ news: News) async throws {
        try await pool.query(
            """
            INSERT INTO entitlement_sync.store_health AS h
                   (store, last_answer_at, last_error_at, last_error, skew_seconds, latency_seconds)
            VALUES (\(store), CASE WHEN \(news.hasAnswered) THEN now() END,
                    CASE WHEN \(news.error)::text IS NOT NULL THEN now() END, \(news.error), \(news.skewSeconds),
                    \(news.latencySeconds))
            ON CONFLICT (store) DO UPDATE
               SET last_answer_at = coalesce(excluded.last_answer_at, h.last_answer_at),
                   last_error_at = coalesce(excluded.last_error_at, h.last_error_at),
                   last_error = coalesce(excluded.last_error, h.last_error),
                   skew_seconds = coalesce(excluded.skew_seconds, h.skew_seconds),
                   latency_seconds = coalesce(excluded.latency_seconds, h.latency_seconds)
            """
        )
    }
}
