import Entitlements
import Postgres
import Queue

/// Whose purchases were, beside what readings said.
extension Histories {
    func transfers(of keys: [Int64], on connection: PostgresConnection) async throws -> [PastTransfer] {
        try await connection.query(
            """
            SELECT x.ended_at, x.purchase_id, x.from_key, x.to_key
              FROM entitlement_sync.transfer AS x
             WHERE x.step = 'done' AND x.ended_at IS NOT NULL
               AND (x.from_key = ANY (\(keys)) OR x.to_key = ANY (\(keys)))
             ORDER BY x.ended_at, x.id
            """
        ).map { try $0.decode(into: PastTransfer.init(at:purchase:from:to:)) }
    }

    /// The ledger's rows that users own or lost, those that readings named, and what they became part of.
    func lineages(
        of keys: [Int64],
        and ids: [Int64],
        on connection: PostgresConnection
    ) async throws -> [(line: Lineage, former: Int64?)] {
        try await connection.query(
            """
            WITH RECURSIVE wanted AS (
                SELECT p.id, p.merged_into FROM entitlement_sync.purchase AS p WHERE p.owner_key = ANY (\(keys))
                 UNION
                SELECT p.id, p.merged_into FROM entitlement_sync.purchase AS p WHERE p.former_owner_key = ANY (\(keys))
                 UNION
                SELECT p.id, p.merged_into FROM entitlement_sync.purchase AS p WHERE p.id = ANY (\(ids))
                 UNION
                SELECT p.id, p.merged_into
                  FROM wanted AS w JOIN entitlement_sync.purchase AS p ON p.id = w.merged_into
            )
            SELECT p.id, p.owner_key, p.owner_since, p.first_seen_at, p.transferred_at, p.merged_into, p.former_owner_key
              FROM wanted AS w JOIN entitlement_sync.purchase AS p ON p.id = w.id
             ORDER BY p.id
            """
        ).map { row in
            var line = try Lineage(
                id: row["id"],
                ownerKey: row["owner_key"],
                ownerSince: row["owner_since"],
                firstSeenAt: row["first_seen_at"]
            )
            line.transferredAt = try row["transferred_at"]
            line.mergedInto = try row["merged_into"]
            return try (line, row["former_owner_key"])
        }
    }

    /// What readings of other users said of these users' purchases: of owners before and after.
    func othersItems(
        _ lineages: [(line: Lineage, former: Int64?)],
        _ transfers: [PastTransfer],
        except keys: Set<Int64>,
        until moment: Instant?,
        on connection: PostgresConnection
    ) async throws -> [PastItem] {
        var owners = lineages.flatMap { [$0.line.ownerKey, $0.former] } + transfers.flatMap { [$0.from, $0.to] }
        // An owner between two others is named by the tickets that each of its moves at RevenueCat has left.
        owners += try await connection.query(
            """
            SELECT DISTINCT o.key
              FROM entitlement_sync.ticket AS t CROSS JOIN LATERAL unnest(ARRAY[t.claimant_key, t.owner_key]) AS o(key)
             WHERE t.purchase_id = ANY (\(lineages.map(\.line.id))) AND t.kind = 'external_transfer' AND o.key IS NOT NULL
            """
        ).map { try $0.decode(Int64.self, at: 0) }
        let others = Set(owners.compactMap(\.self)).subtracting(keys)
        guard !others.isEmpty else { return [] }
        let found = try await items(of: others.sorted(), about: lineages.map(\.line.id), until: moment, on: connection)
        return found.values.flatMap(\.self).sorted { $0.decision < $1.decision }
    }
}
