package import Entitlements
import Postgres

extension CaseRecords {
    /// The ids that a claimant or an agent named for a ticket: what agents gave before the rest, the newest first.
    ///
    /// Each once; of either side, ten are kept.
    func claims(of ticketID: Int64) async throws -> [CaseClaim] {
        try await pool.query(
            """
            SELECT n.kind, n.value, n.store, n.by_claimant, n.by_agent_at IS NOT NULL
              FROM (SELECT c.kind, c.value, c.store, c.by_claimant, c.by_agent_at, c.at FROM entitlement_sync.ticket_reported_id AS c WHERE c.ticket_id = \(ticketID)
                     UNION ALL
                    -- What an agent gave with the ticket itself.
                    SELECT 'order_id', t.original_id, NULL, false, t.created_at, t.created_at FROM entitlement_sync.ticket AS t
                     WHERE t.id = \(ticketID) AND t.original_id IS NOT NULL
                       AND EXISTS (SELECT 1 FROM entitlement_sync.ticket_event AS e
                                    WHERE e.ticket_id = t.id AND e.kind = 'opened' AND e.operator_id IS NOT NULL)
                       AND NOT EXISTS (SELECT 1 FROM entitlement_sync.ticket_reported_id AS c
                                        WHERE c.ticket_id = t.id AND c.value = t.original_id)) AS n
             ORDER BY n.by_agent_at DESC NULLS LAST, n.at DESC, n.value, n.kind
            """
        ).map { row in
            try row.decode(into: CaseClaim.init(kind:value:store:isByClaimant:isByAgent:))
        }
    }

    /// Our numbers of the purchases that stores call so; what is not known is left out.
    package func purchases(named names: [PurchaseIdentifier]) async throws -> [PurchaseIdentifierKey: Int64] {
        guard !names.isEmpty else { return [:] }
        var purchases: [PurchaseIdentifierKey: Int64] = [:]
        for row in try await pool.query(
            """
            SELECT i.value, i.store, i.environment, entitlement_sync.surviving_purchase(i.purchase_id)
              FROM unnest(\(names.map(\.value)), \(names.map(\.store)), \(names.map(\.environment)))
                   AS n(value, store, environment)
              JOIN entitlement_sync.purchase_identifier AS i USING (value, store, environment)
            """
        ) {
            let (value, store, environment, id) = try row.decode(String.self, String.self, String.self, Int64?.self)
            purchases[PurchaseIdentifierKey(value: value, store: store, environment: environment)] = id
        }
        return purchases
    }

    /// Lets a ticket, whose purchase is unknown but for what another id has led to, be about the purchase that an id
    /// has led to.
    ///
    /// - Returns: whether it is about that now.
    package func name(_ ticketID: Int64, as purchase: Int64) async throws -> Bool {
        try await pool.retrying { connection in
            try await connection.query("SELECT entitlement_sync.name_found(\(ticketID), \(purchase))")
                .first?.decode(Bool.self, at: 0) ?? false
        }
    }
}
