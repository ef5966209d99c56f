package import Entitlements
package import Postgres
import Queue

/// Users' pasts, as they were written down.
package struct Histories: Sendable {
    /// A user's past, with the host's id.
    package struct One: Sendable {
        /// `nil`: erased.
        package var userID: String?
        package var history: UserHistory
    }

    let pool: PostgresPool
    /// How much of one user is read; a longer history is marked as cut.
    let mostDecisions: Int64
    let mostItems: Int64
    /// Users at a time.
    static let page: Int64 = 50
    /// Known users who are searched at a time for those.
    private static let stretch: Int64 = 2000

    package init(pool: PostgresPool, mostDecisions: Int64 = 1000, mostItems: Int64 = 2000) {
        self.pool = pool
        self.mostDecisions = mostDecisions
        self.mostItems = mostItems
    }

    /// One user's past, by the host's id; `nil` where no job ever concerned such a user.
    package func history(of userID: String) async throws -> One? {
        try await reading { try await load(users([userID], on: $0), on: $0).first }
    }

    /// How a user stood at a moment, as far as was known then, and what cannot be said.
    ///
    /// Nothing is known of a user without any job.
    package func state(of userID: String, at moment: Instant) async throws -> PastState {
        try await reading { connection in
            guard let one = try await load(users([userID], on: connection), until: moment, on: connection).first else {
                return UserHistory(userKey: 0).state(at: moment)
            }
            var state = one.history.state(at: moment)
            // Decisions stay for ever; the jobs they ended do not, and with them those that came to no decision.
            let forgotten = try await connection.query(
                """
                SELECT EXISTS (SELECT 1 FROM (SELECT x.job_id FROM entitlement_sync.decision AS x
                                               WHERE x.user_key = \(one.history.userKey) ORDER BY x.id LIMIT 1) AS d
                                WHERE NOT EXISTS (SELECT 1 FROM entitlement_sync.job_history AS h WHERE h.id = d.job_id))
                """
            ).first?.decode(Bool.self, at: 0)
            if forgotten == true { state.unknowns.append(.jobsForgotten) }
            return state
        }
    }

    /// Hands out users' pasts, a page at a time; a page is a snapshot of its own.
    ///
    /// `userIDs`: whose, in any order; `nil`: of all users with a decision from `since` on. `body` gets them in the order of
    /// their keys. Throws `PostgresError`, and what `body` does.
    ///
    /// - Returns: of `userIDs`, those without any job.
    package func each(
        of userIDs: [String]?,
        since: PostgresTimestamp?,
        _ body: ([One]) async throws -> Void
    ) async throws -> [String] {
        guard let userIDs else {
            var last: Int64 = 0
            while true {
                let (end, users) = try await reading { try await stretch(after: last, since: since, on: $0) }
                guard let end else { return [] }
                for start in stride(from: 0, to: users.count, by: Int(Self.page)) {
                    let some = Array(users[start..<min(start + Int(Self.page), users.count)])
                    try await body(try await reading { try await load(some, on: $0) })
                }
                last = end
            }
        }
        var unknown: [String] = []
        let sorted = userIDs.sortedExactly
        for start in stride(from: 0, to: sorted.count, by: Int(Self.page)) {
            let wanted = Array(sorted[start..<min(start + Int(Self.page), sorted.count)])
            let page = try await reading { try await load(users(wanted, on: $0), on: $0) }
            let found = Set(page.compactMap { $0.userID.map(ExactText.init) })
            unknown += wanted.filter { !found.contains(ExactText($0)) }
            try await body(page)
        }
        return unknown
    }

    /// Runs a body that sees one state of the records, and can't change them.
    private func reading<Result>(_ body: (PostgresConnection) async throws -> Result) async throws -> Result {
        // A standby cancels what keeps it from following: that reads again.
        try await pool.retrying(5, .repeatableRead) { connection in
            try await connection.query("SET TRANSACTION READ ONLY")
            return try await body(connection)
        }
    }

    private func users(_ ids: [String], on connection: PostgresConnection) async throws -> [One] {
        try await connection.query(
            """
            SELECT u.user_key, u.user_id, u.ever_observed, s.until
              FROM entitlement_sync.user_sync AS u
              LEFT JOIN entitlement_sync.sandbox_access AS s ON s.user_id = u.user_id
             WHERE u.user_id = ANY (\(ids)) ORDER BY u.user_key
            """
        ).map(One.init)
    }

    /// Users with a decision, among the next known ones.
    ///
    /// A user's decisions ascend with time, so the newest tells: each stretch costs the same, wherever it begins.
    ///
    /// - Returns: the key that the stretch ends with, `nil` where it is empty; and who is wanted of it.
    private func stretch(
        after key: Int64,
        since: PostgresTimestamp?,
        on connection: PostgresConnection
    ) async throws -> (end: Int64?, users: [One]) {
        let rows = try await connection.query(
            """
            SELECT u.user_key, u.user_id, u.ever_observed, s.until,
                   coalesce(n.at >= coalesce(\(since)::timestamptz, '-infinity'), false) AS is_wanted
              FROM (SELECT x.user_key, x.user_id, x.ever_observed FROM entitlement_sync.user_sync AS x
                     WHERE x.user_key > \(key) ORDER BY x.user_key LIMIT \(Self.stretch)) AS u
              LEFT JOIN LATERAL (SELECT d.at FROM entitlement_sync.past_decision AS d
                                  WHERE d.user_key = u.user_key ORDER BY d.id DESC LIMIT 1) AS n ON true
              LEFT JOIN entitlement_sync.sandbox_access AS s ON s.user_id = u.user_id
             ORDER BY u.user_key
            """
        )
        return try (rows.last?["user_key"], rows.filter { try $0["is_wanted"] }.map(One.init))
    }
}

extension Histories.One {
    fileprivate init(_ row: PostgresRow) throws {
        userID = try row["user_id"]
        history = try UserHistory(userKey: row["user_key"], everObserved: row["ever_observed"])
        history.sandboxUntil = try row["until"]
    }
}
