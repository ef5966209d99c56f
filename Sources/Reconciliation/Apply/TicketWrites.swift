import Entitlements
import FoundationEssentials
import Outbox
import Postgres
import Queue

/// Opens and touches tickets in the transaction of their verdict.
enum TicketWrites {
    /// Opens each ticket, or touches the open one of the same claimant and purchase: the unique index decides.
    ///
    /// One that was refused in the last 90 days is touched in place of a new one: it is opened again where the evidence,
    /// which is collected again, is another.
    ///
    /// `publishes`: whether new ones are published in the outbox. Returns the id of the most telling ticket that the claimant may
    /// see, by claimant.
    static func open(
        _ wanted: [WantedTicket],
        publishes: Bool,
        on connection: PostgresConnection
    ) async throws -> [Int64: Int64] {
        var seen: Set<[Int64]> = []
        var tickets = wanted.filter { seen.insert([$0.claimantKey, $0.request.purchase ?? 0]).inserted }
            .sorted { ($0.claimantKey, $0.request.purchase ?? 0) < ($1.claimantKey, $1.request.purchase ?? 0) }
        guard !tickets.isEmpty else { return [:] }
        var requests = tickets.map(\.request)
        let named = requests.compactMap(\.ownerID).sortedExactly
        if !named.isEmpty { try await meet(named, on: connection) }
        let mismatches: Set<TicketRequest.Kind> = [.ownerMismatch, .firstSeenElsewhere]
        try await name(tickets.filter { mismatches.contains($0.request.kind) }, on: connection)
        tickets = try await touchMoves(tickets, on: connection)
        guard !tickets.isEmpty else { return [:] }
        requests = tickets.map(\.request)
        let rows = try await connection.query(
            """
            WITH wanted AS (
                SELECT n.*, coalesce(n.owner, (SELECT u.user_key FROM entitlement_sync.user_sync AS u
                                                WHERE u.user_id = n.owner_id)) AS owner_key
                  FROM unnest(\(tickets.map(\.claimantKey)), \(tickets.map(\.jobID)), \(requests.map(\.ownerKey)),
                              \(requests.map(\.ownerID)), \(requests.map(\.purchase)), \(requests.map(\.kind.rawValue)),
                              \(requests.map(\.store)), \(requests.map(\.originalID)), \(requests.map(\.isVisible)),
                              \(requests.map(\.priority)), \(requests.map { $0.deadline?.timestamp }))
                       AS n(claimant_key, job_id, owner, owner_id, purchase_id, kind, store, original_id, visible, priority,
                            deadline)
            ), again AS (
                UPDATE entitlement_sync.ticket AS t SET touches = t.touches + 1
                  FROM wanted AS w
                 WHERE t.claimant_key = w.claimant_key AND coalesce(t.purchase_id, 0) = coalesce(w.purchase_id, 0)
                   AND t.state = 'refused' AND t.closed_at > now() - interval '90 days' AND (t.visible OR NOT w.visible)
                   AND NOT EXISTS (
                       SELECT 1 FROM entitlement_sync.ticket AS x
                        WHERE x.claimant_key = t.claimant_key
                          AND coalesce(x.purchase_id, 0) = coalesce(t.purchase_id, 0)
                          AND (x.id > t.id AND x.state = 'refused'
                               OR entitlement_sync.is_open(x.state)))
                RETURNING t.id, t.claimant_key, coalesce(t.purchase_id, 0) AS purchase_id, t.visible, t.touches,
                          t.priority, t.uid, t.kind, t.state
            ), opened AS (
                INSERT INTO entitlement_sync.ticket AS t
                       (claimant_key, owner_key, purchase_id, kind, store, original_id, visible, priority, deadline)
                SELECT w.claimant_key, w.owner_key, w.purchase_id, w.kind, w.store, w.original_id, w.visible, w.priority,
                       w.deadline
                  FROM wanted AS w
                 WHERE NOT EXISTS (SELECT 1 FROM again AS a
                                    WHERE a.claimant_key = w.claimant_key AND a.purchase_id = coalesce(w.purchase_id, 0))
                ON CONFLICT (claimant_key, coalesce(purchase_id, 0))
                      WHERE entitlement_sync.is_open(state)
                DO UPDATE SET touches = t.touches + 1,
                              owner_key = coalesce(t.owner_key, excluded.owner_key),
                              store = coalesce(t.store, excluded.store),
                              original_id = coalesce(t.original_id, excluded.original_id),
                              kind = CASE WHEN excluded.visible AND NOT t.visible
                                               OR t.kind = 'paid_no_access'
                                                  AND excluded.kind IN ('owner_mismatch', 'first_seen_elsewhere')
                                               OR t.kind = 'owner_mismatch' AND excluded.kind = 'first_seen_elsewhere'
                                          THEN excluded.kind ELSE t.kind END,
                              visible = t.visible OR excluded.visible,
                              priority = least(t.priority, excluded.priority),
                              deadline = coalesce(excluded.deadline, t.deadline)
                RETURNING t.id, t.claimant_key, coalesce(t.purchase_id, 0) AS purchase_id, t.visible, t.touches, t.priority,
                          t.uid, t.kind, t.state
            ), published AS (
                INSERT INTO entitlement_sync.outbox (user_key, topic, data)
                SELECT o.claimant_key, \(OutboxTopic.ticketOpened.rawValue),
                       jsonb_build_object('reference', entitlement_sync.reference_of('T', o.uid), 'kind', o.kind,
                                          'state', o.state, 'visible', o.visible, 'priority', o.priority)
                  FROM opened AS o WHERE o.touches = 0 AND \(publishes)
                 ORDER BY o.id
            ), touched AS (
                SELECT o.*, w.job_id FROM (SELECT * FROM opened UNION ALL SELECT * FROM again) AS o
                  JOIN wanted AS w ON w.claimant_key = o.claimant_key AND coalesce(w.purchase_id, 0) = o.purchase_id
            ), noted AS (
                INSERT INTO entitlement_sync.ticket_event (ticket_id, kind, job_id)
                SELECT t.id, CASE t.touches WHEN 0 THEN 'opened' ELSE 'touched' END, t.job_id FROM touched AS t
            )
            SELECT t.claimant_key, t.id, t.job_id, t.visible FROM touched AS t ORDER BY t.priority DESC, t.id DESC
            """
        )
        var visible: [Int64: Int64] = [:]
        var touched: [(id: Int64, job: UUID)] = []
        for row in rows {
            let (claimant, id, job, isVisible) = try row.decode(Int64.self, Int64.self, UUID.self, Bool.self)
            touched.append((id, job))
            if isVisible { visible[claimant] = id }
        }
        try await connection.query(
            "SELECT entitlement_sync.note_touched(\(touched.map(\.id)), \(touched.map(\.job)))"
        )
        return visible
    }

