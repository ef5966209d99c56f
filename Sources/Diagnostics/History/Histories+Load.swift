import Entitlements
import FoundationEssentials
import Postgres
import Queue

extension Histories {
    /// Loads what was written down about users; one statement a table, whatever their number.
    ///
    /// `moment`: of what was decided later only the first, and nothing that was asked later, so that the newest of then
    /// are there however long ago it is.
    func load(_ users: [One], until moment: Instant? = nil, on connection: PostgresConnection) async throws -> [One] {
        guard !users.isEmpty else { return [] }
        let keys = users.map(\.history.userKey)
        let decisions = try await decisions(of: keys, until: moment, on: connection)
        let items = try await items(of: keys, about: nil, until: moment, on: connection)
        let grants = try await grants(of: keys, on: connection)
        let transfers = try await transfers(of: keys, on: connection)
        let seen = Set(items.values.joined().compactMap(\.purchase) + transfers.map(\.purchase))
        let lineages = try await lineages(of: keys, and: seen.sorted(), on: connection)
        let others = try await othersItems(lineages, transfers, except: Set(keys), until: moment, on: connection)
        return users.map { user in
            var one = user
            let key = user.history.userKey
            let own = items[key] ?? []
            let moved = transfers.filter { $0.from == key || $0.to == key }
            let named = Set(own.compactMap(\.purchase) + moved.map(\.purchase))
            let lines = lineages.filter { named.contains($0.line.id) || $0.line.ownerKey == key || $0.former == key }
            let ids = Set(lines.map(\.line.id))
            let elsewhere = (others + items.filter { $0.key != key }.values.joined()).filter { item in
                item.userKey != key && item.purchase.map(ids.contains) ?? false
            }
            let later = (decisions[key] ?? []).last.map { last in moment.map { last.at > $0 } ?? false } ?? false
            let most = Int(mostDecisions) + (later ? 1 : 0)
            one.history.decisions = Array((decisions[key] ?? []).suffix(most))
            one.history.items = own.suffix(Int(mostItems)) + elsewhere
            one.history.isCut = (decisions[key]?.count ?? 0) > most || own.count > Int(mostItems)
            one.history.grants = grants[key] ?? []
            one.history.lineages = lines.map(\.line)
            one.history.transfers = moved
            return one
        }
    }

    private func decisions(
        of keys: [Int64],
        until moment: Instant?,
        on connection: PostgresConnection
    ) async throws -> [Int64: [PastDecision]] {
        var decisions: [Int64: [PastDecision]] = [:]
        for row in try await connection.query(
            """
            SELECT d.user_key, d.id, d.at, d.kind, d.rule, d.outcome, d.type_before, d.type_after, d.observed, d.explanation
              FROM unnest(\(keys)) AS k(key)
             CROSS JOIN LATERAL (
                   (SELECT x.* FROM entitlement_sync.past_decision AS x
                     WHERE x.user_key = k.key AND x.at <= coalesce(\(moment?.timestamp)::timestamptz, 'infinity')
                     ORDER BY x.id DESC LIMIT \(mostDecisions + 1))
                    UNION ALL
                   (SELECT x.* FROM entitlement_sync.past_decision AS x
                     WHERE x.user_key = k.key AND x.at > \(moment?.timestamp)::timestamptz ORDER BY x.id LIMIT 1)) AS d
             ORDER BY d.user_key, d.id
            """
        ) {
            let (kind, before, after): (Int16, String?, String?) = try (
                row["kind"], row["type_before"], row["type_after"]
            )
            var decision = try PastDecision(
                id: row["id"],
                at: row["at"],
                kind: JobKind(rawValue: kind) ?? .reconcile,
                rule: row["rule"],
                outcome: row["outcome"],
                typeBefore: before.flatMap(UserType.init),
                typeAfter: after.flatMap(UserType.init)
            )
            decision.isObserved = try row["observed"]
            decision.explanation = try row["explanation"]
            decisions[try row["user_key"], default: []].append(decision)
        }
        return decisions
    }

