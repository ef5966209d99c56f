import Configuring
import Logging
import Postgres
import Queue
import Reconciliation
import ServiceLifecycle
import StoreEvents

/// Deletes records whose retention has passed.
package struct RetentionCleaner: Service {
    /// Days for which an event's id is kept, so that a repeated one is recognized: longer than any store repeats.
    private static let eventIDDays = 400

    let pool: PostgresPool
    let retention: Config.Retention
    let logger: Logger

    package func run() async {
        await PeriodicService("retention cleaner", .upkeep, every: .seconds(300), logger: logger) {
            try await clean()
            return .after(.seconds(3600))
        }.run()
    }

    /// Deletes what is due.
    package func clean() async throws {
        try await pool.query(
            "DELETE FROM entitlement_sync.idempotency AS i WHERE i.created_at < now() - interval '7 days'"
        )
        try await BrakeStore.forget(in: pool)
        try await pool.query("SELECT entitlement_sync.forget_requests()")
        try await pool.query("SELECT entitlement_sync.forget_sign_ins()")
        try await pool.query("SELECT entitlement_sync.forget_questions()")
        try await pool.query("SELECT entitlement_sync.forget_accounts()")
        try await pool.query("SELECT entitlement_sync.forget_runs(\(Int32(clamping: retention.historyDays)))")
        let inbox = Inbox(pool: pool)
        while try await inbox.forget(bodiesAfter: retention.eventDays, eventsAfter: Self.eventIDDays) {}
    }
}
