package import Logging
package import Postgres

/// Moves a queue that is full of dead row versions to new files.
package struct QueueCompactor: Sendable {
    private let pool: PostgresPool

    package init(pool: PostgresPool) { self.pool = pool }

    package func service(logger: Logger) -> PeriodicService {
        PeriodicService("queue compactor", .upkeep, every: .seconds(5), logger: logger) {
            if try await compact() { logger.info("the queue was full of dead rows and has been moved") }
            return .idle
        }
    }

    /// Moves the queue where that is worth it.
    ///
    /// Returns whether it did; false where it is small, where many jobs wait, where a transaction holds it, and in the
    /// minutes after a failed try.
    package func compact() async throws -> Bool {
        try await pool.query("SELECT entitlement_sync.compact_queue()").first?.decode(Bool.self, at: 0) ?? false
    }
}
