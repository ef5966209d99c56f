package import Postgres

/// Forgets who a user is.
package struct Erasure: Sendable {
    private let pool: PostgresPool

    package init(pool: PostgresPool) { self.pool = pool }

    /// What an erasure has changed.
    package struct Erased: Sendable, Hashable, Encodable {
        /// Purchases that stay with the account that there was.
        package var purchases: Int64
        /// Tickets that stay without a name.
        package var tickets: Int64
        /// Events whose words are deleted.
        package var events: Int64
        /// Messages to others that are deleted.
        package var messages: Int64
        /// The host has such a user still.
        package var isHosts: Bool

        private enum CodingKeys: String, CodingKey {
            case purchases, tickets, events, messages
            case isHosts = "still_in_host"
        }
    }

    /// Replaces the identity everywhere, in one transaction; `userID`: the host's, which need not exist there any more.
    ///
    /// - Returns: `nil` where nothing is known of such a user.
    package func erase(_ userID: String) async throws -> Erased? {
        try await pool.retrying { connection in
            try await connection.query(
                """
                SELECT e.purchases, e.tickets, e.events, e.messages,
                       EXISTS (SELECT 1 FROM entitlement_sync_host.read_users(\([userID])))
                  FROM entitlement_sync.erase_user(\(userID)) AS e
                """
            ).first.map { row in try row.decode(into: Erased.init) }
        }
    }
}
