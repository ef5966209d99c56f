package import Postgres

/// What happened to a user, in plain sentences, oldest first.
package struct Timeline: Sendable {
    package struct Event: Sendable, Codable {
        package var at: String
        package var kind: String
        package var text: String

        package init(at: String, kind: String, text: String) {
            (self.at, self.kind, self.text) = (at, kind, text)
        }
    }

    private let pool: PostgresPool

    package init(pool: PostgresPool) { self.pool = pool }

    /// Reads the timeline.
    ///
    /// `until`: leaves out what came later.
    /// Returns `nil` for a user that neither the host nor our records have.
    package func events(of userID: String, until: PostgresTimestamp?) async throws -> [Event]? {
        let host = try await pool.query(
            "SELECT u.type, u.status FROM entitlement_sync_host.read_users(\([userID])) AS u"
        )
        let rows = try await pool.query(
            """
            SELECT to_char(e.at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'), e.kind, e.words
              FROM entitlement_sync.user_sync AS u CROSS JOIN LATERAL entitlement_sync.user_events(u.user_key) AS e
             WHERE u.user_id = coalesce(entitlement_sync.host_id(\(userID)), \(userID)) AND e.at <= coalesce(\(until)::timestamptz, 'infinity')
             ORDER BY e.at, e.kind = 'job', e.kind, e.place
            """
        )
        var events = try rows.map { row in try row.decode(into: Event.init(at:kind:text:)) }
        if let row = host.first, until == nil {
            let (type, status) = try row.decode(String?.self, String?.self)
            let now = try await pool.query(
                "SELECT to_char(now() AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.MS\"Z\"')"
            )
            let at = try now.first?.decode(String.self, at: 0) ?? ""
            events.append(
                Event(
                    at: at,
                    kind: "now",
                    text: "The user's type is \(type ?? "NULL"), the account's status \(status ?? "NULL")."
                )
            )
        }
        return host.isEmpty && events.isEmpty ? nil : events
    }

    /// How a user stands, as far as they may know it themselves, as one JSON object; contains no other user's id.
    ///
    /// - Returns: `nil` for a user that neither the host nor our records have.
    package func standing(of userID: String) async throws -> String? {
        try await pool.query("SELECT entitlement_sync.user_standing(\(userID))::text").first?.decode(
            String?.self,
            at: 0
        )
    }
}
