package import Postgres
import Queue

/// Users whose custom claims at Firebase are to be written, or compared with what gives them access.
package struct ClaimsQueue: Sendable {
    private let pool: PostgresPool

    package init(pool: PostgresPool) { self.pool = pool }

    /// A user whose turn it is.
    struct Due: Sendable, Hashable {
        var userKey: Int64
        /// Another one with each change and check.
        var version: Int64
        /// Nothing has changed: what stands at Firebase is compared.
        var isCheck: Bool
        /// Earlier tries that failed.
        var attempt: Int16
        var userID: String
        var wanted: AccessClaims
        /// The store gives access beyond what was paid for, so that each check moves the claims' end.
        var isBeyond: Bool
    }

    /// The statement that notes users after a decision; those of a check wait until no change does.
    package static func note(_ users: [(key: Int64, isCheck: Bool)]) -> [PostgresRequest<Void>] {
        guard !users.isEmpty else { return [] }
        let query: PostgresQuery = """
            INSERT INTO entitlement_sync.firebase_claims AS c (user_key, is_check)
            SELECT n.user_key, n.is_check FROM unnest(\(users.map(\.key)), \(users.map(\.isCheck))) AS n(user_key, is_check)
            ON CONFLICT (user_key) DO UPDATE
               SET version = DEFAULT, is_check = c.is_check AND excluded.is_check,
                   attempt = CASE WHEN excluded.is_check THEN c.attempt ELSE 0 END,
                   -- A check does not hasten what has failed.
                   due = CASE WHEN excluded.is_check AND c.due < 'infinity' THEN c.due ELSE least(c.due, excluded.due) END,
                   last_error = CASE WHEN excluded.is_check THEN c.last_error END
            """
        return [PostgresRequest(query)]
    }

    /// Has everyone with access compared, the first time that claims are kept.
    func begin() async throws {
        try await pool.withTransaction { connection in
            // It may note millions of users.
            try await connection.query("SET LOCAL statement_timeout = 0")
            try await connection.query("SELECT entitlement_sync.begin_claims()")
        }
    }

    /// The next users, changes first; none for a process that does not lead under this number.
    func due(upTo limit: Int, fence: Int64) async throws -> [Due] {
        try await pool.query(
            """
            SELECT d.user_key, d.version, d.is_check, d.attempt, d.user_id, d.is_beyond, d.entitlements, d.until
              FROM entitlement_sync.due_claims(\(Int32(clamping: limit)), \(fence)) AS d
            """
        ).map { row in
            let (key, version, isCheck, attempt, userID, isBeyond, names, until) = try row.decode(
                Int64.self,
                Int64.self,
                Bool.self,
                Int16.self,
                String.self,
                Bool.self,
                [String].self,
                Int64.self
            )
            return Due(
                userKey: key,
                version: version,
                isCheck: isCheck,
                attempt: attempt,
                userID: userID,
                wanted: AccessClaims(entitlements: names, until: until),
                isBeyond: isBeyond
            )
        }
    }

    /// Ends a turn; a user who has changed meanwhile keeps the place.
    func end(_ due: Due) async throws(PostgresError) {
        try await pool.query(
            """
            DELETE FROM entitlement_sync.firebase_claims AS c WHERE c.user_key = \(due.userKey) AND c.version = \(due.version)
            """
        )
    }

    /// Puts a turn off, for good where there is no `wait`: until the next change or check; `error`: why; a code.
    func postpone(_ due: Due, for wait: Duration?, error: String) async throws(PostgresError) {
        let seconds = wait.map { $0 / .seconds(1) }
        try await pool.query(
            """
            UPDATE entitlement_sync.firebase_claims AS c
               SET due = coalesce(clock_timestamp() + \(seconds) * interval '1 second', 'infinity'), attempt = least(c.attempt, 30000) + 1,
                   last_error = \(error)
             WHERE c.user_key = \(due.userKey) AND c.version = \(due.version)
            """
        )
    }

    /// Has a user compared once more.
    func check(_ userKey: Int64) async throws(PostgresError) {
        for request in Self.note([(userKey, true)]) { try await pool.query(request.query) }
    }

    /// What an operator has to know of.
    enum Trouble: String, Sendable {
        case tooLong = "claims_too_long"
        case refused = "claims_refused"

        fileprivate var detail: String {
            switch self {
            case .tooLong:
                "Custom claims would be longer than 1,000 characters, and were left as they are: firebase_claims.last_error says"
                    + " whose. Keep less in claims of your own, or give entitlements shorter names."
            case .refused:
                "Firebase refuses to let the service account of FIREBASE_SERVICE_ACCOUNT read or change custom claims: run"
                    + " doctor, and give the account the role Firebase Authentication Admin in the right project."
            }
        }
    }

    func alarm(_ trouble: Trouble) async throws(PostgresError) {
        try await Alarms.raise(trouble.rawValue, trouble.detail, in: pool)
    }
}
