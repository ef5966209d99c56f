package import Postgres

/// What an operator has to know: one row for each name, until they clear it.
package enum Alarms {
    /// Raises an alarm now.
    package static func note(_ name: String, _ detail: String, in pool: PostgresPool) async throws(PostgresError) {
        for request in raise([name: detail]) { try await pool.query(request.query) }
    }

    /// The statements that raise alarms, for the caller's transaction; `alarms`: details by name.
    package static func raise(_ alarms: [String: String]) -> [PostgresRequest<Void>] {
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
