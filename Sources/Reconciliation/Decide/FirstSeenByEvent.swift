import Entitlements
import Postgres
import Queue

/// Purchases that came to their owner by an event alone.
enum FirstSeenByEvent {
    /// Of the submitted purchases that other users own: those that are known because an event named their owner, who has
    /// never restored.
    ///
    /// Asked only if a user submits a proof of another user's purchase, which is rare. Returns when each was first seen.
    static func purchases(
        shown jobs: [ReadJob],
        _ holders: [PurchaseIdentifierKey: Purchase],
        on connection: PostgresConnection
    ) async throws -> [Int64: Instant] {
        var ids: Set<Int64> = []
        for job in jobs {
            for observation in job.reading.observations where observation.isSubmitted {
                for identifier in observation.identifiers {
                    guard let held = holders[identifier.key], let owner = held.ownerKey, owner != job.job.userKey
                    else { continue }
                    ids.insert(held.id)
                }
            }
        }
        guard !ids.isEmpty else { return [:] }
        // An event waits for a sign-up for hours, and what it leads to is read seconds later.
        let rows = try await connection.query(
            """
            SELECT p.id, p.first_seen_at
              FROM entitlement_sync.purchase AS p
             WHERE p.id = ANY (\(ids.sorted())) AND p.transferred_at IS NULL
               AND EXISTS (SELECT 1 FROM entitlement_sync.inbox AS i
                            WHERE i.user_keys @> ARRAY[p.owner_key]
                              AND i.received_at BETWEEN p.first_seen_at - interval '6 hours' AND p.first_seen_at)
               AND NOT EXISTS (SELECT 1 FROM entitlement_sync.job_history AS h
                                WHERE h.user_key = p.owner_key AND h.kind = 0)
               AND NOT EXISTS (SELECT 1 FROM entitlement_sync.queue AS q
                                WHERE q.user_key = p.owner_key AND q.restore_id IS NOT NULL)
            """
        )
        return Dictionary(try rows.map { try $0.decode(Int64.self, Instant.self) }) { $1 }
    }
}
