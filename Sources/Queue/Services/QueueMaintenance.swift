package import Logging
package import Postgres
import ServiceLifecycle

/// Creates partitions ahead and drops those whose retention has passed.
package struct PartitionMaintainer: Service {
    private let partitions: Partitions
    private let logger: Logger

    package init(_ partitions: Partitions, logger: Logger) {
        self.partitions = partitions
        self.logger = logger
    }

    package func run() async {
        // At first a worker works off what waits.
        await PeriodicService(
            "partition maintainer",
            .upkeep,
            every: .seconds(300),
            after: .seconds(60),
            logger: logger
        ) {
            try await step()
        }.run()
    }

    package func step() async throws -> PeriodicService.Next {
        try await partitions.maintain() ? .after(.seconds(3600)) : .idle
    }
}

/// Moves a queue that is full of dead row versions to new files.
package struct QueueCompactor: Service {
    private let pool: PostgresPool
    private let logger: Logger

    package init(pool: PostgresPool, logger: Logger) {
        self.pool = pool
        self.logger = logger
    }

    package func run() async {
        await PeriodicService("queue compactor", .upkeep, every: .seconds(5), logger: logger) {
            if try await compact() { logger.info("the queue was full of dead rows and has been moved") }
            return .idle
        }.run()
    }

    /// Moves the queue where that is worth it.
    ///
    /// - Returns: whether it did; false where it is small, where many jobs wait, where a transaction holds it, and in the
    ///   minutes after a failed try.
    package func compact() async throws -> Bool {
        try await pool.query("SELECT entitlement_sync.compact_queue()").first?.decode(Bool.self, at: 0) ?? false
    }
}
