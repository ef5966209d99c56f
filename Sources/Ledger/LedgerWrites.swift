package import Entitlements
import FoundationEssentials
package import Postgres
import Queue

/// The set-based writes of the ledger.
package enum LedgerWrites {
    private static func joined(_ texts: [String]) -> String { texts.joined(separator: "\u{1f}") }

    /// Finds each row of `n` by its key, as `found.place`.
    ///
    /// Only for rows that an earlier statement of this transaction has locked: a row that another transaction changed meanwhile
    /// would have another place, and our change would be lost.
    ///
    /// Compared as a join, all of a batch would be compared with all that is found, or a whole index be read while the server
    /// takes the table for empty.
    package static func row(of table: String, where key: String) -> String {
        """
        CROSS JOIN LATERAL (SELECT x.ctid FROM entitlement_sync.\(table) AS x WHERE x.\(key) = n.\(key) OFFSET 0) AS found(place)
        """
    }

    /// A lookup for the few rows that need it: a join would be planned for all of them.
    private static let account =
        "SELECT u.user_key FROM entitlement_sync.user_sync AS u WHERE u.user_id = n.account"

    /// The rows that say something of a purchase: its id, what they say, and the rows themselves.
    private static func ofPurchases(_ rows: [ObservedRow]) -> (ids: [Int64], items: [Observation], rows: [ObservedRow])
    {
        let known = rows.filter { $0.purchaseID != nil && $0.observation != nil }
        return (known.compactMap(\.purchaseID), known.compactMap(\.observation), known)
    }

    /// Inserts new purchases.
    package static func insertPurchases(_ rows: [ObservedRow]) -> [PostgresRequest<Void>] {
        let (ids, items, new) = ofPurchases(rows)
        guard !new.isEmpty else { return [] }
        let query: PostgresQuery = """
            INSERT INTO entitlement_sync.purchase
                   (id, owner_key, owner_since, observed_at, period_ends_at, gives_access, end_announced, source, store,
                    environment, kind, status, ownership, renewal, product_id, owner_rule, lookup_id, stated_at, account_key,
                    store_app, revenuecat_project, store_account, entitlements)
            SELECT n.id, CASE WHEN n.is_accounts THEN (\(rawSQL: account)) ELSE n.owner_key END, n.observed_at, n.observed_at, n.period_ends_at, n.gives_access, n.end_announced,
                   n.source, n.store, n.environment, n.kind, n.status, n.ownership, n.renewal, n.product_id, n.owner_rule,
                   n.lookup_id, n.stated_at,
                   CASE WHEN n.is_named THEN n.owner_key WHEN n.by_account THEN (\(rawSQL: account)) END,
                   n.store_app, n.project, n.store_account, coalesce(string_to_array(nullif(n.entitlements, ''), E'\\x1f'), '{}')
              FROM unnest(\(ids), \(new.map(\.owner)), \(new.map(\.askedAt.timestamp)),
                          \(items.map { $0.periodEndsAt?.timestamp }), \(items.map(\.givesAccess)),
                          \(zip(items, new).map { AccessSummary.announces($0, at: $1.askedAt) }),
                          \(items.map(\.store)), \(items.map(\.environment)), \(items.map(\.kind.rawValue)),
                          \(items.map(\.status.raw)), \(items.map(\.ownership)), \(items.map(\.renewal)),
                          \(items.map(\.productID)), \(new.map(\.ownerRule)), \(items.map { joined($0.entitlements) }),
                          \(items.map(\.source.rawValue)), \(items.map(\.lookupID)),
                          \(items.map { $0.statedAt?.timestamp }), \(new.map(\.account)), \(new.map(\.isAccounts)),
                          \(new.map(\.isNamed)), \(new.map(\.isByAccount)), \(items.map(\.storeApp)),
                          \(items.map(\.revenueCatProject)), \(items.map { $0.storeAccount?.hash }))
                   AS n(id, owner_key, observed_at, period_ends_at, gives_access, end_announced, store, environment,
                        kind, status, ownership, renewal, product_id, owner_rule, entitlements, source, lookup_id, stated_at,
                        account, is_accounts, is_named, by_account, store_app, project, store_account)
            """
        // A number that another process took: after a failover a block of them may be given twice.
        return [PostgresRequest(query) { $0.sqlState == SQLState.uniqueViolation ? LedgerRace() : $0 as any Error }]
    }

    /// Adds identifiers in sorted order, so that two writers meet in the same order; the key decides who is first.
    ///
    /// One that was taken in the same moment is a `LedgerRace`.
    package static func insertIdentifiers(_ identifiers: [(PurchaseIdentifier, Int64)]) -> [PostgresRequest<Void>] {
        guard !identifiers.isEmpty else { return [] }
        // Places are sorted and not the identifiers themselves, which take long to move.
        let values = identifiers.map(\.0.value)
        var places = values.indices.sorted { left, right in
            let order = values[left].compareExactly(to: values[right])
            guard order == 0 else { return order < 0 }
            let (one, other) = (identifiers[left].0.key, identifiers[right].0.key)
            return one == other ? identifiers[left].1 < identifiers[right].1 : one < other
        }
        // One reading may list a purchase twice; the first row keeps the name, a later reading merges the second into it.
        var last: PurchaseIdentifierKey?
        places.removeAll { place in
            let key = identifiers[place].0.key
            defer { last = key }
            return key == last
        }
        let sorted = places.map { identifiers[$0] }
        let query: PostgresQuery = """
            INSERT INTO entitlement_sync.purchase_identifier (value, store, environment, kind, purchase_id)
            SELECT n.* FROM unnest(\(sorted.map(\.0.value)), \(sorted.map(\.0.store)), \(sorted.map(\.0.environment)),
                                   \(sorted.map(\.0.kind)), \(sorted.map(\.1))) AS n
            """
        // The whole transaction starts again after a race, so the price of ON CONFLICT would buy nothing.
        return [PostgresRequest(query) { $0.sqlState == SQLState.uniqueViolation ? LedgerRace() : $0 as any Error }]
    }

    /// Brings purchases up to a newer observation; what is older than the row changes nothing.
    package static func updatePurchases(_ rows: [ObservedRow], catalog: ProductCatalog) -> [PostgresRequest<Void>] {
        let (ids, items, known) = ofPurchases(ObservedRow.prevailing(in: rows, by: \.purchaseID, catalog: catalog))
        guard !known.isEmpty else { return [] }
        let query: PostgresQuery = """
            UPDATE entitlement_sync.purchase AS p
               SET owner_key = coalesce(n.owner_key, p.owner_key),
                   owner_since = CASE WHEN p.owner_key IS DISTINCT FROM n.owner_key AND n.owner_key IS NOT NULL
                                      THEN n.observed_at ELSE p.owner_since END,
                   former_owner_key = CASE WHEN n.owner_rule = 'owner_followed_revenuecat' THEN p.owner_key
                                           ELSE p.former_owner_key END,
                   owner_rule = CASE WHEN p.owner_key IS DISTINCT FROM n.owner_key AND n.owner_key IS NOT NULL
                                     THEN n.owner_rule ELSE p.owner_rule END,
                   source = n.source, lookup_id = coalesce(n.lookup_id, p.lookup_id),
                   store_app = coalesce(n.store_app, p.store_app),
                   revenuecat_project = coalesce(n.project, p.revenuecat_project),
                   store_account = coalesce(n.store_account, p.store_account),
                   stated_at = greatest(n.stated_at, p.stated_at),
                   account_key = CASE WHEN n.is_named THEN n.owner_key ELSE p.account_key END,
                   observed_at = n.observed_at, period_ends_at = n.period_ends_at, gives_access = n.gives_access,
                   -- Before the period's end each word stands for itself; after it only what was said before counts.
                   end_announced = CASE WHEN n.observed_at < n.period_ends_at THEN n.announced
                                        ELSE p.end_announced
                                             AND p.period_ends_at IS NOT DISTINCT FROM n.period_ends_at END,
                   store = n.store, kind = n.kind, status = n.status, ownership = n.ownership, renewal = n.renewal,
                   product_id = n.product_id,
                   entitlements = coalesce(string_to_array(nullif(n.entitlements, ''), E'\\x1f'), '{}'),
                   -- What was detached while the purchase goes on stays known (Purchase.carried in a replay).
                   carried = CASE WHEN n.entitlements = '' THEN nullif(coalesce(p.carried, p.entitlements), '{}')
                                  WHEN NOT (coalesce(p.carried, p.entitlements) <@ string_to_array(n.entitlements, E'\\x1f')
                                            OR entitlement_sync.means_access(string_to_array(n.entitlements, E'\\x1f')))
                                       AND entitlement_sync.means_access(coalesce(p.carried, p.entitlements))
                                  THEN coalesce(p.carried, p.entitlements) END
              FROM unnest(\(ids), \(known.map(\.owner)), \(known.map(\.askedAt.timestamp)),
                          \(items.map { $0.periodEndsAt?.timestamp }), \(items.map(\.givesAccess)),
                          \(zip(items, known).map { AccessSummary.announces($0, at: $1.askedAt) }),
                          \(items.map(\.store)), \(items.map(\.kind.rawValue)), \(items.map(\.status.raw)),
                          \(items.map(\.ownership)), \(items.map(\.renewal)), \(items.map(\.productID)),
                          \(known.map(\.ownerRule)), \(items.map { joined($0.entitlements) }),
                          \(items.map(\.source.rawValue)), \(items.map(\.lookupID)),
                          \(items.map { $0.statedAt?.timestamp }), \(known.map(\.isNamed)), \(items.map(\.storeApp)),
                          \(items.map(\.revenueCatProject)), \(items.map { $0.storeAccount?.hash }))
                   AS n(id, owner_key, observed_at, period_ends_at, gives_access, announced, store, kind, status,
                        ownership, renewal, product_id, owner_rule, entitlements, source, lookup_id, stated_at, is_named,
                        store_app, project, store_account)
             \(rawSQL: row(of: "purchase", where: "id"))
             WHERE p.ctid = found.place AND p.observed_at <= n.observed_at
            """
        return [PostgresRequest(query)]
    }

    /// Records the user that the app's id in a purchase names: as the owner if no other user is named, else as a remark only.
    package static func noteAccounts(_ rows: [ObservedRow]) -> [PostgresRequest<Void>] {
        typealias Named = (id: Int64, account: String, isOwner: Bool, isByAccount: Bool, at: Instant)
        let named = rows.compactMap { row -> Named? in
            switch row.attribution {
            case .contradicted(let purchase?, _, let account?): (purchase, account, false, true, row.askedAt)
            case .foreign(let purchase?, nil, let account?): (purchase, account, true, row.isByAccount, row.askedAt)
            default: nil
            }
        }
        guard !named.isEmpty else { return [] }
        let query: PostgresQuery = """
            UPDATE entitlement_sync.purchase AS p
               SET account_key = CASE WHEN n.by_account THEN u.user_key ELSE p.account_key END,
                   owner_since = CASE WHEN n.is_owner AND p.owner_key IS NULL THEN n.at ELSE p.owner_since END,
                   owner_rule = CASE WHEN NOT n.is_owner OR p.owner_key IS NOT NULL THEN p.owner_rule
                                     WHEN n.by_account THEN 'account_id' ELSE 'named_by_revenuecat' END,
                   owner_key = CASE WHEN n.is_owner THEN coalesce(p.owner_key, u.user_key) ELSE p.owner_key END
              FROM unnest(\(named.map(\.id)), \(named.map(\.account)), \(named.map(\.isOwner)),
                          \(named.map(\.isByAccount)), \(named.map(\.at.timestamp)))
                   AS n(id, account, is_owner, by_account, at)
              JOIN entitlement_sync.user_sync AS u ON u.user_id = n.account
             WHERE p.id = n.id AND p.id = ANY (\(named.map(\.id))) AND u.user_id = ANY (\(named.map(\.account)))
            """
        return [PostgresRequest(query)]
    }

    /// Notes former owners: that RevenueCat names another owner is its word that their access is over.
    ///
    /// Their rows are locked, as those of the batch's own users are.
    package static func noteMovedAway(_ owners: [Int64: Instant]) -> [PostgresRequest<Void>] {
        guard !owners.isEmpty else { return [] }
        let sorted = owners.sorted { $0.key < $1.key }
        let query: PostgresQuery = """
            UPDATE entitlement_sync.user_sync AS u SET moved_away_at = greatest(u.moved_away_at, n.at)
              FROM unnest(\(sorted.map(\.key)), \(sorted.map(\.value.timestamp))) AS n(user_key, at)
             WHERE u.user_key = n.user_key AND u.user_key = ANY (\(sorted.map(\.key)))
            """
        return [PostgresRequest(query)]
    }

    /// Ends the contest about purchases that one of their two owners was read without.
    ///
    /// A purchase that has moved on meanwhile is contested again.
    package static func settle(_ purchases: [(purchase: Int64, former: Int64)]) -> [PostgresRequest<Void>] {
        guard !purchases.isEmpty else { return [] }
        let query: PostgresQuery = """
            UPDATE entitlement_sync.purchase AS p SET former_owner_key = NULL
              FROM unnest(\(purchases.map(\.purchase)), \(purchases.map(\.former))) AS n(id, former)
             WHERE p.id = n.id AND p.id = ANY (\(purchases.map(\.purchase))) AND p.former_owner_key = n.former
            """
        return [PostgresRequest(query)]
    }

    /// Merges rows of one owner into the oldest: identifiers move, the merged row stays as a pointer.
    package static func merge(_ merged: [(from: Int64, into: Int64)]) -> [PostgresRequest<Void>] {
        merged.flatMap { from, into -> [PostgresRequest<Void>] in
            [
                PostgresRequest(
                    "UPDATE entitlement_sync.purchase_identifier AS i SET purchase_id = \(into) WHERE i.purchase_id = \(from)"
                ),
                // What one of the two knew of its owner stays known.
                PostgresRequest(
                    """
                    UPDATE entitlement_sync.purchase AS p
                       SET owner_key = coalesce(p.owner_key, f.owner_key),
                           owner_since = CASE WHEN p.owner_key IS NULL THEN f.owner_since ELSE p.owner_since END,
                           owner_rule = CASE WHEN p.owner_key IS NULL THEN f.owner_rule ELSE p.owner_rule END,
                           account_key = coalesce(p.account_key, f.account_key),
                           lookup_id = coalesce(p.lookup_id, f.lookup_id), store_app = coalesce(p.store_app, f.store_app),
                           revenuecat_project = coalesce(p.revenuecat_project, f.revenuecat_project),
                           store_account = coalesce(p.store_account, f.store_account),
                           stated_at = greatest(p.stated_at, f.stated_at),
                           transferred_at = greatest(p.transferred_at, f.transferred_at)
                      FROM entitlement_sync.purchase AS f
                     WHERE p.id = \(into) AND f.id = \(from)
                    """
                ),
                PostgresRequest("UPDATE entitlement_sync.purchase AS p SET merged_into = \(into) WHERE p.id = \(from)"),
            ]
        }
    }

    /// Records what was read; one row an item, or one for a read that found nothing.
    package static func insertObservations(_ rows: [ObservedRow]) -> [PostgresRequest<Void>] {
        guard !rows.isEmpty else { return [] }
        let items = rows.map(\.observation)
        let query: PostgresQuery = """
            INSERT INTO entitlement_sync.observation
                   (user_key, job_id, purchase_id, asked_at, period_starts_at, period_ends_at, gives_access, source,
                    coverage, store, environment, kind, status, ownership, renewal, product_id, attribution,
                    entitlements, payload_hash)
            SELECT n.user_key, n.job_id, n.purchase_id, n.asked_at, n.period_starts_at, n.period_ends_at,
                   n.gives_access, coalesce(n.source, 'revenuecat'), n.coverage, n.store, n.environment, n.kind, n.status, n.ownership,
                   n.renewal, n.product_id, n.attribution, string_to_array(nullif(n.entitlements, ''), E'\\x1f'),
                   n.payload_hash
              FROM unnest(\(rows.map(\.userKey)), \(rows.map(\.jobID)), \(rows.map(\.observedPurchase)),
                          \(rows.map(\.askedAt.timestamp)), \(items.map { $0?.periodStartsAt?.timestamp }),
                          \(items.map { $0?.periodEndsAt?.timestamp }), \(items.map { $0?.givesAccess }),
                          \(rows.map(\.coverage.rawValue)), \(items.map { $0?.store }), \(items.map { $0?.environment }),
                          \(items.map { $0?.kind.rawValue }), \(items.map { $0?.status.raw }),
                          \(items.map { $0?.ownership }), \(items.map { $0?.renewal }), \(items.map { $0?.productID }),
                          \(rows.map(\.recordedAttribution)), \(items.map { $0.map { joined($0.entitlements) } }),
                          \(items.map { $0.map { PostgresBytes($0.payloadHash) } }),
                          \(items.map { $0?.source.rawValue }))
                   AS n(user_key, job_id, purchase_id, asked_at, period_starts_at, period_ends_at, gives_access,
                        coverage, store, environment, kind, status, ownership, renewal, product_id, attribution,
                        entitlements, payload_hash, source)
            """
        return [PostgresRequest(query)]
    }
}

/// Another transaction wrote the same identifiers at the same time: the whole transaction starts again.
package struct LedgerRace: Error {}
