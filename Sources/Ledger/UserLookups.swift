package import Entitlements
import FoundationEssentials
package import Postgres
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
    /// The store's own name of the app that it was sold in; `nil`: not known.
    package var app: String?
}

/// Small reads outside the apply transaction.
package struct UserLookups: Sendable {
    let pool: PostgresPool

    package init(pool: PostgresPool) { self.pool = pool }

    /// Which of these ids are users of the host, and how it spells them.
    package func spellings(_ ids: [String]) async throws -> [ExactText: String] {
        try await pool.withConnection { connection in try await LedgerReads.spellings(ids, on: connection) }
    }

    /// What our records hold of a user's purchases in the stores that can be asked directly.
    package func purchases(of userKey: Int64) async throws -> [KnownPurchase] {
        let rows = try await pool.query(
            """
            SELECT p.store, p.environment, p.kind, p.status, p.gives_access, p.lookup_id, p.store_app, p.period_ends_at, p.stated_at,
                   p.entitlements,
                   ARRAY(SELECT i.value FROM entitlement_sync.purchase_identifier AS i
                          WHERE i.purchase_id = p.id AND i.store = p.store ORDER BY i.value) AS identifiers,
                   ARRAY(SELECT i.kind FROM entitlement_sync.purchase_identifier AS i
                          WHERE i.purchase_id = p.id AND i.store = p.store ORDER BY i.value) AS identifier_kinds
              FROM entitlement_sync.purchase AS p
             WHERE p.owner_key = \(userKey) AND p.merged_into IS NULL
               AND p.store IN ('app_store', 'google_play', 'onside')
               -- Gems that RevenueCat listed lead nowhere.
               AND (p.lookup_id IS NOT NULL OR cardinality(p.entitlements) > 0)
             -- What ended long ago is not asked about, and must not crowd out what is.
             ORDER BY p.gives_access IS FALSE AND p.status = ANY (\(KnownPurchase.endedWords))
                      AND p.period_ends_at < now() - interval '61 days',
                      coalesce(p.gives_access, p.status = 'owned') DESC, p.id DESC
             LIMIT \(Int64(KnownPurchase.most + 1))
            """
        )
        return try rows.map(KnownPurchase.init)
    }

    /// A purchase that ends after the duration of its product: the product's key in the catalogue, and the buyer it adds up for,
    /// because one buyer's passes do not lengthen another's.
    package typealias Pass = (key: String, account: String, boughtAt: Instant)

    /// Computes where passes end: overlapping ones add up, by entitlement.
    ///
    /// `passes`: of one customer of a store. Returns the end by place; `nil` where the product has no row or no duration.
    package func ends(of passes: [Pass]) async throws -> [Instant?] {
        guard !passes.isEmpty else { return [] }
        let rows = try await pool.query(
            """
            WITH product AS MATERIALIZED (
                SELECT CASE WHEN p.store = 'revenuecat' THEN p.product_id
                            ELSE concat_ws(':', CASE p.store WHEN 'play_store' THEN 'google_play' ELSE p.store END,
                                           p.product_id, p.base_plan_id) END AS key,
                       min(p.entitlement) AS entitlement, max(p.duration) AS duration
                  FROM entitlement_sync.product AS p WHERE p.duration > interval '0' GROUP BY 1
            ), pass AS (
                SELECT n.place, p.entitlement || ' ' || n.account AS kind, n.bought, p.duration
                  FROM unnest(\(passes.map(\.key)), \(passes.map(\.account)), \(passes.map(\.boughtAt.timestamp)))
                       WITH ORDINALITY AS n(key, account, bought, place)
                  JOIN product AS p ON p.key = n.key
            ), stacked AS (
                SELECT s.ends, row_number() OVER () AS place
                  FROM entitlement_sync.stacked_ends(
                           (SELECT array_agg(q.kind ORDER BY q.place) FROM pass AS q),
                           (SELECT array_agg(q.bought ORDER BY q.place) FROM pass AS q),
                           (SELECT array_agg(q.duration ORDER BY q.place) FROM pass AS q)) AS s(ends)
            )
            SELECT q.place, s.ends
              FROM (SELECT q.place, row_number() OVER (ORDER BY q.place) AS nth FROM pass AS q) AS q
              JOIN stacked AS s ON s.place = q.nth
            """
        )
        var ends = [Instant?](repeating: nil, count: passes.count)
        for row in rows {
            let (place, end) = try row.decode(Int64.self, Instant.self)
            ends[Int(place) - 1] = end
        }
        return ends
    }

    /// Which entitlements mean access now.
    package func catalog() async throws -> ProductCatalog {
        try await pool.withConnection { connection in try await LedgerReads.catalog(on: connection) }
    }

    /// The most purchases of events that one reading asks for.
    private static let mostEventPurchases: Int64 = 20

    /// Purchases that a user's events of the last week named and whose stores still have to be asked; and
    /// those of the same store account that give the user access while they have no owner.
    package func eventPurchases(of userKey: Int64) async throws -> [EventPurchase] {
        try await pool.query(
            """
            SELECT n.store, n.environment, n.value, bool_or(i.received_at > now() - interval '1 hour') AS is_fresh, max(i.received_at) AS event_at,
                   max(n.app) AS app
              FROM entitlement_sync.inbox AS i
             CROSS JOIN LATERAL jsonb_to_recordset(i.about -> 'purchases')
                     AS n(store text, environment text, value text, app text)
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
            SELECT p.store, p.environment, p.lookup_id, false, max(p.observed_at), p.store_app
              FROM entitlement_sync.observation AS o
              JOIN entitlement_sync.purchase AS f ON f.id = o.purchase_id
              JOIN entitlement_sync.purchase AS p ON p.id = coalesce(f.merged_into, f.id)
             WHERE o.user_key = \(userKey) AND o.attribution = 'same_account'
               AND p.owner_key IS NULL AND p.gives_access AND p.lookup_id IS NOT NULL
             GROUP BY p.id
             ORDER BY event_at DESC, 3 LIMIT \(Self.mostEventPurchases)
            """
        ).map { row in
            try EventPurchase(
                store: row["store"],
                environment: row["environment"],
                value: row["value"],
                isFresh: row["is_fresh"],
                app: row["app"]
            )
        }
    }
}
