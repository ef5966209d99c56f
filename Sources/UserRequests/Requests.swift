package import FoundationEssentials
package import Postgres
import Queue

/// A row of `job_status`.
package struct JobStatus: Sendable, Encodable {
    package var id: UUID
    package var reference: String
    package var kind: String
    package var userID: String?
    package var state: String
    package var outcome: String?
    package var messageKey: String?
    package var ticketID: Int64?
    package var attempt: Int32
    package var createdAt: String
    package var finishedAt: String?
    package var lastError: String?

    enum CodingKeys: String, CodingKey {
        case id, reference, kind, state, outcome, attempt
        case userID = "user_id"
        case messageKey = "message_key"
        case ticketID = "ticket_id"
        case createdAt = "created_at"
        case finishedAt = "finished_at"
        case lastError = "last_error"
    }

    /// Writes the row as SQL shows it: ids in lower case, and nulls where nothing is known.
    package func encode(to encoder: any Encoder) throws {
        var row = encoder.container(keyedBy: CodingKeys.self)
        try row.encode(id.uuidString.lowercased(), forKey: .id)
        try row.encode(reference, forKey: .reference)
        try row.encode(kind, forKey: .kind)
        try row.encode(userID, forKey: .userID)
        try row.encode(state, forKey: .state)
        try row.encode(outcome, forKey: .outcome)
        try row.encode(messageKey, forKey: .messageKey)
        try row.encode(ticketID, forKey: .ticketID)
        try row.encode(attempt, forKey: .attempt)
        try row.encode(createdAt, forKey: .createdAt)
        try row.encode(finishedAt, forKey: .finishedAt)
        try row.encode(lastError, forKey: .lastError)
    }

    /// Whether the job will not change any more by itself.
    package var hasEnded: Bool { state == "done" || state == "dead" || state == "canceled" }
}

/// Requests through the same functions that other languages call.
package struct Requests: Sendable {
    private let pool: PostgresPool

    package init(pool: PostgresPool) { self.pool = pool }

    /// Asks for a restore.
    ///
    /// `proofs`: JSON text as `request_restore` takes it.
    /// Throws `PostgresError` with SQLSTATE `ES001` to `ES005`.
    package func restore(_ userID: String, proofs: String, clientError: String?) async throws(PostgresError) -> UUID {
        try await pool.query(
            "SELECT entitlement_sync.request_restore(\(userID), \(PostgresJSON(proofs)), \(clientError))"
        ).one.decode(UUID.self)
    }

    /// Asks for a reconcile.
    package func reconcile(_ userID: String, reason: String) async throws(PostgresError) -> UUID {
        try await pool.query("SELECT entitlement_sync.request_reconcile(\(userID), \(reason))").one.decode(UUID.self)
    }

    /// Asks for a reconcile of each user, or of none when one is not known.
    ///
    /// - Returns: the jobs, in the users' order.
    package func reconcile(_ userIDs: [String], reason: String) async throws -> [UUID] {
        try await pool.withTransaction { connection in
            var ids: [UUID] = []
            for userID in userIDs {
                let rows = try await connection.query(
                    "SELECT entitlement_sync.request_reconcile(\(userID), \(reason))"
                )
                ids.append(try rows.one.decode(UUID.self))
            }
            return ids
        }
    }

    /// Those of the users that the application does not have.
    ///
    /// - Throws: `PostgresError`, also where the connection's role may not read users.
    package func unknown(among userIDs: [String]) async throws(PostgresError) -> [String] {
        try await pool.query(
            """
            SELECT w.id FROM unnest(\(userIDs)) WITH ORDINALITY AS w(id, place)
             WHERE entitlement_sync.host_id(w.id) IS NULL
             ORDER BY w.place
            """
        ).map { row throws(PostgresError) in try row.decode(String.self) }
    }

    /// Reads jobs, in the order of `ids`; unknown ids are left out.
    package func status(_ ids: [UUID]) async throws(PostgresError) -> [JobStatus] {
        let query: PostgresQuery = """
            SELECT s.id, s.reference, s.kind, s.user_id, s.state, s.outcome, s.message_key, s.ticket_id, s.attempt,
                   to_char(s.created_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'),
                   to_char(s.finished_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'), s.last_error
              FROM unnest(\(ids)) WITH ORDINALITY AS w(id, place)
              JOIN entitlement_sync.job_status AS s ON s.id = w.id
             ORDER BY w.place
            """
        // The planner can't tell how many jobs an id of the view has; for as many as it assumes, it would read all users.
        guard let rows = try await pool.pipeline([SessionSettings.plansByKey, query]).last else { return [] }
        return try rows.map { row throws(PostgresError) in try row.decode(into: JobStatus.init) }
    }

    /// The jobs with a reference that wait, run or are dead; two may share one.
    package func jobs(reference: String) async throws(PostgresError) -> [UUID] {
        try await pool.query(
            "SELECT s.id FROM entitlement_sync.job_status AS s WHERE s.state IN ('queued', 'running', 'dead') AND s.reference = \(reference) ORDER BY s.id"
        )
        .map { row throws(PostgresError) in try row.decode(UUID.self) }
    }

    /// Dead jobs, newest first, without reconciles that a later reading of their user has settled.
    ///
    /// `error`: only those that ended with it.
    package func dead(error: String? = nil, limit: Int32) async throws(PostgresError) -> [JobStatus] {
        let rows = try await pool.query(
            """
            SELECT s.id, s.reference, s.kind, s.user_id, s.state, s.outcome, s.message_key, s.ticket_id, s.attempt,
                   to_char(s.created_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'),
                   to_char(s.finished_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'), s.last_error
              FROM entitlement_sync.job_status AS s
              JOIN (SELECT h.id FROM entitlement_sync.dead_job AS h
                     WHERE \(error) IS NULL OR h.last_error = \(error)
                     ORDER BY h.finished_at DESC LIMIT \(limit)) AS d ON d.id = s.id
             ORDER BY s.finished_at DESC
            """
        )
        return try rows.map { row throws(PostgresError) in try row.decode(into: JobStatus.init) }
    }

    /// The decision of each done job: its rule and explanation.
    package func decisions(_ ids: [UUID]) async throws(PostgresError) -> [UUID: (rule: String, explanation: String)] {
        let rows = try await pool.query(
            """
            SELECT d.job_id, d.rule, d.explanation FROM entitlement_sync.decision_log AS d WHERE d.job_id = ANY (\(ids))
            """
        )
        var decisions: [UUID: (rule: String, explanation: String)] = [:]
        for row in rows {
            let (id, rule, explanation) = try row.decode(UUID.self, String.self, String.self)
            decisions[id] = (rule, explanation)
        }
        return decisions
    }
}
