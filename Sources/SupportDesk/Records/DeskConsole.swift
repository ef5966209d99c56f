package import FoundationEssentials
package import Postgres
package import Runs

/// What the console shows beside single tickets.
package struct DeskConsole: SessionRecords {
    package let pool: PostgresPool
    package let session: [UInt8]

    package init(pool: PostgresPool, session: [UInt8]) {
        self.pool = pool
        self.session = session
    }

    // MARK: The operator

    /// Whose session it is.
    package struct Me: Sendable, Hashable {
        package var id: Int64
        package var name: String
        package var role: String
        /// What the role may.
        package var permissions: [String]
        /// The account decides nothing yet.
        package var isHeld: Bool
        package var endsAt: Date
        /// Until when nothing asks for the password again.
        package var freshUntil: Date
        /// The identity provider has named them.
        package var byProvider: Bool
    }

    /// - Throws: `PostgresError`, SQLSTATE `ES009` where no operator is signed in.
    package func me() async throws -> Me {
        try await pool.query(
            """
            SELECT m.id, m.name, m.role, m.permissions, m.is_held, m.ends_at, m.fresh_until, m.by_provider
              FROM entitlement_sync.desk_me(\(shown)) AS m
            """
        ).one.decode(into: Me.init)
    }

    /// Whether the session still holds; the check does not make it last longer.
    package func isAlive() async throws -> Bool {
        try await pool.query("SELECT entitlement_sync.desk_alive(\(shown))").first?.decode(Bool.self, at: 0) ?? false
    }

    // MARK: The queue

    /// How many tickets wait, by what they wait for.
    package struct Count: Sendable, Hashable {
        package var lane: String
        /// Up to 1000.
        package var tickets: Int
        /// Of these, those whose time is over.
        package var late: Int
    }

    /// Counts the open tickets by who has to act.
    package func counts() async throws -> [Count] {
        try await rows("view", "SELECT c.lane, c.tickets, c.late FROM entitlement_sync.desk_counts(\(shown)) AS c")
            .map { row in try row.decode(into: Count.init) }
    }

    /// A row of the queue; accounts are masked.
    package struct QueueRow: Sendable, Hashable {
        package var id: Int64
        package var reference: String
        package var kind: String
        package var state: String
        package var store: String?
        package var originalID: String?
        package var claimant: String?
        package var owner: String?
        package var holder: String?
        package var touches: Int
        package var createdAt: Date
        /// `nil`: it is not the desk's turn.
        package var dueAt: Date?
        package var sortedBy: PostgresTimestamp
        package var isUrgent: Bool
        package var verdict: String?
        package var suggested: String?
        package var reason: String?

        package var place: Place { Place(sortedBy: sortedBy, id: id) }
    }

    /// Where a page of the queue begins: after a row of the page before.
    package struct Place: Sendable, Hashable {
        package var sortedBy: PostgresTimestamp
        package var id: Int64

        /// As the page's address has it.
        package var text: String { "\(sortedBy.microsecondsSinceUnixEpoch)_\(id)" }

        package init?(_ text: String) {
            let parts = text.split(separator: "_")
            guard parts.count == 2, let at = Int64(parts[0]), let id = Int64(parts[1]) else { return nil }
            self.init(sortedBy: PostgresTimestamp(microsecondsSinceUnixEpoch: at), id: id)
        }

        fileprivate init(sortedBy: PostgresTimestamp, id: Int64) {
            self.sortedBy = sortedBy
            self.id = id
        }
    }

    /// A page of tickets: what is due first before the rest; closed ones the latest first.
    ///
    /// `lane`: of the table `desk_lane`; `nil`: all that are open. `after`: the last row of the page before. `limit`: 1
    /// to 200. Throws `PostgresError`, SQLSTATE `22023` for a lane that there is not.
    package func queue(lane: String?, kind: String?, after: Place?, limit: Int) async throws -> [QueueRow] {
        try await rows(
            "view",
            """
            SELECT q.id, q.reference, q.kind, q.state, q.store, q.original_id, q.claimant, q.owner, q.holder, q.touches,
                   q.created_at, q.due_at, q.sorted_by, q.is_urgent, q.verdict, q.suggested, q.reason
              FROM entitlement_sync.desk_queue(\(shown), \(lane), \(kind), \(after?.sortedBy), \(after?.id),
                                               \(Int32(clamping: limit))) AS q
            """
        ).map { row in try row.decode(into: QueueRow.init) }
    }

    // MARK: Search

    /// What a word names.
    package struct Hit: Sendable, Hashable {
        package enum What: String, Sendable, PostgresDecodable { case ticket, user }

        package var what: What
        /// The ticket's number, or the user's key.
        package var id: Int64
        package var reference: String?
        package var kind: String?
        package var state: String?
        package var label: String?
        package var createdAt: Date?
    }

    /// Finds at most 50 tickets and users by a reference, a user's id, an order, a transaction or a ticket's number.
    ///
    /// Throws `PostgresError`, SQLSTATE `22023` for a word that is none: they have 1 to 255 characters.
    package func search(_ word: String) async throws -> [Hit] {
        try await rows(
            "view",
            """
            SELECT h.what, h.id, h.reference, h.kind, h.state, h.label, h.created_at
              FROM entitlement_sync.desk_search(\(shown), \(word)) AS h
            """
        ).compactMap { row in
            // What a newer version finds besides is left out.
            guard Hit.What(rawValue: try row.decode(String.self, at: 0)) != nil else { return nil }
            return try row.decode(into: Hit.init)
        }
    }

    // MARK: Runs

    /// The latest 20 runs, the newest first: how far they are, and never which users they are about.
    package func runs() async throws -> [RunRecord] {
        try await recorded("view") {
            _ = try await me()
            return try await RunRecords(pool: pool).list(limit: 20)
        }
    }
}