    /// What readings of users said.
    ///
    /// `purchases`: only of these. `moment`: only what was asked by then.
    func items(
        of keys: [Int64],
        about purchases: [Int64]?,
        until moment: Instant?,
        on connection: PostgresConnection
    ) async throws -> [Int64: [PastItem]] {
        let items = try await connection.query(
            """
            SELECT o.user_key, o.decision_id, o.recorded_at, o.asked_at, o.coverage, o.purchase_id, o.attribution, o.source, o.store, o.environment,
                   o.kind, o.status, o.ownership, o.renewal, o.product_id, array_to_string(o.entitlements, E'\\x1f') AS entitlements,
                   o.gives_access, o.period_starts_at, o.period_ends_at
              FROM unnest(\(keys)) AS k(key)
             CROSS JOIN LATERAL (SELECT x.* FROM entitlement_sync.past_observation AS x
                                  WHERE x.user_key = k.key
                                    AND (\(purchases)::bigint[] IS NULL OR x.purchase_id = ANY (\(purchases)::bigint[]))
                                    AND x.asked_at <= coalesce(\(moment?.timestamp)::timestamptz, 'infinity')
                                  ORDER BY x.decision_id DESC, x.id DESC LIMIT \(mostItems + 1)) AS o
             ORDER BY o.user_key, o.decision_id, o.id
            """
        ).map(Self.item)
        return Dictionary(grouping: items, by: \.userKey)
    }

    private static func item(_ row: PostgresRow) throws -> PastItem {
        let (coverage, source): (String, String) = try (row["coverage"], row["source"])
        var item = try PastItem(
            decision: row["decision_id"],
            recordedAt: row["recorded_at"],
            userKey: row["user_key"],
            askedAt: row["asked_at"],
            coverage: Coverage(rawValue: coverage) ?? .none
        )
        item.purchase = try row["purchase_id"]
        item.attribution = try row["attribution"]
        let (store, environment, status): (String?, String?, String?) = try (
            row["store"], row["environment"], row["status"]
        )
        guard let store, let environment, let status else { return item }
        let (kind, ownership, entitlements): (String?, String?, String?) = try (
            row["kind"], row["ownership"], row["entitlements"]
        )
        // By which ids it was called is on record of the purchase alone: two witnesses of one purchase share its row.
        let name = item.purchase.map {
            PurchaseIdentifier(value: "\($0)", store: store, environment: environment, kind: "purchase")
        }
        var observation = try Observation(
            kind: kind.flatMap(Observation.Kind.init) ?? .subscription,
            store: store,
            environment: environment,
            identifiers: [name].compactMap(\.self),
            entitlements: (entitlements ?? "").split(separator: "\u{1f}").map(String.init),
            status: StoreStatus(status),
            givesAccess: row["gives_access"],
            ownership: ownership ?? "purchased",
            source: Store(rawValue: source) ?? .revenueCat
        )
        observation.productID = try row["product_id"]
        observation.renewal = try row["renewal"]
        observation.periodStartsAt = try row["period_starts_at"]
        observation.periodEndsAt = try row["period_ends_at"]
        item.observation = observation
        return item
    }

    private func grants(of keys: [Int64], on connection: PostgresConnection) async throws -> [Int64: [PastGrant]] {
        var grants: [Int64: [PastGrant]] = [:]
        for row in try await connection.query(
            """
            SELECT g.user_key, g.id, g.created_at, g.until, g.revoked_at, g.reason, g.source
              FROM entitlement_sync."grant" AS g WHERE g.user_key = ANY (\(keys)) ORDER BY g.id
            """
        ) {
            try row.decode {
                (
                    key: Int64,
                    id: Int64,
                    created: Instant,
                    until: Instant,
                    revoked: Instant?,
                    reason: String,
                    source: String
                ) in
                grants[key, default: []].append(
                    PastGrant(
                        id: id,
                        createdAt: created,
                        until: until,
                        revokedAt: revoked,
                        reason: reason,
                        source: source
                    )
                )
            }
        }
        return grants
    }
}
