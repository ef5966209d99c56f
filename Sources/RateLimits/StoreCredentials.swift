package import Entitlements
package import Postgres
import Queue

/// What an app of a store is asked with.
package struct StoreCredential: Sendable {
    package var store: Store
    /// The app, by its store's name or RevenueCat's project, where there are several of the store; `nil`: there is one.
    package var app: String?
    /// Never logged, and on record as a digest alone.
    package var values: [String]

    package init(_ store: Store, app: String?, _ values: [String]) {
        self.store = store
        self.app = app
        self.values = values
    }

    /// By what our records know it.
    package var name: String { app.map { "\(store.rawValue).\($0)" } ?? store.rawValue }
}

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

    /// The salt of a credential's digest, made at the first call.
    package func salt(of credential: StoreCredential) async throws -> [UInt8] {
        try await pool.query(
            """
            INSERT INTO entitlement_sync.store_credential (store) VALUES (\(credential.name)) ON CONFLICT (store) DO NOTHING
            """
        )
        return try await pool.query(
            "SELECT c.salt FROM entitlement_sync.store_credential AS c WHERE c.store = \(credential.name)"
        ).one.decode(PostgresBytes.self).bytes
    }

    /// Notes the digest in use.
    package func note(_ digest: [UInt8], of credential: StoreCredential) async throws -> State {
        let name = try await pool.query(
            "SELECT entitlement_sync.note_credentials(\(credential.name), \(PostgresBytes(digest)))"
        ).first?.decode(String.self, at: 0)
        return name.flatMap(State.init) ?? .unchecked
    }

    /// At most ten customers with a paid period that runs, that the store has named before: in the app, where it has several.
    package func customers(of credential: StoreCredential) async throws -> [Customer] {
        // RevenueCat knows what it has given an id; a store's own rows say who spoke last.
        let store = credential.store
        let app = credential.app
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
                       AND (\(app)::text IS NULL
                            OR \(app) = CASE WHEN \(store == .revenueCat) THEN p.revenuecat_project ELSE p.store_app END)
                     LIMIT 10) AS c
            """
        ).map { try $0.decode(into: Customer.init(userKey:userID:at:)) }
    }

    /// Settles whether the store knows our customers; returns whether that changed something.
    package func judge(_ digest: [UInt8], of credential: StoreCredential, knows: Bool, detail: String) async throws
        -> Bool
    {
        try await pool.query(
            """
            SELECT entitlement_sync.judge_credentials(\(credential.name), \(PostgresBytes(digest)), \(knows), \(detail))
            """
        ).first?.decode(Bool.self, at: 0) ?? false
    }
}
