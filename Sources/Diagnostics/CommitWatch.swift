package import Logging
package import Postgres
package import Queue

/// Notes which database server commits, and whether its commits wait for a standby.
///
/// A failover that may have lost commits is seen by the first worker that reaches the new server. The database decides what
/// that means: `note_server` in sql/functions/safeguards.sql.
package struct CommitWatch: Sendable {
    private let pool: PostgresPool

    package init(pool: PostgresPool) { self.pool = pool }

    /// Notes it now; returns the names of the alarms that were raised.
    package func note() async throws -> [String] {
        try await pool.query("SELECT n FROM entitlement_sync.note_server() AS n").map { try $0.decode(String.self) }
    }

    package func service(logger: Logger) -> PeriodicService {
        PeriodicService("commit watch", .upkeep, every: .seconds(5), logger: logger) {
            for name in try await note() {
                logger.error("an alarm was raised; doctor says what to do", metadata: ["alarm.name": "\(name)"])
            }
            return .idle
        }
    }
}
