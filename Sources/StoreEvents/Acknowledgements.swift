package import Entitlements
package import Postgres
import Queue

/// Sales that Google Play refunds unless they are acknowledged.
///
/// Each is written in the transaction of its grant and deleted once Google Play has taken the call, so that neither a
/// crash between the two nor one in the middle of the call loses it. A call is repeated only after a read shows it is
/// still due.
package struct Acknowledgements: Sendable {
    private let pool: PostgresPool

    package init(pool: PostgresPool) { self.pool = pool }

    /// One that is to be made now.
    package struct Due: Sendable {
        package var acknowledgement: Acknowledgement
        /// A call was begun before, and its result is not known.
        package var wasCalled: Bool
        package var attempt: Int
        package var isPastDeadline: Bool
    }

    /// Notes sales whose grant is being written.
    package static func plan(_ sales: [Acknowledgement]) -> [PostgresRequest<Void>] {
        guard !sales.isEmpty else { return [] }
        let query: PostgresQuery = """
            INSERT INTO entitlement_sync.acknowledgement (token, product_id, kind, deadline, account_id, profile_id, package)
            SELECT n.* FROM unnest(\(sales.map(\.token)), \(sales.map(\.productID)), \(sales.map(\.kind.rawValue)),
                                   \(sales.map(\.deadline.timestamp)), \(sales.map(\.accountID)),
                                   \(sales.map(\.profileID)), \(sales.map(\.package))) AS n
            ON CONFLICT (token) DO NOTHING
            """
        return [PostgresRequest(query)]
    }

    /// Takes due ones for this process, for five minutes, longer than all its requests together may take: a process
    /// that dies meanwhile has its share taken by others.
    package func take(upTo limit: Int) async throws(PostgresError) -> [Due] {
        try await pool.query(
            """
            WITH due AS MATERIALIZED (
                SELECT a.token, a.called FROM entitlement_sync.acknowledgement AS a
                 WHERE a.due <= now() ORDER BY a.due LIMIT \(Int64(limit)) FOR UPDATE SKIP LOCKED
            )
            UPDATE entitlement_sync.acknowledgement AS a
               SET due = now() + interval '5 minutes', attempt = a.attempt + 1, called = true
              FROM due AS d WHERE a.token = d.token
            RETURNING a.token, a.product_id, a.kind, a.deadline, d.called, a.attempt, a.deadline < now(), a.account_id,
                      a.profile_id, a.package
            """
        ).map { row throws(PostgresError) in
            var acknowledgement = Acknowledgement(
                productID: try row.decode(String.self, at: 1),
                token: try row.decode(String.self, at: 0),
                kind: Observation.Kind(rawValue: try row.decode(String.self, at: 2)) ?? .subscription,
                deadline: try row.decode(Instant.self, at: 3)
            )
            acknowledgement.accountID = try row.decode(String?.self, at: 7)
            acknowledgement.profileID = try row.decode(String?.self, at: 8)
            acknowledgement.package = try row.decode(String?.self, at: 9)
            return Due(
                acknowledgement: acknowledgement,
                wasCalled: try row.decode(Bool.self, at: 4),
                attempt: Int(try row.decode(Int32.self, at: 5)),
                isPastDeadline: try row.decode(Bool.self, at: 6)
            )
        }
    }

    /// Notes that nothing more is to be done about one.
    package func end(_ acknowledgement: Acknowledgement) async throws(PostgresError) {
        try await pool.query(
            "DELETE FROM entitlement_sync.acknowledgement AS a WHERE a.token = \(acknowledgement.token)"
        )
    }

    /// Postpones one, to the millisecond; `error`: why, a code.
    package func postpone(_ acknowledgement: Acknowledgement, for wait: Duration, error: String)
        async throws(PostgresError)
    {
        try await pool.query(
            """
            UPDATE entitlement_sync.acknowledgement AS a
               SET due = now() + \(Double(wait.microseconds) / 1_000_000) * interval '1 second', last_error = \(error)
             WHERE a.token = \(acknowledgement.token)
            """
        )
    }

    /// Notes for the operator that a sale was lost.
    package func alarm(_ name: String, _ detail: String) async throws(PostgresError) {
        try await Alarms.raise(name, detail, in: pool)
    }

    /// Whether some have neither come to an end nor been postponed.
    package func hasOpen() async throws(PostgresError) -> Bool {
        try await pool.query(
            "SELECT EXISTS (SELECT 1 FROM entitlement_sync.acknowledgement AS a WHERE a.last_error IS NULL)"
        ).first?.decode(Bool.self, at: 0) ?? false
    }
}
