import Postgres
import Queue

/// A purchase that an event names and that our records do not hold for a user, or hold as ended more than 61 days ago.
///
/// No proof: the store's answer names its owner.
package struct EventPurchase: Sendable, Hashable {
    package var store: String
    /// The ledger's word; `nil` where the event did not say.
    package var environment: String?
    package var value: String
    /// The event came within the hour: the store itself may not show the purchase yet.
    package var isFresh: Bool
}

extension UserLookups {
    /// The most purchases of events that one reading asks for.
    private static let mostEventPurchases: Int64 = 20

    /// Purchases that a user's events of the last week named and whose stores still have to be asked; and
    /// those of the same store account that give the user access while they have no owner.
    ///
    /// - Throws: `PostgresError`.
    package func eventPurchases(of userKey: Int64) async throws -> [EventPurchase] {
        let rows = try await pool.query(
            """
            SELECT n.store, n.environment, n.value, bool_or(i.received_at > now() - interval '1 hour'), max(i.received_at) AS event_at
              FROM entitlement_sync.inbox AS i
             CROSS JOIN LATERAL jsonb_to_recordset(i.about -> 'purchases')
                     AS n(store text, environment text, value text)
             WHERE i.user_keys @> ARRAY[\(userKey)]::bigint[] AND i.about IS NOT NULL AND i.state = 'done'
               AND i.received_at > now() - interval '7 days'
               AND NOT EXISTS (
                       SELECT 1 FROM entitlement_sync.purchase_identifier AS x
                         JOIN entitlement_sync.purchase AS f ON f.id = x.purchase_id
                         JOIN entitlement_sync.purchase AS p ON p.id = coalesce(f.merged_into, f.id)
                        WHERE x.store = n.store AND x.value = n.value
                          AND x.environment = coalesce(n.environment, x.environment) AND p.owner_key IS NOT NULL
                          AND coalesce(p.period_ends_at, 'infinity') > now() - interval '61 days')
             GROUP BY n.store, n.environment, n.value
            UNION ALL
            -- What gives the user access without being the user's is asked about until its store says that it is over.
            SELECT p.store, p.environment, p.lookup_id, false, max(p.observed_at)
              FROM entitlement_sync.observation AS o
              JOIN entitlement_sync.purchase AS f ON f.id = o.purchase_id
              JOIN entitlement_sync.purchase AS p ON p.id = coalesce(f.merged_into, f.id)
             WHERE o.user_key = \(userKey) AND o.attribution = 'same_account'
               AND p.owner_key IS NULL AND p.gives_access AND p.lookup_id IS NOT NULL
             GROUP BY p.id
             ORDER BY event_at DESC, 3 LIMIT \(Self.mostEventPurchases)
            """
        )
        return try rows.map { row in
            let (store, environment, value, isFresh, _) = try row.decode(
                String.self,
                String?.self,
                String.self,
                Bool.self,
                PostgresTimestamp.self
            )
            return EventPurchase(store: store, environment: environment, value: value, isFresh: isFresh)
        }
    }
}