    /// Counts a purchase that RevenueCat moves to and fro in one ticket, whichever of its owners is its claimant; returns the
    /// tickets that remain to be opened.
    private static func touchMoves(_ tickets: [WantedTicket], on connection: PostgresConnection) async throws
        -> [WantedTicket]
    {
        let moves = tickets.filter { $0.request.kind == .externalTransfer && $0.request.purchase != nil }
        guard !moves.isEmpty else { return tickets }
        let touched = Set(
            try await connection.query(
                """
                WITH again AS (
                    UPDATE entitlement_sync.ticket AS t SET touches = t.touches + 1
                      FROM unnest(\(moves.map(\.request.purchase)), \(moves.map(\.jobID))) AS n(purchase_id, job_id)
                     WHERE t.purchase_id = n.purchase_id AND t.kind = 'external_transfer'
                       AND entitlement_sync.is_open(t.state)
                       AND EXISTS (SELECT 1 FROM entitlement_sync.ticket_event AS e
                                    WHERE e.ticket_id = t.id AND e.kind IN ('opened', 'touched')
                                      AND e.at > now() - interval '1 day')
                    RETURNING t.id, t.purchase_id, n.job_id
                ), noted AS (
                    INSERT INTO entitlement_sync.ticket_event (ticket_id, kind, job_id)
                    SELECT a.id, 'touched', a.job_id FROM again AS a
                )
                SELECT a.purchase_id FROM again AS a
                """
            ).map { try $0.decode(Int64.self) }
        )
        guard !touched.isEmpty else { return tickets }
        let advice =
            "RevenueCat moves purchases back and forth between accounts: set its restore behavior to \"Keep with original App User"
            + " ID\" (project settings). The tickets of the kind external_transfer name the accounts."
        try await connection.send(Alarms.statements(raising: ["owner_bounces": advice]))
        return tickets.filter {
            $0.request.kind != .externalTransfer || $0.request.purchase.map(touched.contains) != true
        }
    }

    /// Lets a claimant's case without a purchase become the case of the purchase that has been found by now.
    private static func name(_ found: [WantedTicket], on connection: PostgresConnection) async throws {
        let named = found.filter { $0.request.purchase != nil }
        guard !named.isEmpty else { return }
        try await connection.query(
            """
            UPDATE entitlement_sync.ticket AS t
               SET purchase_id = n.purchase_id, kind = n.kind
              FROM unnest(\(named.map(\.claimantKey)), \(named.map(\.request.purchase)), \(named.map(\.request.originalID)),
                          \(named.map(\.request.kind.rawValue))) AS n(claimant_key, purchase_id, original_id, kind)
             WHERE t.claimant_key = n.claimant_key AND t.purchase_id IS NULL
               AND (t.kind = 'paid_no_access' OR t.kind = 'owner_mismatch' AND t.original_id = n.original_id)
               AND entitlement_sync.is_open(t.state)
               AND NOT EXISTS (
                   SELECT 1 FROM entitlement_sync.ticket AS x
                    WHERE x.claimant_key = n.claimant_key AND x.purchase_id = n.purchase_id
                      AND entitlement_sync.is_open(x.state))
            """
        )
    }

    /// Makes owners known that only the store names: they may be users of the host that no job has read yet.
    ///
    /// A host's open transaction may be about to do the same; then the ticket names its owner at the next touch.
    static func meet(_ owners: [String], on connection: PostgresConnection) async throws {
        do {
            try await connection.withSavepoint { connection in
                try await connection.withSetting("lock_timeout", "50ms") { connection in
                    try await connection.withPlansOfServer { connection in
                        try await connection.query(
                            """
                            INSERT INTO entitlement_sync.user_sync (user_id)
                            SELECT u.id FROM entitlement_sync_host.read_users(\(owners)) AS u ORDER BY u.id
                            ON CONFLICT (user_id) DO NOTHING
                            """
                        )
                    }
                }
            }
        } catch let error as PostgresError where error.sqlState == SQLState.lockNotAvailable {
            return
        }
    }
}
