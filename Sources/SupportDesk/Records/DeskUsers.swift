package import FoundationEssentials
package import Postgres

/// Users, jobs and figures as the console shows them; each question asks for a session.
package struct DeskUsers: Sendable {
    private let pool: PostgresPool
    private let operators: Operators
    private let session: [UInt8]

    /// - Parameters:
    ///   - pool: the database.
    ///   - session: the hash of what the operator shows.
    package init(pool: PostgresPool, session: [UInt8]) {
        self.pool = pool
        self.session = session
        operators = Operators(pool: pool)
    }

    private var shown: PostgresBytes { PostgresBytes(session) }

    // MARK: A user

    /// Everything that the desk sees of a user, as one JSON object.
    ///
    /// - Parameters:
    ///   - key: our number of the user.
    ///   - reveal: with the user's id, which is put on record.
    /// - Returns: `nil`: there is no such user, or it is the operator's own account.
    /// - Throws: `PostgresError`; `RevealRefused`.
    package func show(_ key: Int64, reveal: Bool = false) async throws -> String? {
        try await operators.recorded(session, reveal ? "reveal" : "view") {
            if reveal { try await RevealRefused.check("SELECT entitlement_sync.reveal_user(\(shown), \(key))", pool) }
            return try await pool.query("SELECT entitlement_sync.desk_user(\(shown), \(key), \(reveal))")
                .first?.decode(String?.self, at: 0)
        }
    }

    /// What happened to a user.
    package struct Event: Sendable, Hashable {
        package var at: Date
        package var kind: String
        package var words: String
    }

    /// The latest first.
    ///
    /// - Parameters:
    ///   - key: our number of the user.
    ///   - limit: 1 to 1000.
    /// - Returns: nothing for an operator's own account.
    /// - Throws: `PostgresError`.
    package func timeline(of key: Int64, limit: Int = 200) async throws -> [Event] {
        try await operators.recorded(session, "view") {
            try await pool.query(
                """
                SELECT e.at, e.kind, e.words
                  FROM entitlement_sync.desk_timeline(\(shown), \(key), \(Int32(clamping: limit))) AS e
                """
            ).map { row in
                let (at, kind, words) = try row.decode(PostgresTimestamp.self, String.self, String.self)
                return Event(at: at.date, kind: kind, words: words)
            }
        }
    }

    /// Has a user read again now.
    ///
    /// - Returns: a word for why not; `nil`: it was asked for.
    /// - Throws: `PostgresError`.
    package func restore(_ key: Int64) async throws -> String? {
        try await operators.recorded(session, "restore") {
            try await pool.query("SELECT entitlement_sync.desk_restore(\(shown), \(key))")
                .first?.decode(String?.self, at: 0)
        }
    }

    /// Asks what a reconcile of a user would do now; a worker answers.
    ///
    /// - Returns: a word for why not; `nil`: it was asked.
    /// - Throws: `PostgresError`.
    package func dryRun(_ key: Int64) async throws -> String? {
        try await operators.recorded(session, "restore") {
            try await pool.query("SELECT entitlement_sync.desk_dry_run(\(shown), \(key))")
                .first?.decode(String?.self, at: 0)
        }
    }

    // MARK: Dead jobs

    /// A dead job.
    package struct Dead: Sendable, Hashable {
        package var id: String
        package var reference: String
        package var kind: String
        package var userKey: Int64
        package var userID: String?
        package var attempt: Int
        package var finishedAt: Date
        package var lastError: String?
    }

    /// The latest first, at most 100.
    package func dead() async throws -> [Dead] {
        try await operators.recorded(session, "view") {
            try await pool.query(
                """
                SELECT d.id, d.reference, d.kind, d.user_key, d.user_id, d.attempt, d.finished_at, d.last_error
                  FROM entitlement_sync.desk_dead(\(shown)) AS d
                """
            ).map { row in
                let (id, reference, kind, key, user, attempt, finished, error) = try row.decode(
                    String.self,
                    String.self,
                    String.self,
                    Int64.self,
                    String?.self,
                    Int32.self,
                    PostgresTimestamp.self,
                    String?.self
                )
                return Dead(
                    id: id,
                    reference: reference,
                    kind: kind,
                    userKey: key,
                    userID: user,
                    attempt: Int(attempt),
                    finishedAt: finished.date,
                    lastError: error
                )
            }
        }
    }

    /// Puts a dead job back.
    ///
    /// - Returns: a word for why not; `nil`: it is queued.
    /// - Throws: `PostgresError`.
    package func retry(_ job: UUID) async throws -> String? {
        try await operators.recorded(session, "retry") {
            try await pool.query("SELECT entitlement_sync.desk_retry(\(shown), \(job))")
                .first?.decode(String?.self, at: 0)
        }
    }

    // MARK: Figures

    /// What was wrong in the records, or led to tickets.
    package struct Cause: Sendable, Hashable {
        /// `decision`, `observed` (a decision of which nothing was written) or `ticket`.
        package var what: String
        package var cause: String
        package var found: Int64
        package var users: Int64
        package var lastAt: Date
    }

    /// Counts mismatches by cause.
    ///
    /// - Parameter days: how far back, 1 to 90.
    /// - Returns: the most frequent first.
    /// - Throws: `PostgresError`.
    package func causes(days: Int) async throws -> [Cause] {
        try await operators.recorded(session, "view") {
            try await pool.query(
                """
                SELECT c.what, c.cause, c.found, c.users, c.last_at
                  FROM entitlement_sync.desk_causes(\(shown), \(Int32(clamping: days))) AS c
                """
            ).map { row in
                let (what, cause, found, users, last) = try row.decode(
                    String.self,
                    String.self,
                    Int64.self,
                    Int64.self,
                    PostgresTimestamp.self
                )
                return Cause(what: what, cause: cause, found: found, users: users, lastAt: last.date)
            }
        }
    }

    /// One part of one bar of a chart.
    package struct Figure: Sendable, Hashable {
        package var series: String
        package var bar: String
        package var part: String
        package var place: Int
        package var figure: Int64
    }

    /// What charts show.
    package func figures() async throws -> [Figure] {
        try await operators.recorded(session, "view") {
            try await pool.query(
                """
                SELECT f.series, f.bar, f.part, f.place, f.figure
                  FROM entitlement_sync.desk_figures(\(shown)) AS f ORDER BY f.series, f.place, f.figure DESC
                """
            ).map { row in
                let (series, bar, part, place, figure) = try row.decode(
                    String.self,
                    String.self,
                    String.self,
                    Int32.self,
                    Int64.self
                )
                return Figure(series: series, bar: bar, part: part, place: Int(place), figure: figure)
            }
        }
    }

    // MARK: The operators' log

    /// What an operator did.
    package struct LogRow: Sendable, Hashable {
        package var id: Int64
        package var at: Date
        package var name: String?
        package var kind: String
        package var about: String?
        package var detail: String?
    }

    /// The latest first, for auditors and administrators.
    ///
    /// - Parameter before: the id that the page before ended with.
    /// - Returns: at most 100.
    /// - Throws: `PostgresError`.
    package func log(before: Int64?) async throws -> [LogRow] {
        try await operators.recorded(session, "audit") {
            try await pool.query(
                """
                SELECT l.id, l.at, l.operator, l.kind, l.about, l.detail
                  FROM entitlement_sync.desk_log(\(shown), \(before), 100) AS l
                """
            ).map { row in
                let (id, at, name, kind, about, detail) = try row.decode(
                    Int64.self,
                    PostgresTimestamp.self,
                    String?.self,
                    String.self,
                    String?.self,
                    String?.self
                )
                return LogRow(id: id, at: at.date, name: name, kind: kind, about: about, detail: detail)
            }
        }
    }
}
