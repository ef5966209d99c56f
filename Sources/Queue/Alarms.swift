package import Logging
package import Postgres

/// What an operator has to know: one row for each name, until they clear it.
package enum Alarms {
    /// Raises an alarm now.
    package static func raise(_ name: String, _ detail: String, in pool: PostgresPool) async throws(PostgresError) {
        for request in statements(raising: [name: detail]) { try await pool.query(request.query) }
    }

    /// The statements that raise alarms, for the caller's transaction; `alarms`: details by name.
    package static func statements(raising alarms: [String: String]) -> [PostgresRequest<Void>] {
        alarms.sorted(by: { $0.key < $1.key }).map { name, detail in
            PostgresRequest(
                """
                INSERT INTO entitlement_sync.alarm AS a (name, detail) VALUES (\(name), \(detail))
                ON CONFLICT (name) DO UPDATE SET detail = excluded.detail, last_at = now(), count = a.count + 1
                """
            )
        }
    }
}

/// An error that says itself what the log may show of it.
package protocol LoggedError: Error {
    /// Codes and fixed texts, never a payload.
    var logMetadata: Logger.Metadata { get }
}

extension PostgresError: LoggedError {
    package var logMetadata: Logger.Metadata {
        ["error.code": "\(code.rawValue)", "error.sqlstate": "\(sqlState ?? "")", "error.message": "\(self)"]
    }
}

/// An error for the log: its kind, never its payload.
package func errorMetadata(_ error: any Error) -> Logger.Metadata {
    (error as? any LoggedError)?.logMetadata ?? ["error.code": "\(type(of: error))"]
}
