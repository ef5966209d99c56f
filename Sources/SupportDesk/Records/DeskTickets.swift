package import Postgres

/// Tickets as operators see them and act on them.
package struct DeskTickets: SessionRecords {
    package let pool: PostgresPool
    package let session: [UInt8]

    package init(pool: PostgresPool, session: [UInt8]) {
        self.pool = pool
        self.session = session
    }

    // MARK: Reading

    /// A row of `ticket_status`; ids are masked where they were not asked for.
    package struct Row: Sendable, Codable, Hashable {
        package var id: Int64
        package var reference: String
        package var userID: String?
        package var ownerID: String?
        package var store: String?
        package var originalID: String?
        package var kind: String
        package var state: String
        package var touches: Int
        package var createdAt: String

        enum CodingKeys: String, CodingKey {
            case id, reference, store, kind, state, touches
            case userID = "user_id"
            case ownerID = "purchase_owner_id"
            case originalID = "original_id"
            case createdAt = "created_at"
        }
    }

    /// Lists tickets, the newest first, without those about the operator's own account.
    ///
    /// `states`: `nil`: all in which an operator has to act. `limit`: 1 to 1000. With `reveal` also the users' ids of the first 20,
    /// which is put on record.
    /// Throws `PostgresError`, SQLSTATE `ES009` without a session that may; `RevealRefused`.
    package func list(states: [String]?, limit: Int = 200, reveal: Bool = false) async throws -> [Row] {
        if reveal { try await checkReveal("SELECT entitlement_sync.reveal_list(\(shown), \(states), NULL)") }
        return try await rows(
            reveal ? "reveal" : "view",
            """
            SELECT t.id, t.reference, t.user_id, t.purchase_owner_id, t.store, t.original_id, t.kind, t.state, t.touches,
                   to_char(t.created_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"')
              FROM entitlement_sync.list_tickets(\(shown), \(states), NULL, \(Int32(clamping: limit)), \(reveal)) AS t
            """
        ).map { row in try row.decode(into: Row.init) }
    }

    /// Everything that an operator sees of a ticket, as one JSON object; with `reveal` also the users' ids, which is
    /// put on record.
    ///
    /// - Returns: `nil`: there is no such ticket, or it is about the operator's own account.
    package func show(_ id: Int64, reveal: Bool = false) async throws -> String? {
        if reveal { try await checkReveal("SELECT entitlement_sync.reveal_ticket(\(shown), \(id))") }
        return try await value(
            reveal ? "reveal" : "view",
            """
            SELECT (to_jsonb(t) - 'document' - 'evidence_hash'
                    || jsonb_build_object(
                           'evidence_hash', encode(t.evidence_hash, 'hex'), 'evidence', t.document::jsonb,
                           'replies', (SELECT coalesce(jsonb_agg(to_jsonb(r) ORDER BY r.at), '[]')
                                         FROM entitlement_sync.ticket_replies(\(shown), \(id)) AS r),
                           'owner_waiver', (SELECT to_jsonb(w)
                                              FROM entitlement_sync.ticket_waiver(\(shown), \(id)) AS w),
                           'owner_hours', entitlement_sync.ticket_window(\(shown), \(id)),
                           'tokens', (SELECT coalesce(jsonb_agg(to_jsonb(k)), '[]')
                                        FROM entitlement_sync.ticket_tokens(\(shown), \(id)) AS k),
                           'linked', (SELECT coalesce(jsonb_agg(to_jsonb(l) ORDER BY l.id), '[]')
                                        FROM entitlement_sync.linked_tickets(\(shown), \(id)) AS l)))::text
              FROM entitlement_sync.show_ticket(\(shown), \(id), \(reveal)) AS t
            """
        )
    }

    /// The ticket of a reference such as `T-7K3Q-92`, or of a number.
    package func id(of name: String) async throws -> Int64? {
        if let id = Int64(name) { return id }
        return try await value("view", "SELECT entitlement_sync.ticket_named(\(shown), \(name))")
    }

    // MARK: Acting

    /// Opens a ticket for a claimant who wrote to support, or touches the open one.
    ///
    /// `orderID`: as the claimant gave it; it proves nothing. `reason`: what the claimant wrote, 1 to 4000 characters.
    /// Throws `PostgresError`, SQLSTATE `ES001` for an unknown user.
    ///
    /// - Returns: the ticket's id; `nil`: it would be the operator's own case, or the purchase is the claimant's already.
    package func open(claimant: String, orderID: String?, reason: String) async throws -> Int64? {
        try await rows(
            "open",
            """
            SELECT t.id, entitlement_sync.note_order(\(shown), t.id, \(orderID))
              FROM entitlement_sync.open_ticket(\(shown), \(claimant), \(orderID), \(reason)) AS t(id)
            """
        ).first?.decode(Int64?.self, at: 0)
    }

    /// What an operator may do to a ticket.
    package enum Act: Sendable {
        case claim, release, refresh, withdraw, transfer
        /// Access for three days, while the case is open.
        case giveAccess
        /// The rest of the time that the owner has to object is skipped: why, 1 to 4000 characters.
        case waive(reason: String)
        /// The account tokens of transferred purchases are written at the App Store again, where that came to nothing.
        case token
        /// What operators found out about a transfer that only they can end.
        case resolve(hasMoved: Bool)
        case note(String)
        /// A row of `desk_question`, and a remark for the desk alone.
        case ask(question: String, words: String?)
        /// How it ends without a transfer, a remark, and for access until the paid period ends the hash of the evidence that was
        /// seen.
        case refuse(how: String, words: String?, hash: [UInt8]? = nil)
        /// The hash of the evidence that was seen, and what else is moved, as it was confirmed.
        case approve(hash: [UInt8], confirmed: [String])
    }

    /// Does something to a ticket.
    ///
    /// - Returns: a word for why it was not done; `nil`: it was.
    /// - Throws: `PostgresError`: SQLSTATE `ES009` where the role may not, `ES007` where the sign-in is too old, `22023`
    ///   where there is no such ticket or the words can't be taken.
    package func act(_ act: Act, on id: Int64) async throws -> String? {
        let (permission, query): (String, PostgresQuery) =
            switch act {
            case .claim: ("work", "SELECT entitlement_sync.assign_ticket(\(shown), \(id))")
            case .release: ("work", "SELECT entitlement_sync.unassign_ticket(\(shown), \(id))")
            case .refresh: ("work", "SELECT entitlement_sync.refresh_evidence(\(shown), \(id))")
            case .note(let words): ("work", "SELECT entitlement_sync.note_ticket(\(shown), \(id), \(words))")
            case .ask(let question, let words):
                ("work", "SELECT entitlement_sync.ask_claimant(\(shown), \(id), \(question), \(words))")
            case .refuse(let how, let words, let hash):
                (
                    "refuse",
                    "SELECT entitlement_sync.refuse_ticket(\(shown), \(id), \(how), \(words), \(hash.map(PostgresBytes.init)))"
                )
            case .giveAccess: ("give_access", "SELECT entitlement_sync.give_temporary_access(\(shown), \(id))")
            case .approve(let hash, let confirmed):
                (
                    "approve",
                    "SELECT entitlement_sync.approve_ticket(\(shown), \(id), \(PostgresBytes(hash)), \(confirmed))"
                )
            case .withdraw: ("approve", "SELECT entitlement_sync.withdraw_approval(\(shown), \(id))")
            case .transfer: ("transfer", "SELECT entitlement_sync.begin_transfer(\(shown), \(id))")
            case .resolve(let hasMoved):
                (
                    "transfer",
                    "SELECT entitlement_sync.resolve_transfer(\(shown), \(id), \(hasMoved ? "moved" : "not_moved"))"
                )
            case .token: ("transfer", "SELECT entitlement_sync.retry_tokens(\(shown), \(id))")
            case .waive(let reason):
                ("override", "SELECT entitlement_sync.waive_owner_window(\(shown), \(id), \(reason))")
            }
        return try await value(permission, query)
    }
}
