package import Entitlements
import FoundationEssentials
package import Postgres

/// Small reads outside the apply transaction.
package struct UserLookups: Sendable {
    private let pool: PostgresPool

    package init(pool: PostgresPool) { self.pool = pool }

    /// Which of these ids are users of the host.
    package func existing(_ ids: [String]) async throws -> Set<String> {
        try await pool.withConnection { connection in try await LedgerReads.existing(ids, on: connection) }
    }

    /// Which entitlements mean access now.
    package func catalog() async throws -> ProductCatalog {
        try await pool.withConnection { connection in try await LedgerReads.catalog(on: connection) }
    }
}

/// How the stores answer, for `doctor`.
package struct StoreHealth: Sendable {
    private let pool: PostgresPool

    package init(pool: PostgresPool) { self.pool = pool }

    /// Notes answers, errors and the store's clock.
    package func note(_ store: String, answered: Bool, error: String?, skewSeconds: Double?) async throws {
        try await pool.query(
            """
            INSERT INTO entitlement_sync.store_health AS h (store, last_answer_at, last_error_at, last_error, skew_seconds)
            VALUES (\(store), CASE WHEN \(answered) THEN now() END, CASE WHEN \(error)::text IS NOT NULL THEN now() END,
                    \(error), \(skewSeconds))
            ON CONFLICT (store) DO UPDATE
               SET last_answer_at = coalesce(excluded.last_answer_at, h.last_answer_at),
                   last_error_at = coalesce(excluded.last_error_at, h.last_error_at),
                   last_error = coalesce(excluded.last_error, h.last_error),
                   skew_seconds = coalesce(excluded.skew_seconds, h.skew_seconds)
            """
        )
    }
}

/// Housekeeping that any worker does about once an hour.
package struct Housekeeping: Sendable {
    private let pool: PostgresPool

    package init(pool: PostgresPool) { self.pool = pool }

    /// Makes the coming days' partitions, drops old ones, forgets idempotency keys after their seven days.
    package func run() async throws {
        try await pool.query("SELECT entitlement_sync.maintain_partitions()")
        try await pool.query(
            "DELETE FROM entitlement_sync.idempotency AS i WHERE i.created_at < now() - interval '7 days'"
        )
    }

    /// Moves a queue that is full of dead rows to new files.
    ///
    /// - Returns: whether it did; false where it is small, where many jobs wait, and where somebody is at work in it.
    package func compactQueue() async throws -> Bool {
        try await pool.query("SELECT entitlement_sync.compact_queue()").first?.decode(Bool.self, at: 0) ?? false
    }

    /// Counts the host's subscribers for the demotion brake, where nobody did within five minutes.
    ///
    /// Outside of every other transaction: on a large host it takes a while.
    package func countSubscribers() async throws {
        // Claimed first, so that many workers do not count together.
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

    /// Announces ended jobs; a hint, sent after the commit.
    package func announce(_ ended: [ApplyReport.Ended]) async throws {
        guard !ended.isEmpty else { return }
        let payloads = ended.map { job in
            let outcome = job.outcome.map { "\"\($0.rawValue)\"" } ?? "null"
            return "{\"job\":\"\(job.id.uuidString.lowercased())\",\"outcome\":\(outcome)}"
        }
        try await pool.query(
            "SELECT pg_notify('entitlement_sync_outcome', o.payload) FROM unnest(\(payloads)) AS o(payload)"
        )
    }
}
