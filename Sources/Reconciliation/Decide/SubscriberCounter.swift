package import Logging
package import Postgres
import Queue
import ServiceLifecycle

/// Counts the host's subscribers: the demotion brake allows a share of them to be demoted.
package struct SubscriberCounter: Service {
    private let pool: PostgresPool
    private let logger: Logger

    package init(pool: PostgresPool, logger: Logger) {
        self.pool = pool
        self.logger = logger
    }

    package func run() async {
        await PeriodicService("subscriber counter", .upkeep, every: .seconds(60), logger: logger) {
            try await count()
            return .idle
        }.run()
    }

    /// Counts them, unless a worker did within five minutes.
    ///
    /// Outside of every other transaction: on a large host it takes a while.
    package func count() async throws {
        // Marked first, so that many workers do not count together.
        let due = try await pool.query(
            """
            UPDATE entitlement_sync.brake AS b SET counted_at = now()
             WHERE b.counted_at IS NULL OR b.counted_at < now() - interval '5 minutes'
            """
        )
        guard due.affected > 0 else { return }
        let now = try await pool.query("SELECT entitlement_sync_host.count_subscribers()").first
        let used = try await pool.query(BrakeStore.spent).first
        let subscribers = try (now?.decode(Int64.self, at: 0) ?? 0) + (used?.decode(Int64.self, at: 0) ?? 0)
        try await pool.withConnection { connection in try await BrakeStore.note(subscribers, on: connection) }
    }
}
