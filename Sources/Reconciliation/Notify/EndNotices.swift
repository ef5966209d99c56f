import Entitlements
import FoundationEssentials
package import Postgres

/// Notifies clients that LISTEN to `entitlement_sync_outcome` of ended jobs: restores, and reconciles too.
package struct EndNotices: Sendable {
    private let pool: PostgresPool

    package init(pool: PostgresPool) { self.pool = pool }

    /// Notifies of ended jobs; a hint, sent after the commit.
    package func send(_ ended: [ApplyReport.Ended]) async throws {
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
