package import Entitlements
package import FoundationEssentials
package import Postgres
import Queue

/// The switches in force.
package struct Switches {
    /// The database's clock as the batch began.
    package var now: Instant
    package var isAlive: Bool
    package var isPaused: Bool
    package var demotionsPaused: Bool
    /// Which entitlements mean access.
    package var catalog: ProductCatalog
    /// The adapter can say what access the host gives itself.
    package var asksHost: Bool
}

/// The reads of the apply transaction.
///
/// Locks are taken in one order everywhere: users, their rows of ours, jobs, ledger.
package enum LedgerReads {
    /// Whether this process may write at all.
    ///
    /// The key-share lock keeps its lease alive until the commit.
    package static func switches(epoch: Int32) -> PostgresRequest<Switches> {
        PostgresRequest(
            """
            WITH alive AS MATERIALIZED (
                SELECT w.epoch FROM entitlement_sync.worker AS w
                 WHERE w.epoch = \(epoch) AND w.expires_at > clock_timestamp() FOR KEY SHARE
            )
            SELECT clock_timestamp() AS now, EXISTS (SELECT 1 FROM alive) AS is_alive,
                   coalesce(bool_or(c.paused) FILTER (WHERE c.name = 'all'), false) AS is_paused,
                   coalesce(bool_or(c.paused) FILTER (WHERE c.name = 'demotions'), false) AS demotions_paused,
                   to_regprocedure('entitlement_sync_host.other_access(text[])') IS NOT NULL AS asks_host,
                   coalesce(min(k.products), '{}') AS products, coalesce(min(k.grants), '{}') AS grants,
                   coalesce(min(k.names), '{}') AS names
              FROM entitlement_sync.control AS c
             CROSS JOIN (SELECT array_agg(m.product_id ORDER BY m.product_id) AS products,
                                array_agg(m.grants ORDER BY m.product_id) AS grants,
                                array_agg(m.names ORDER BY m.product_id) AS names
                           FROM (\(rawSQL: mapping)) AS m) AS k
            """
        ) { rows in
            let row = try rows.one
            let (products, grants): ([String], [Bool]) = try (row["products"], row["grants"])
            let names: [String] = try row["names"]
            return try Switches(
                now: row["now"],
                isAlive: row["is_alive"],
                isPaused: row["is_paused"],
                demotionsPaused: row["demotions_paused"],
                catalog: ProductCatalog(
                    Dictionary(zip(products, grants)) { $0 || $1 },
                    names: Dictionary(zip(products, names.map(list))) { $0 + $1 }
                ),
                asksHost: row["asks_host"]
            )
        }
    }

    /// What means access: RevenueCat's lookup keys, and the products of stores that are asked directly.
    package static func catalog(on connection: PostgresConnection) async throws -> ProductCatalog {
        var grants: [String: Bool] = [:]
        var timed: Set<String> = []
        var names: [String: [String]] = [:]
        for row in try await connection.query("\(rawSQL: mapping)") {
            let (key, grantsAccess, isTimed, given) = try row.decode(String.self, Bool.self, Bool.self, String.self)
            grants[key] = grantsAccess
            names[key] = list(given)
            if isTimed { timed.insert(key) }
        }
        return ProductCatalog(grants, timed: timed, names: names)
    }

    private static let mapping = """
        SELECT a.key AS product_id, a.grants_access AS grants, a.is_timed,
               array_to_string(a.entitlements, E'\\x1f') AS names FROM entitlement_sync.product_access AS a
        """

    private static func list(_ text: String) -> [String] { text.split(separator: "\u{1f}").map(String.init) }

    /// The host's users, locked; leaves out users who are gone or locked by another transaction.
    package static func lockUsers(_ ids: [String]) -> PostgresRequest<[ExactText: User]> {
        PostgresRequest("SELECT u.id, u.type, u.status FROM entitlement_sync_host.lock_users(\(ids)) AS u") { rows in
            var users: [ExactText: User] = [:]
            users.reserveCapacity(rows.count)
            for row in rows {
                let (id, type, status) = try row.decode(String?.self, String?.self, String?.self)
                let user = try User(id, type, status, by: "lock_users")
                users[ExactText(user.id)] = user
            }
            return users
        }
    }

    /// How the host spells these ids, locked or not; those that it does not know are left out.
    ///
    /// A host may compare ids by other rules than bytes (`uuid`, `citext`, `char(n)`): what it returns is the user's id. Where it
    /// returns several for one, and none of them is that one, no user is meant.
    package static func spellings(_ ids: [String], on connection: PostgresConnection) async throws -> [ExactText:
        String]
    {
        guard !ids.isEmpty else { return [:] }
        let asked = Set(ids.map(ExactText.init))
        let rows = try await connection.query("SELECT u.id FROM entitlement_sync_host.read_users(\(ids)) AS u")
        var spellings: [ExactText: String] = [:]
        var isOther = false
        for row in rows {
            guard let id = try row.decode(String?.self, at: 0) else { throw AdapterFault("read_users", "id") }
            if asked.contains(ExactText(id)) { spellings[ExactText(id)] = id } else { isOther = true }
        }
        guard isOther else { return spellings }
        // Rare, so each is asked for by itself: nothing else shows which of them came back in another spelling.
        let rest = asked.filter { spellings[$0] == nil }.sorted().map(\.text)
        for row in try await connection.query(
            "SELECT w.id, entitlement_sync.host_id(w.id) FROM unnest(\(rest)) AS w(id)"
        ) {
            let (id, spelling) = try row.decode(String.self, String?.self)
            if let spelling { spellings[ExactText(id)] = spelling }
        }
        return spellings
    }

    /// Our rows of the users, locked; leaves out rows that another transaction has locked.
    ///
    /// Grants and sandboxes come apart.
    package static func facts(_ userKeys: [Int64]) -> PostgresRequest<[Int64: UserFacts]> {
        PostgresRequest(
            """
            SELECT u.user_key, u.epoch, u.read_at, u.absent_since, u.access_event_at, u.moved_away_at,
                   CASE WHEN u.flips_since > now() - interval '1 day' THEN u.flips ELSE 0 END AS flips, u.ever_observed,
                   u.user_id IS NULL AS is_erased, u.entitlements::text AS entitlements, u.decided_subscriber, u.fingerprint, u.decision_id, u.confirmed,
                   -- Unless checks confirmed it, the newest decision is as old as the newest reading.
                   coalesce(CASE WHEN u.confirmed > 0 THEN u.confirmed_first_at ELSE u.read_at END
                            < now() - interval '6 months', true) AS is_decision_old
              FROM entitlement_sync.user_sync AS u
             WHERE u.user_key = ANY (\(userKeys))
             ORDER BY u.user_key
               FOR NO KEY UPDATE SKIP LOCKED
            """,
            read: readFacts
        )
    }

    /// A user's grants, and those in force.
    package struct Grants {
        package var state: GrantState
        package var active: [ActiveGrant]
    }

    /// Which users have grants.
    package static func grants(_ userKeys: [Int64]) -> PostgresRequest<[Int64: Grants]> {
        PostgresRequest(
            """
            SELECT r.user_key, coalesce(array_agg(CASE WHEN isfinite(r.until) THEN r.until END) FILTER (WHERE r.is_active), '{}'),
                   coalesce(array_agg(r.source) FILTER (WHERE r.is_active), '{}'),
                   coalesce(array_agg(r.entitlement) FILTER (WHERE r.is_active), '{}')
              FROM (SELECT x.*, x.revoked_at IS NULL AND x.until > now() AS is_active
                      FROM entitlement_sync."grant" AS x WHERE x.user_key = ANY (\(userKeys))) AS r
             GROUP BY r.user_key
            """
        ) { rows in
            var grants: [Int64: Grants] = [:]
            for row in rows {
                let (key, ends, sources, names) = try row.decode(
                    Int64.self,
                    [Instant?].self,
                    [String].self,
                    [String?].self
                )
                let active = sources.indices.map {
                    ActiveGrant(until: ends[$0], source: sources[$0], entitlement: names[$0])
                }
                grants[key] = Grants(state: active.isEmpty ? .past : .active, active: active)
            }
            return grants
        }
    }

    /// Whose sandbox purchases count, or once counted, and until when.
    package static func sandboxes(_ userIDs: [String]) -> PostgresRequest<
        [ExactText: (state: SandboxState, end: Instant?)]
    > {
        PostgresRequest(
            """
            SELECT a.user_id, a.until > now(), CASE WHEN a.until > now() AND isfinite(a.until) THEN a.until END
              FROM entitlement_sync.sandbox_access AS a WHERE a.user_id = ANY (\(userIDs))
            """
        ) { rows in
            var sandboxes: [ExactText: (SandboxState, Instant?)] = [:]
            for row in rows {
                let (id, isAllowed, end) = try row.decode(String.self, Bool.self, Instant?.self)
                sandboxes[ExactText(id)] = (isAllowed ? .allowed : .past, end)
            }
            return sandboxes
        }
    }

    private static func readFacts(_ rows: PostgresRows) throws -> [Int64: UserFacts] {
        var facts: [Int64: UserFacts] = [:]
        facts.reserveCapacity(rows.count)
        for row in rows {
            let (flips, confirmed): (Int32, Int32) = try (row["flips"], row["confirmed"])
            let isSubscriber: Bool? = try row["decided_subscriber"]
            var user = try UserFacts(epoch: row["epoch"], flips: Int(flips), everObserved: row["ever_observed"])
            user.readAt = try row["read_at"]
            user.absentSince = try row["absent_since"]
            user.accessEventAt = try row["access_event_at"]
            user.movedAwayAt = try row["moved_away_at"]
            user.decidedType = isSubscriber.map { $0 ? .subscriber : .free }
            user.isErased = try row["is_erased"]
            user.entitlements = try row["entitlements"]
            user.fingerprint = try row["fingerprint"]
            user.decisionID = try row["decision_id"]
            user.confirmed = Int(confirmed)
            user.isDecisionOld = try row["is_decision_old"]
            try facts[row["user_key"]] = user
        }
        return facts
    }

    /// The keyed hashes of store accounts, each named by its environment and its id.
    package static func storeAccounts(
        _ names: [String],
        on connection: PostgresConnection
    ) async throws -> [String: UUID] {
        guard !names.isEmpty else { return [:] }
        var hashes: [String: UUID] = [:]
        for row in try await connection.query(
            "SELECT a.name, a.hash FROM entitlement_sync.store_accounts(\(names)) AS a"
        ) {
            let (name, hash) = try row.decode(String.self, UUID.self)
            hashes[name] = hash
        }
        return hashes
    }

    private static let columns = """
        p.id, p.owner_key, p.kind, p.store, p.environment, p.status, p.gives_access, p.product_id, p.renewal,
        array_to_string(p.entitlements, E'\\x1f') AS entitlements, p.period_ends_at, p.end_announced,
        p.ownership = 'family_shared' AS is_family_shared, p.observed_at, p.first_seen_at, p.owner_since, p.former_owner_key, p.transferred_at,
        p.source, p.account_key, p.revenuecat_project, p.store_account, array_to_string(coalesce(p.carried, p.entitlements), E'\\x1f') AS carried
        """

    /// The purchases that the users own, and those that came from them lately; each once.
    ///
    /// Two branches, because an OR over two columns is fast by bitmaps alone.
    package static func ledger(_ userKeys: [Int64]) -> PostgresRequest<Ledger> {
        PostgresRequest(
            """
            SELECT \(rawSQL: columns)
              FROM entitlement_sync.purchase AS p
             WHERE p.owner_key = ANY (\(userKeys)) AND p.merged_into IS NULL
             UNION ALL
            SELECT \(rawSQL: columns)
              FROM entitlement_sync.purchase AS p
             WHERE p.former_owner_key = ANY (\(userKeys)) AND coalesce(p.owner_key, 0) <> ALL (\(userKeys))
               AND p.merged_into IS NULL
            """
        ) { rows in
            var ledger = Ledger()
            for row in rows {
                let purchase = try decodePurchase(row)
                if let owner = purchase.ownerKey { ledger.owned[owner, default: []].append(purchase) }
                guard let former = purchase.formerOwnerKey else { continue }
                ledger.contested[former, default: []].append(purchase)
                if let owner = purchase.ownerKey { ledger.contested[owner, default: []].append(purchase) }
            }
            return ledger
        }
    }

    /// Purchases by user.
    package struct Ledger {
        package var owned: [Int64: [Purchase]] = [:]
        /// Purchases that moved and may be named for both owners still.
        package var contested: [Int64: [Purchase]] = [:]
    }

    /// The rows that identifiers name.
    package static func named(
        by identifiers: [PurchaseIdentifier]
    ) -> PostgresRequest<[PurchaseIdentifierKey: Int64]> {
        PostgresRequest(
            """
            SELECT i.value, i.store, i.environment, i.purchase_id
              FROM unnest(\(identifiers.map(\.value)), \(identifiers.map(\.store)), \(identifiers.map(\.environment)))
                   AS w(value, store, environment)
             CROSS JOIN LATERAL (
                   SELECT x.* FROM entitlement_sync.purchase_identifier AS x
                    WHERE x.value = w.value AND x.store = w.store AND x.environment = w.environment
                   OFFSET 0) AS i
            """
        ) { rows in
            var ids: [PurchaseIdentifierKey: Int64] = [:]
            for row in rows {
                let (value, store, environment, id) = try row.decode(String.self, String.self, String.self, Int64.self)
                ids[PurchaseIdentifierKey(value: value, store: store, environment: environment)] = id
            }
            return ids
        }
    }

    /// The purchases that identifiers name, locked, of any owner.
    package static func holders(
        _ ids: [PurchaseIdentifierKey: Int64]
    ) -> PostgresRequest<[PurchaseIdentifierKey: Purchase]> {
        PostgresRequest(
            """
            SELECT \(rawSQL: columns)
              FROM entitlement_sync.purchase AS p
             WHERE p.id = ANY (\(Set(ids.values).sorted())) AND p.merged_into IS NULL
             ORDER BY p.id
               FOR NO KEY UPDATE
            """
        ) { rows in
            let purchases = Dictionary(try rows.map(decodePurchase).map { ($0.id, $0) }) { $1 }
            // A row that was merged into another between the two statements has lost its names.
            guard purchases.count == Set(ids.values).count else { throw LedgerRace() }
            return ids.compactMapValues { purchases[$0] }
        }
    }

    /// One purchase, as it stands without a lock.
    package static func purchase(_ id: Int64, on connection: PostgresConnection) async throws -> Purchase? {
        try await connection.query(
            "SELECT \(rawSQL: columns) FROM entitlement_sync.purchase AS p WHERE p.id = \(id)"
        ).first.map(decodePurchase)
    }

    private static func decodePurchase(_ row: PostgresRow) throws -> Purchase {
        let (kind, source): (String, String) = try (row["kind"], row["source"])
        var purchase = try Purchase(
            id: row["id"],
            ownerKey: row["owner_key"],
            kind: Observation.Kind(rawValue: kind) ?? .subscription,
            store: row["store"],
            status: StoreStatus(row["status"]),
            givesAccess: row["gives_access"],
            entitlements: list(row["entitlements"]),
            observedAt: row["observed_at"],
            firstSeenAt: row["first_seen_at"],
            ownerSince: row["owner_since"]
        )
        purchase.environment = try row["environment"]
        purchase.productID = try row["product_id"]
        purchase.renewal = try row["renewal"]
        purchase.carried = try list(row["carried"])
        purchase.periodEndsAt = try row["period_ends_at"]
        purchase.endAnnounced = try row["end_announced"]
        purchase.isFamilyShared = try row["is_family_shared"]
        purchase.formerOwnerKey = try row["former_owner_key"]
        purchase.transferredAt = try row["transferred_at"]
        purchase.source = Store(rawValue: source) ?? .revenueCat
        purchase.accountKey = try row["account_key"]
        purchase.revenueCatProject = try row["revenuecat_project"]
        purchase.storeAccount = try row["store_account"]
        return purchase
    }
}
