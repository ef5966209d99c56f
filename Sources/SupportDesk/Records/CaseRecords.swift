package import Entitlements
import Foundation
import Ledger
package import Postgres
import Queue

/// Our records of cases, for the workers: what is known of each, and what was found out.
package struct CaseRecords: Sendable {
    let pool: PostgresPool

    package init(pool: PostgresPool) { self.pool = pool }

    /// What our records and the host say of a case.
    package struct File: Sendable {
        package var ticketID: Int64
        /// An operator works on it, or a transfer waits for it.
        package var isAwaited: Bool
        package var claimant: CaseAccount
        package var owner: CaseAccount?
        package var purchase: Purchase?
        package var identifiers: [PurchaseIdentifier]
        /// A reported id alone says which purchase it is about.
        package var isNamedByID: Bool
        package var isProven: Bool
        /// A store knew nothing of an id that the claimant named, when it was last asked.
        package var wasDisproven: Bool
        /// The ids that were named for it, the newest before the rest.
        package var claims: [CaseClaim]
        /// The claimant, or the purchase, has to do with the sandbox.
        package var mayBeSandbox: Bool
        package var ownerObjected: Bool
        package var ownerReleased: Bool
        /// What sources had answered by the evidence that there is; empty where it is about another purchase, or there is none.
        package var sources: [CaseSource]
        /// There is evidence about this purchase, and no source was missing in it.
        package var hasWholeEvidence: Bool
        /// People have decided, and other evidence opens it again.
        package var isRefused: Bool
        /// The database's time, and ours when it was asked.
        package var readAt: Instant
        package var readTick: ContinuousClock.Instant
    }

    /// Takes tickets whose evidence is to be collected, for two minutes.
    ///
    /// That is longer than a collection takes: the share of a process that dies meanwhile is taken by others. What is asked for from
    /// now on is collected once more.
    package func take(upTo limit: Int) async throws -> [Int64] {
        try await pool.query(
            """
            WITH due AS MATERIALIZED (
                SELECT r.ticket_id
                  FROM entitlement_sync.evidence_request AS r JOIN entitlement_sync.ticket AS t ON t.id = r.ticket_id
                 WHERE r.due_at <= now() AND coalesce(r.taken_at < now() - interval '2 minutes', true)
                 ORDER BY coalesce(t.assigned_until > now(), false) DESC, r.due_at LIMIT \(Int64(limit))
                   FOR NO KEY UPDATE OF r SKIP LOCKED
            )
            UPDATE entitlement_sync.evidence_request AS r
               SET taken_at = clock_timestamp(), answers = r.requests, tries = least(r.tries, 1000) + 1
              FROM due AS d WHERE r.ticket_id = d.ticket_id
            RETURNING r.ticket_id
            """
        ).map { row in try row.decode(Int64.self, at: 0) }
    }

    /// Reads what is known of a case; `nil`: there is no such ticket.
    ///
    /// A purchase that became part of another is that other one.
    package func file(of ticketID: Int64) async throws -> File? {
        let tick = ContinuousClock.now
        let rows = try await pool.query(
            """
            SELECT t.state = 'executing' OR coalesce(t.assigned_until > now(), false) AS is_awaited,
                   t.claimant_key, c.user_id AS claimant_id, o.user_key AS owner_key, o.user_id AS owner_id, p.id AS purchase_id,
                   -- A former owner's word says nothing of the purchase any more.
                   w.objected_at IS NOT NULL AND (p.id IS NULL OR t.owner_key IS NOT DISTINCT FROM p.owner_key) AS owner_objected,
                   EXISTS (SELECT 1 FROM entitlement_sync.observation AS x
                            WHERE x.user_key = t.claimant_key
                              AND entitlement_sync.surviving_purchase(x.purchase_id) = p.id
                              AND x.attribution = 'foreign') AS is_proven,
                   entitlement_sync.has_owner_consent(t.id) AS owner_released, clock_timestamp() AS read_at,
                   coalesce(p.environment <> 'production', false)
                   OR EXISTS (SELECT 1 FROM entitlement_sync.sandbox_user AS s WHERE s.user_id = c.user_id)
                   OR EXISTS (SELECT 1 FROM entitlement_sync.purchase AS s
                               WHERE s.owner_key = t.claimant_key AND s.environment <> 'production') AS may_be_sandbox,
                   entitlement_sync.is_named_by_reported_id(t.id) AS is_named_by_id,
                   EXISTS (SELECT 1 FROM entitlement_sync.ticket_evidence AS e
                            WHERE e.id = t.evidence_id AND 'proof_failed' = ANY (e.facts)) AS was_disproven,
                   (SELECT coalesce(e.document -> 'sources', '[]')::text FROM entitlement_sync.ticket_evidence AS e
                     WHERE e.id = t.evidence_id AND (e.document ->> 'purchase')::bigint IS NOT DISTINCT FROM p.id) AS sources,
                   t.state = 'refused' AS is_refused
              FROM entitlement_sync.ticket AS t
              LEFT JOIN entitlement_sync.owner_window AS w ON w.ticket_id = t.id
              JOIN entitlement_sync.user_sync AS c ON c.user_key = t.claimant_key
              LEFT JOIN entitlement_sync.purchase AS p ON p.id = entitlement_sync.surviving_purchase(coalesce(t.purchase_id, t.subject_id))
              LEFT JOIN entitlement_sync.user_sync AS o
                ON o.user_key = CASE WHEN p.id IS NULL THEN t.owner_key ELSE p.owner_key END
             WHERE t.id = \(ticketID)
            """
        )
        guard let row = rows.first else { return nil }
        let (claimantID, ownerID): (String?, String?) = try (row["claimant_id"], row["owner_id"])
        let (ownerKey, purchaseID, json): (Int64?, Int64?, String?) = try (
            row["owner_key"], row["purchase_id"], row["sources"]
        )
        let sources = try json.map { try JSONDecoder().decode([CaseSource].self, from: Data($0.utf8)) }
        let people = try await people([claimantID, ownerID].compactMap(\.self))
        var purchase: Purchase?
        var identifiers: [PurchaseIdentifier] = []
        if let purchaseID {
            purchase = try await pool.withConnection { try await LedgerReads.purchase(purchaseID, on: $0) }
            identifiers = try await names(of: purchaseID)
        }
        func account(_ key: Int64, _ id: String?) -> CaseAccount {
            let known = id.flatMap { people[ExactText($0)] }
            return CaseAccount(key: key, id: id, user: known?.user, createdAt: known?.createdAt)
        }
        return try await File(
            ticketID: ticketID,
            isAwaited: row["is_awaited"],
            claimant: account(row["claimant_key"], claimantID),
            owner: ownerKey.map { account($0, ownerID) },
            purchase: purchase,
            identifiers: identifiers,
            isNamedByID: row["is_named_by_id"],
            isProven: row["is_proven"],
            wasDisproven: row["was_disproven"],
            claims: claimantID == nil ? [] : claims(of: ticketID),
            mayBeSandbox: row["may_be_sandbox"],
            ownerObjected: row["owner_objected"],
            ownerReleased: row["owner_released"],
            sources: sources ?? [],
            hasWholeEvidence: sources.map { !$0.contains { $0.result == .unavailable } } ?? false,
            isRefused: row["is_refused"],
            readAt: row["read_at"],
            readTick: tick
        )
    }

    private func people(_ ids: [String]) async throws -> [ExactText: (user: User, createdAt: Instant)] {
        var people: [ExactText: (user: User, createdAt: Instant)] = [:]
        for row in try await pool.query(
            "SELECT u.id, u.type, u.status, u.created_at FROM entitlement_sync_host.read_users(\(ids)) AS u"
        ) {
            let (id, type, status, created) = try row.decode(String?.self, String?.self, String?.self, Instant?.self)
            let user = try User(id, type, status, by: "read_users")
            guard let created else { throw AdapterFault("read_users", "created_at") }
            people[ExactText(user.id)] = (user, created)
        }
        return people
    }

    private func names(of purchase: Int64) async throws -> [PurchaseIdentifier] {
        try await pool.query(
            """
            SELECT i.value, i.store, i.environment, i.kind FROM entitlement_sync.purchase_identifier AS i
             WHERE i.purchase_id = \(purchase) ORDER BY i.value, i.store, i.environment LIMIT 500
            """
        ).map { row in
            try row.decode(into: PurchaseIdentifier.init(value:store:environment:kind:))
        }
    }

    /// Finds out which purchase a ticket is about, where only its store's id is known.
    ///
    /// - Returns: whether all is known that can be; if not, its owner is being read, which brings it into our records.
    package func namePurchase(of ticketID: Int64) async throws -> Bool {
        try await pool.retrying { connection in
            try await connection.query("SELECT entitlement_sync.name_purchase(\(ticketID))")
                .first?.decode(Bool.self, at: 0) ?? true
        }
    }

    /// The owners' keys by RevenueCat's ids of their purchases; ids without an owner are left out.
    package func owners(of ids: [String]) async throws -> [ExactText: Int64] {
        var owners: [ExactText: Int64] = [:]
        for row in try await pool.query(
            """
            SELECT i.value, p.owner_key FROM entitlement_sync.purchase_identifier AS i
              JOIN entitlement_sync.purchase AS p ON p.id = entitlement_sync.surviving_purchase(i.purchase_id)
             WHERE i.value = ANY (\(ids)) AND i.kind = 'revenuecat_id' AND p.owner_key IS NOT NULL
            """
        ) {
            let (id, owner) = try row.decode(String.self, Int64.self)
            owners[ExactText(id)] = owner
        }
        return owners
    }

    // MARK: What was found

    /// Evidence, ready to be kept.
    package struct Found: Sendable {
        package var evidence: CaseEvidence
        /// JSON, keys in order.
        package var document: String
        /// SHA-256 of the evidence, which is the document less what only has to be known.
        package var hash: [UInt8]
        /// When the first request for it began, by the database's clock.
        package var askedAt: Instant
        package var settings: DeskSettings
    }

    /// Keeps evidence: approvals on other evidence end, and a ticket whose cause has gone away is closed.
    ///
    /// `again`: when it is to be collected again because a store did not answer, or sooner where an operator has asked
    /// for that. In the same transaction: a process that died in between would leave a case that is never collected
    /// again.
    ///
    /// - Returns: the evidence's number; `nil`: the ticket is closed by now, or newer evidence is there.
    package func keep(_ found: Found, for ticketID: Int64, again: Duration? = nil) async throws -> Int64? {
        try await pool.withTransaction { connection in
            let evidence = found.evidence
            let rows = try await connection.query(
                """
                SELECT entitlement_sync.keep_evidence(
                           \(ticketID), \(found.askedAt.timestamp), \(PostgresBytes(found.hash)), \(evidence.facts.map(\.rawValue)),
                           \(evidence.hindrance.rawValue), \(evidence.verdict?.rawValue), \(evidence.reason.rawValue),
                           \(Int16(clamping: evidence.approvals)), \(evidence.alsoMoves.map { $0.id ?? "?" }),
                           \(Int64(evidence.ownerWindow(found.settings).components.seconds)),
                           \(Int64(found.settings.holds.components.seconds)), \(found.document), \(evidence.owner?.key))
                """
            )
            guard let id = try rows.first?.decode(Int64?.self, at: 0) else { return nil }
            guard let again else { return id }
            try await connection.query(
                """
                UPDATE entitlement_sync.evidence_request AS r
                   SET due_at = least(r.due_at, now() + \(again.components.seconds) * interval '1 second')
                  FROM entitlement_sync.ticket AS t
                 WHERE t.id = \(ticketID) AND r.ticket_id = t.id AND entitlement_sync.is_open(t.state) AND t.state <> 'executing'
                """
            )
            return id
        }
    }

    /// Gives a ticket back whose evidence was not collected for a reason of our own.
    package func release(_ ticketID: Int64) async throws {
        try await pool.query(
            """
            UPDATE entitlement_sync.evidence_request AS r
               SET due_at = now(), taken_at = NULL, tries = greatest(r.tries - 1, 0)
             WHERE r.ticket_id = \(ticketID) AND r.due_at IS NOT NULL
            """
        )
    }

    /// Notes that evidence could not be collected, and when it is to be tried again: each time twice as late, an hour at
    /// most.
    package func putOff(_ ticketID: Int64, for wait: Duration, error: String) async throws {
        try await pool.query(
            """
            UPDATE entitlement_sync.evidence_request AS r
               SET due_at = now() + least(\(Double(wait.microseconds) / 1_000_000) * 2 ^ least(r.tries - 1, 10), 3600)
                                    * interval '1 second',
                   taken_at = NULL, error = \(error)
             WHERE r.ticket_id = \(ticketID) AND r.due_at IS NOT NULL
            """
        )
    }

    /// Passes on what people are to hear of their tickets.
    ///
    /// - Returns: how many messages.
    package func tell() async throws -> Int {
        try await pool.retrying { connection in
            let rows = try await connection.query("SELECT entitlement_sync.publish_ticket_news(100)")
            return Int(try rows.first?.decode(Int32.self, at: 0) ?? 0)
        }
    }

    /// Puts back what is not assigned any more, lets windows end, takes back what people agreed to too long ago, closes
    /// what no claimant answered.
    ///
    /// - Returns: how many tickets.
    package func tend() async throws -> Int {
        try await pool.retrying { connection in
            let rows = try await connection.query(
                "SELECT entitlement_sync.apply_ticket_deadlines() + entitlement_sync.expire_questions()"
            )
            return Int(try rows.first?.decode(Int32.self, at: 0) ?? 0)
        }
    }
}
