package import FoundationEssentials
package import Postgres

/// Users, jobs and figures as the console shows them.
package struct DeskUsers: SessionRecords {
    package let pool: PostgresPool
    package let session: [UInt8]

    package init(pool: PostgresPool, session: [UInt8]) {
        self.pool = pool
        self.session = session
    }

    // MARK: A user

    /// Everything that the desk sees of a user, as one JSON object; with `reveal` also the user's id, which is put on
    /// record.
    ///
    /// - Returns: `nil`: there is no such user, or it is the operator's own account.
    package func show(_ key: Int64, reveal: Bool = false) async throws -> String? {
        if reveal { try await checkReveal("SELECT entitlement_sync.reveal_user(\(shown), \(key))") }
        return try await value(
            reveal ? "reveal" : "view",
            "SELECT entitlement_sync.desk_user(\(shown), \(key), \(reveal))"
        )
    }

    /// What happened to a user.
    package struct Event: Sendable, Hashable {
        package var at: Date
        package var kind: String
        package var words: String
    }

    /// The latest 200, the newest first; nothing for an operator's own account.
    package func timeline(of key: Int64) async throws -> [Event] {
        try await rows(
            "view",
            """
            SELECT e.at, e.kind, e.words
              FROM entitlement_sync.desk_timeline(\(shown), \(key)) AS e
            """
        ).map { row in try row.decode(into: Event.init) }
    }

    /// Has a user read again now.
    ///
    /// - Returns: a word for why not; `nil`: it was asked for.
    package func restore(_ key: Int64) async throws -> String? {
        try await value("restore", "SELECT entitlement_sync.desk_restore(\(shown), \(key))")
    }

    /// Asks what a reconcile of a user would do now; a worker answers.
    ///
    /// - Returns: a word for why not; `nil`: it was asked.
    package func dryRun(_ key: Int64) async throws -> String? {
        try await value("restore", "SELECT entitlement_sync.desk_dry_run(\(shown), \(key))")
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

    /// The latest first, at most 100; `error` and `kind`: only those.
    package func dead(error: String? = nil, kind: String? = nil) async throws -> [Dead] {
        try await rows(
            "view",
            """
            SELECT d.id, d.reference, d.kind, d.user_key, d.user_id, d.attempt, d.finished_at, d.last_error
              FROM entitlement_sync.desk_dead(\(shown), \(error), \(kind)) AS d
            """
        ).map { row in try row.decode(into: Dead.init) }
    }

    /// How many jobs died of each error, the most frequent first; `kind`: only those.
    package func deadErrors(kind: String?) async throws -> [(error: String, jobs: Int64)] {
        try await rows(
            "view",
            "SELECT e.error, e.jobs FROM entitlement_sync.desk_dead_errors(\(shown), \(kind)) AS e"
        ).map { row in try row.decode(String.self, Int64.self) }
    }

    /// Puts dead jobs of an error back, at most 1,000; `kind`: only those.
    ///
    /// - Returns: how many are queued.
    package func retryAll(error: String, kind: String?) async throws -> Int32 {
        try await value("retry", "SELECT entitlement_sync.desk_retry_all(\(shown), \(error), \(kind))") ?? 0
    }

    /// Puts a dead job back.
    ///
    /// - Returns: a word for why not; `nil`: it is queued.
    package func retry(_ job: UUID) async throws -> String? {
        try await value("retry", "SELECT entitlement_sync.desk_retry(\(shown), \(job))")
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

    /// Mismatches of the last 1 to 90 days by cause, the most frequent first.
    package func causes(days: Int) async throws -> [Cause] {
        try await rows(
            "view",
            """
            SELECT c.what, c.cause, c.found, c.users, c.last_at
              FROM entitlement_sync.desk_causes(\(shown), \(Int32(clamping: days))) AS c
            """
        ).map { row in try row.decode(into: Cause.init) }
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
        try await rows(
            "view",
            """
            SELECT f.series, f.bar, f.part, f.place, f.figure
              FROM entitlement_sync.desk_figures(\(shown)) AS f ORDER BY f.series, f.place, f.figure DESC
            """
        ).map { row in try row.decode(into: Figure.init) }
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

    /// The latest 100 before the id that the page before ended with, for auditors and administrators.
    package func log(before: Int64?) async throws -> [LogRow] {
        try await rows(
            "audit",
            """
            SELECT l.id, l.at, l.operator, l.kind, l.about, l.detail
              FROM entitlement_sync.desk_log(\(shown), \(before), 100) AS l
            """
        ).map { row in try row.decode(into: LogRow.init) }
    }
}
