package import Entitlements
import Postgres
import Queue

extension CaseRecords {
    /// What is on record around a case, but for its own ticket; `held`: what would be moved along.
    package func background(of file: File, moving held: [Observation] = []) async throws -> CaseBackground {
        let past = try await past(of: file)
        let (own, along) = try await chargedBack(file.purchase, held.flatMap(\.identifiers))
        var background = CaseBackground()
        background.history = past.filter(\.isMove)
        background.passed = past.filter { !$0.isMove }
        background.refundSeenAt = try await refundSeen(of: file)
        background.chargedBackAt = own
        background.movesChargedBack = along
        background.claimedAt = try await firstClaimed(file)
        background.frozen = try await frozen(of: file)
        return background
    }

    /// What ended before, by side, kind and outcome; each with its newest tickets.
    private func past(of file: File) async throws -> [CasePast] {
        try await pool.query(
            """
            WITH RECURSIVE item AS (
                SELECT \(file.purchase?.id)::bigint AS id
                 UNION
                SELECT p.id FROM entitlement_sync.purchase AS p JOIN item AS i ON p.merged_into = i.id
            ), side AS MATERIALIZED (
                SELECT s.about, s.user_key FROM (VALUES ('claimant', \(file.claimant.key)::bigint), ('owner', \(file.owner?.key)::bigint))
                                           AS s(about, user_key) WHERE s.user_key IS NOT NULL
            ), found AS (
                SELECT s.about, 'claimed' AS what, t.id FROM side AS s JOIN entitlement_sync.ticket AS t ON t.claimant_key = s.user_key
                 UNION
                SELECT s.about, 'owned', t.id FROM side AS s JOIN entitlement_sync.ticket AS t ON t.owner_key = s.user_key
                 UNION
                SELECT 'purchase', 'claimed', t.id FROM item AS i JOIN entitlement_sync.ticket AS t ON t.purchase_id = i.id
                 UNION
                SELECT 'purchase', 'claimed', t.id FROM item AS i JOIN entitlement_sync.ticket AS t ON t.subject_id = i.id
                 WHERE t.purchase_id IS NULL
            ), moved AS (
                SELECT s.about, 'received' AS what, x.id FROM side AS s JOIN entitlement_sync.transfer AS x ON x.to_key = s.user_key
                 UNION
                SELECT s.about, 'given', x.id FROM side AS s JOIN entitlement_sync.transfer AS x ON x.from_key = s.user_key
                 UNION
                SELECT 'purchase', 'moved', x.id FROM item AS i JOIN entitlement_sync.transfer AS x ON x.purchase_id = i.id
            ), ended AS (
                SELECT f.about, f.what, t.id, t.closed_at AS at,
                       CASE t.state WHEN 'refused' THEN coalesce(t.verdict, 'refuse') ELSE t.state END AS outcome
                  FROM found AS f JOIN entitlement_sync.ticket AS t ON t.id = f.id
                 WHERE t.closed_at IS NOT NULL
                 UNION ALL
                SELECT m.about, m.what, x.ticket_id, x.ended_at, x.step
                  FROM moved AS m JOIN entitlement_sync.transfer AS x ON x.id = m.id
                 WHERE x.ended_at IS NOT NULL AND x.step IN ('done', 'stopped')
            )
            SELECT e.about, e.what, e.outcome, count(*), max(e.at),
                   array_to_string((array_agg(e.id ORDER BY e.at DESC, e.id DESC))[:20], ' ')
              FROM ended AS e WHERE e.id <> \(file.ticketID)
             GROUP BY e.about, e.what, e.outcome ORDER BY e.about, e.what, e.outcome
            """
        ).map { row in
            try CasePast(
                about: row.decode(CasePast.Subject.self, at: 0),
                what: row.decode(CasePast.What.self, at: 1),
                outcome: row.decode(String.self, at: 2),
                count: row.decode(Int.self, at: 3),
                lastAt: row.decode(Instant.self, at: 4),
                tickets: row.decode(String.self, at: 5).split(separator: " ").compactMap { Int64($0) }
            )
        }
    }

    /// When a store last reported a refund of the purchase, asked about either side.
    private func refundSeen(of file: File) async throws -> Instant? {
        guard let purchase = file.purchase else { return nil }
        let keys = [file.claimant.key, file.owner?.key].compactMap(\.self)
        return try await pool.query(
            """
            SELECT max(x.asked_at) FROM entitlement_sync.past_observation AS x
             WHERE x.user_key = ANY (\(keys)) AND x.status = 'refunded'
               AND entitlement_sync.surviving_purchase(x.purchase_id) = \(purchase.id)
            """
        ).first?.decode(Instant?.self, at: 0)
    }

    /// When money paid for the purchase was last taken back as fraud, and whether that was done with what moves along: under
    /// any number that they ever had.
    private func chargedBack(_ purchase: Purchase?, _ moved: [PurchaseIdentifier]) async throws
        -> (own: Instant?, along: Bool)
    {
        guard let purchase else { return (nil, false) }
        return try await pool.query(
            """
            WITH moved AS (
                SELECT n.value, n.store, n.environment
                  FROM unnest(\(moved.map(\.value)), \(moved.map(\.store)), \(moved.map(\.environment)))
                       AS n(value, store, environment)
            ), item AS (
                SELECT m.store, m.value, entitlement_sync.surviving_purchase(x.purchase_id) AS id
                  FROM moved AS m
                  LEFT JOIN entitlement_sync.purchase_identifier AS x
                    ON x.value = m.value AND x.store = m.store AND x.environment = m.environment
            )
            SELECT entitlement_sync.charged_back(ARRAY[\(purchase.id)::bigint]),
                   entitlement_sync.charged_back(
                       ARRAY(SELECT DISTINCT i.id FROM item AS i
                              WHERE i.id <> entitlement_sync.surviving_purchase(\(purchase.id)::bigint))) IS NOT NULL
                   -- An unknown one has a name alone.
                   OR EXISTS (SELECT 1 FROM item AS i
                                JOIN entitlement_sync.chargeback_name AS k ON k.hash = entitlement_sync.name_hash(i.store, i.value)
                               WHERE i.id IS NULL AND k.lifted_at IS NULL)
            """
        ).first?.decode(Instant?.self, Bool.self) ?? (nil, false)
    }

    /// When the claimant came, where an event had named the purchase's owner a short while before.
    private func firstClaimed(_ file: File) async throws -> Instant? {
        try await pool.query(
            """
            SELECT t.created_at FROM entitlement_sync.ticket AS t
             WHERE t.id = \(file.ticketID) AND t.kind = 'first_seen_elsewhere'
            """
        ).first?.decode(Instant.self, at: 0)
    }

    /// What the host has frozen for a lapse; users without assets have none.
    private func frozen(of file: File) async throws -> FrozenAssets {
        let ids = [file.claimant.id, file.owner?.id].compactMap(\.self)
        guard !ids.isEmpty else { return FrozenAssets() }
        var lapsed: [String: Int64] = [:]
        for row in try await pool.query(
            "SELECT a.user_id, a.lapsed FROM entitlement_sync_host.count_assets(\(ids)) AS a"
        ) {
            let (id, count) = try row.decode(String.self, Int64.self)
            lapsed[id] = count
        }
        return FrozenAssets(
            claimant: file.claimant.id.map { lapsed[$0] ?? 0 },
            owner: file.owner?.id.map { lapsed[$0] ?? 0 }
        )
    }
}

extension CasePast.Subject: PostgresDecodable {}
extension CasePast.What: PostgresDecodable {}
