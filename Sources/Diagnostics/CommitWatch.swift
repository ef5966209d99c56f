package import Logging
package import Postgres
package import Queue
import Synchronization

/// Notes which database server commits, and whether its commits wait for a standby.
///
/// A failover that may have lost commits is noticed by the first worker that reaches the new server, and one that has lost a
/// note by every worker that has seen it. The database decides what that means: `note_server` in
/// sql/functions/safeguards.sql.
package final class CommitWatch: Sendable {
    private let pool: PostgresPool
    /// The number of the newest note that this process knows to be committed.
    private let seen = Mutex<Int64>(0)

    package init(pool: PostgresPool) { self.pool = pool }

    /// Notes it now; returns the names of the alarms that were raised.
    package func note() async throws -> [String] {
        let known = seen.withLock { $0 }
        let (newest, raised) = try await pool.query(
            "SELECT n.newest, n.raised FROM entitlement_sync.note_server(\(known)) AS n"
        ).one.decode(Int64.self, [String].self)
        seen.withLock { $0 = max($0, newest) }
        return raised
    }

    package func service(logger: Logger) -> PeriodicService {
        PeriodicService("commit watch", every: .seconds(5), logger: logger) { [self] in
            for name in try await note() {
                logger.error("an alarm was raised; doctor says what to do", metadata: ["alarm.name": "\(name)"])
            }
            return .idle
        }
    }
}
