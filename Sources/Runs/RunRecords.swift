package import FoundationEssentials
package import Postgres

/// Runs as operators request and read them.
package struct RunRecords: Sendable {
    package let pool: PostgresPool

    package init(pool: PostgresPool) { self.pool = pool }

    /// Asks for a run of a scope (not `diff`, whose runs `release` makes); `nil`: one of this scope goes on.
    ///
    /// `maxDemotions`: more than that are not written; the brake's limit holds as well.
    package func ask(
        _ scope: RunRecord.Scope,
        isDry: Bool,
        since: PostgresTimestamp? = nil,
        maxDemotions: Int32? = nil,
        by asker: String
    ) async throws -> Int64? {
        try await pool.query(
            "SELECT entitlement_sync.ask_run(\(scope.rawValue), \(isDry), \(since), \(maxDemotions), \(asker))"
        ).first?.decode(Int64?.self, at: 0)
    }

    /// Asks for a run that only has stores list what they sent; `nil`: one of the scope `since` goes on.
    package func askLists(since: PostgresTimestamp, by asker: String) async throws -> Int64? {
        try await pool.query("SELECT entitlement_sync.ask_backfill(\(since), \(asker))")
            .first?.decode(Int64?.self, at: 0)
    }

    /// The newest runs first.
    package func list(limit: Int32 = 50) async throws -> [RunRecord] {
        try await pool.query(
            """
            SELECT \(rawSQL: RunRecord.columns) FROM entitlement_sync.run AS r ORDER BY r.id DESC LIMIT \(limit)
            """
        ).map { try RunRecord($0) }
    }

    /// One run.
    package func run(_ id: Int64) async throws -> RunRecord? {
        try await pool.query(
            "SELECT \(rawSQL: RunRecord.columns) FROM entitlement_sync.run AS r WHERE r.id = \(id)"
        ).first.map { try RunRecord($0) }
    }

    /// The run of a scope that goes on.
    package func open(_ scope: RunRecord.Scope, isDry: Bool) async throws -> RunRecord? {
        try await pool.query(
            """
            SELECT \(rawSQL: RunRecord.columns) FROM entitlement_sync.run AS r
             WHERE r.scope = \(scope.rawValue) AND r.is_dry = \(isDry) AND r.state IN ('reading', 'applying')
             ORDER BY r.id DESC LIMIT 1
            """
        ).first.map { try RunRecord($0) }
    }

    /// Ends a run that still goes on; what it has queued already is read, and demotes no user.
    package func cancel(_ id: Int64) async throws -> Bool {
        try await pool.query("SELECT entitlement_sync.cancel_run(\(id))").first?.decode(Bool.self, at: 0) ?? false
    }

    /// Why a run's changes are not written.
    package enum Refusal: Error, Hashable {
        /// It was not stopped, and is no dry run that has ended.
        case nothingToRelease
        /// The changes are others than those that the hash speaks of.
        case otherHash
        /// The users were read too long ago.
        case tooOld
    }

    /// Has the changes written, by their hash, that an operator has approved: of a run that was stopped, or of a dry run.
    ///
    /// - Returns: the run that writes them: the same, or one of its own where it was dry.
    /// - Throws: `Refusal`, `PostgresError`.
    package func release(_ id: Int64, hash: String, by asker: String) async throws -> Int64 {
        do {
            let run = try await pool.query(
                "SELECT entitlement_sync.approve_run(\(id), decode(\(hash), 'hex'), \(asker))"
            ).first?.decode(Int64?.self, at: 0)
            guard let run else { throw Refusal.nothingToRelease }
            return run
        } catch let error as PostgresError where error.sqlState == "22023" {
            throw error.message.hasPrefix("run:") ? Refusal.tooOld : Refusal.otherHash
        }
    }

    // MARK: Changes

    /// A user that a run changes, or would change.
    package struct Change: Sendable, Hashable {
        package var userKey: Int64
        /// `nil`: the account was erased since.
        package var userID: String?
        package var jobID: UUID?
        package var state: String
        package var outcome: String
        package var rule: String
        package var isAnnounced: Bool
        package var typeBefore: String?
        package var typeAfter: String?
        package var assets: Int64
        package var explanation: String
    }

    /// A run's changes behind the user key `after`, by users' keys; fewer than `limit` where there are no more.
    package func changes(of id: Int64, after: Int64 = 0, limit: Int32 = 1000) async throws -> [Change] {
        try await pool.query(
            """
            SELECT c.user_key, u.user_id, c.job_id, c.state, c.outcome, c.rule, c.announced, c.type_before, c.type_after,
                   c.assets, c.explanation
              FROM entitlement_sync.run_change AS c JOIN entitlement_sync.user_sync AS u ON u.user_key = c.user_key
             WHERE c.run_id = \(id) AND c.user_key > \(after) ORDER BY c.user_key LIMIT \(limit)
            """
        ).map {
            try $0.decode(
                into: Change.init(
                    userKey:
                    userID:
                    jobID:
                    state:
                    outcome:
                    rule:
                    isAnnounced:
                    typeBefore:
                    typeAfter:
                    assets:
                    explanation:
                )
            )
        }
    }

    /// Hands out all of a run's changes in the order of users' keys, a thousand at a time.
    package func eachChange(of id: Int64, _ body: ([Change]) throws -> Void) async throws {
        var last: Int64 = 0
        while case let changes = try await changes(of: id, after: last), let next = changes.last?.userKey {
            try body(changes)
            last = next
        }
    }

    /// How many users a run changes in one way.
    package struct ChangeCount: Sendable, Hashable {
        package var outcome: String
        package var state: String
        /// A store had announced the end.
        package var isAnnounced: Bool
        package var users: Int64
    }

    /// How many users a run changes, by outcome, by what became of it, and whether it was announced.
    package func changeCounts(of id: Int64) async throws -> [ChangeCount] {
        try await pool.query(
            """
            SELECT c.outcome, c.state, c.announced, count(*)
              FROM entitlement_sync.run_change AS c WHERE c.run_id = \(id) GROUP BY 1, 2, 3 ORDER BY 1, 2, 3
            """
        ).map { try $0.decode(into: ChangeCount.init(outcome:state:isAnnounced:users:)) }
    }

    /// What became of a user in a run.
    package struct Line: Sendable, Hashable {
        package var userID: String?
        package var jobID: UUID?
        package var outcome: String?
        package var rule: String?
        package var explanation: String?
        package var typeBefore: String?
        package var typeAfter: String?
        package var assets: Int64?
    }

    /// What became of every user in a part of a run, by its number from 1; nothing where there is no such part.
    ///
    /// Users whose reading goes on have no outcome yet.
    package func lines(of id: Int64, part: Int32) async throws -> [Line] {
        try await pool.query(
            """
            SELECT u.user_id, j.job, j.outcome, coalesce(d.rule, j.rule), coalesce(d.explanation, c.explanation),
                   coalesce(d.type_before, c.type_before), coalesce(d.type_after, c.type_after), c.assets
              FROM entitlement_sync.run_part AS p
             CROSS JOIN LATERAL unnest(p.keys, p.jobs, p.outcomes, p.rules) WITH ORDINALITY AS j(key, job, outcome, rule, n)
              JOIN entitlement_sync.user_sync AS u ON u.user_key = j.key
              LEFT JOIN entitlement_sync.run_change AS c ON c.run_id = p.run_id AND c.user_key = j.key
              LEFT JOIN LATERAL (SELECT x.rule, x.explanation, x.type_before, x.type_after
                                   FROM entitlement_sync.job_decision AS x WHERE x.job_id = j.job OFFSET 0) AS d ON true
             WHERE p.run_id = \(id) AND p.number = \(part)
               -- A user who had another turn once all were read stands there with its result.
               AND j.key NOT IN (SELECT k.key
                                   FROM entitlement_sync.run AS r
                                   JOIN entitlement_sync.run_part AS q ON q.run_id = r.id AND q.made_at >= r.settled_at
                                  CROSS JOIN LATERAL unnest(q.keys) AS k(key)
                                  WHERE r.id = \(id) AND q.number > \(part))
             ORDER BY j.n
            """
        ).map {
            try $0.decode(into: Line.init(userID:jobID:outcome:rule:explanation:typeBefore:typeAfter:assets:))
        }
    }

    /// Users that a run could not read, each with the error, as far as it is kept.
    package func unread(of id: Int64, limit: Int32) async throws -> [(userID: String?, error: String?)] {
        try await pool.query(
            """
            SELECT u.user_id, h.last_error
              FROM entitlement_sync.run_part AS p
             CROSS JOIN LATERAL unnest(p.keys, p.jobs, p.outcomes) AS j(key, job, outcome)
              JOIN entitlement_sync.user_sync AS u ON u.user_key = j.key
              LEFT JOIN entitlement_sync.job_history AS h ON h.id = j.job
             WHERE p.run_id = \(id) AND j.outcome = 'store_unavailable'
             ORDER BY u.user_id LIMIT \(limit)
            """
        ).map { row in try row.decode(String?.self, String?.self) }
    }
}
