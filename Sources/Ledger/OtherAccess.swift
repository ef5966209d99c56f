package import Entitlements
package import Logging
package import Postgres
import Queue

/// Access that the host says its users have, by the adapter's optional function `other_access`.
///
/// It is asked in the transaction that decides. What it says is kept as grants, so that everything that knows of grants
/// knows of it: checks, explanations, a decision that is made again.
package enum OtherAccess {
    /// How long the host may take.
    private static let limit = "2s"

    /// Asks about users that the caller has locked, and keeps the answer; `users`: user keys by the host's ids.
    ///
    /// - Throws: ``Unknown`` where there is no usable answer. No access must not be concluded from that.
    package static func note(_ users: [ExactText: Int64], on connection: PostgresConnection) async throws {
        let ids = users.keys.sorted().map(\.text)
        do {
            var (keys, sources, untils): ([Int64], [String], [PostgresTimestamp]) = ([], [], [])
            try await connection.withSetting("statement_timeout", limit) { connection in
                for row in try await connection.query(
                    """
                    SELECT o.id, o.source, CASE WHEN o.until >= '2200-01-01' THEN 'infinity' ELSE o.until END
                      FROM entitlement_sync_host.other_access(\(ids)) AS o
                    """
                ) {
                    let (id, source, until) = try row.decode(String?.self, String?.self, PostgresTimestamp?.self)
                    guard let id, let source, let until else { throw Unknown(reason: "it gave NULL") }
                    // It may be one of those users in another spelling, so the answer about them is not known.
                    guard let key = users[ExactText(id)] else {
                        throw Unknown(reason: "it gave an id that it was not asked about")
                    }
                    keys.append(key)
                    sources.append(source)
                    untils.append(until)
                }
            }
            try await connection.query(
                """
                SELECT entitlement_sync.note_other_access(\(users.values.sorted()), \(keys), \(sources), \(untils))
                """
            )
        } catch let error as PostgresError where !error.isConnectionFailure && !error.isTransactionConflict {
            throw Unknown(reason: error.code == .timeout ? "it took longer than \(limit)" : "\(error)")
        }
    }

    /// Why it is not known what access the host gives: the batch is tried again.
    package struct Unknown: LoggedError, CustomStringConvertible {
        var reason: String

        package var description: String { "the host adapter's function other_access gives no answer: \(reason)" }
        package var logMetadata: Logger.Metadata {
            ["error.code": "\(AdapterFault.alarm)", "error.message": "\(self)"]
        }
        /// For the alarm.
        package var advice: String {
            "\(self). Jobs wait until it does. Mend it, and run entitlement-sync migrate --adapter FILE."
        }
    }
}
