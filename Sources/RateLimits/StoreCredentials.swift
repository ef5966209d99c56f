package import Entitlements
package import Postgres
import Queue

/// By which credentials the stores were asked last, as digests.
package struct StoreCredentials: Sendable {
    private let pool: PostgresPool

    package init(pool: PostgresPool) { self.pool = pool }

    /// What is known of a store's credentials.
    package enum State: String, Sendable {
        case confirmed
        /// They differ from those on record before, and the store has not yet said whether it knows our customers.
        case unchecked
        /// The store knew none of the customers who were asked for.
        case doubted
    }

    /// A customer that a store has to know.
    package struct Customer: Sendable {
        package var userKey: Int64
        package var userID: String
        /// The database's time.
        package var at: Instant
    }

    /// The salt of a store's digest, made at the first call.
    package func salt(of store: Store) async throws -> [UInt8] {
        try await pool.query(
            """
            INSERT INTO entitlement_sync.store_credential (store) VALUES (\(store.rawValue)) ON CONFLICT (store) DO NOTHING
            """
        )
        return try await pool.query(
            "SELECT c.salt FROM entitlement_sync.store_credential AS c WHERE c.store = \(store.rawValue)"
        ).one.decode(PostgresBytes.self).bytes
    }

    /// Notes the digest in use.
    package func note(_ digest: [UInt8], of store: Store) async throws -> State {
        let name = try await pool.query(
            "SELECT entitlement_sync.note_credentials(\(store.rawValue), \(PostgresBytes(digest)))"
        ).first?.decode(String.self, at: 0)
        return name.flatMap(State.init) ?? .unchecked
    }

    /// At most ten customers with a paid period that runs, that the store has named before.
    package func customers(of store: Store) async throws -> [Customer] {
        // RevenueCat knows what it has given an id; a store's own rows say who spoke last.
        let isTheirs =
            store == .revenueCat
            ? """
            EXISTS (SELECT 1 FROM entitlement_sync.purchase_identifier AS i
                     WHERE i.purchase_id = p.id AND i.kind = 'revenuecat_id')
            """
            : "p.source = '\(store.rawValue)'"
        return try await pool.query(
            """
            SELECT DISTINCT ON (c.user_key) c.user_key, c.user_id, clock_timestamp()
              FROM (SELECT u.user_key, u.user_id
                      FROM entitlement_sync.purchase AS p
                      JOIN entitlement_sync.user_sync AS u ON u.user_key = p.owner_key
                     WHERE p.merged_into IS NULL AND p.gives_access AND p.period_ends_at > now()
                       AND p.environment = 'production' AND u.user_id IS NOT NULL AND \(rawSQL: isTheirs)
                     LIMIT 10) AS c
            """
        ).map { try $0.decode(into: Customer.init(userKey:userID:at:)) }
    }

    /// Settles whether the store knows our customers; returns whether that changed something.
    package func judge(_ digest: [UInt8], of store: Store, knows: Bool, detail: String) async throws -> Bool {
        try await pool.query(
            """
            SELECT entitlement_sync.judge_credentials(\(store.rawValue), \(PostgresBytes(digest)), \(knows), \(detail))
            """
        ).first?.decode(Bool.self, at: 0) ?? false
    }
}
