import FoundationEssentials
package import Postgres

/// Switches, grants and allow-lists: what our own people set by hand.
package struct Controls: Sendable {
    private let pool: PostgresPool

    package init(pool: PostgresPool) { self.pool = pool }

    /// Sets a switch (`demotions`, `transfers`, `all`); holds for every worker from its next batch.
    package func set(_ name: String, paused: Bool) async throws {
        try await pool.query("SELECT entitlement_sync.set_switch(\(name), \(paused))")
    }

    /// The switches that stand at paused, by name.
    package func paused() async throws -> [String] {
        try await pool.query("SELECT c.name FROM entitlement_sync.control AS c WHERE c.paused ORDER BY c.name")
            .map { try $0.decode(String.self) }
    }

    /// Whether everything is paused.
    package func isPaused() async throws -> Bool {
        try await pool.query("SELECT c.paused FROM entitlement_sync.control AS c WHERE c.name = 'all'")
            .first?.decode(Bool.self) ?? false
    }

    package struct GrantRow: Sendable, Codable {
        package var id: Int64
        package var userID: String
        package var until: String
        /// Another payer; `nil`: our own people.
        package var source: String?
        package var externalID: String?
        package var entitlement: String?
        package var reason: String
        package var grantedBy: String
        package var isActive: Bool

        enum CodingKeys: String, CodingKey {
            case id, until, source, entitlement, reason
            case userID = "user_id"
            case externalID = "external_id"
            case grantedBy = "granted_by"
            case isActive = "active"
        }
    }

    /// Gives access until an instant, and queues a read of the user.
    ///
    /// - Throws: `PostgresError` with SQLSTATE `ES001` for an unknown user.
    /// - Returns: the grant's id.
    package func grant(_ userID: String, until: PostgresTimestamp, reason: String) async throws -> Int64 {
        try await pool.withTransaction { connection in
            let rows = try await connection.query(
                """
                INSERT INTO entitlement_sync."grant" (user_key, until, reason)
                VALUES (entitlement_sync.user_key_of(\(userID)), \(until), \(reason)) RETURNING id
                """
            )
            try await connection.query("SELECT entitlement_sync.request_reconcile(\(userID), 'grant added')")
            return try rows.one.decode(Int64.self)
        }
    }

    /// Ends a grant, and queues a read of the user; `false` when there is no such grant in force, or the host says it.
    package func revoke(_ id: Int64) async throws -> Bool {
        try await pool.withTransaction { connection in
            let rows = try await connection.query(
                """
                UPDATE entitlement_sync."grant" AS g SET revoked_at = now()
                 -- What the host is asked about begins again with the next decision.
                 WHERE g.id = \(id) AND g.revoked_at IS NULL AND NOT g.is_asked
                RETURNING (SELECT u.user_id FROM entitlement_sync.user_sync AS u WHERE u.user_key = g.user_key)
                """
            )
            guard let row = rows.first else { return false }
            if let userID = try row.decode(String?.self, at: 0) {
                try await connection.query("SELECT entitlement_sync.request_reconcile(\(userID), 'grant revoked')")
            }
            return true
        }
    }

    /// Whether a grant in force is what the host's `other_access` says.
    package func isAsked(_ id: Int64) async throws -> Bool {
        try await !pool.query(
            "SELECT 1 FROM entitlement_sync.\"grant\" AS g WHERE g.id = \(id) AND g.revoked_at IS NULL AND g.is_asked"
        ).isEmpty
    }

    /// All grants, newest first, at most 1,000.
    package func grants() async throws -> [GrantRow] {
        try await pool.query(
            """
            SELECT g.id, coalesce(u.user_id, ''), CASE WHEN isfinite(g.until) THEN to_char(g.until AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"')
                        ELSE g.until::text END,
                   nullif(g.source, 'grant'), g.external_id, g.entitlement, g.reason, g.granted_by, g.revoked_at IS NULL AND g.until > now()
              FROM entitlement_sync."grant" AS g
              JOIN entitlement_sync.user_sync AS u ON u.user_key = g.user_key
             WHERE g.version_of IS NULL
             ORDER BY g.id DESC LIMIT 1000
            """
        ).map { row in
            try row.decode(
                into: GrantRow.init(id:userID:until:source:externalID:entitlement:reason:grantedBy:isActive:)
            )
        }
    }

    /// Lets a user's sandbox purchases count until an instant, and queues a read of the user.
    package func allowSandbox(_ userID: String, until: PostgresTimestamp) async throws {
        try await pool.withTransaction { connection in
            // The only function that the role with the list of testers has to know a user by; it gives the id as the host has it.
            let job = try await connection.query(
                "SELECT entitlement_sync.request_reconcile(\(userID), 'sandbox allowed')"
            ).first?.decode(UUID.self, at: 0)
            try await connection.query(
                """
                INSERT INTO entitlement_sync.sandbox_user (user_id, until)
                SELECT coalesce((SELECT s.user_id FROM entitlement_sync.job_status AS s WHERE s.id = \(job)), \(userID)), \(until)
                ON CONFLICT (user_id) DO UPDATE SET until = excluded.until
                """
            )
        }
    }

    /// A user of a baseline, and what gives them access: our own people, or another payer (`source`) by its name for it.
    package struct Adopted: Sendable {
        package var userID: String
        package var until: PostgresTimestamp
        package var reason: String
        package var payer: (source: String, externalID: String)?

        package init(
            userID: String,
            until: PostgresTimestamp,
            reason: String,
            payer: (source: String, externalID: String)? = nil
        ) {
            self.userID = userID
            self.until = until
            self.reason = reason
            self.payer = payer
        }
    }

    /// Adopts a baseline: each user becomes explained by a grant.
    ///
    /// - Returns: how many grants were added; users who have an active grant with the same reason, or from the same payer, are
    ///   left as they are.
    /// - Throws: `UnadoptableRow` where a row is refused; nothing is adopted then.
    package func adopt(_ rows: [Adopted]) async throws -> Int {
        try await pool.withTransaction { connection in
            var added = 0
            for (index, row) in rows.enumerated() {
                do {
                    if let (source, externalID) = row.payer {
                        added += try await connection.query(
                            """
                            SELECT entitlement_sync.record_access(k.key, \(source), \(externalID), \(row.until), NULL, \(row.reason))
                              FROM (SELECT entitlement_sync.user_key_of(\(row.userID)) AS key) AS k
                             WHERE NOT EXISTS (SELECT 1 FROM entitlement_sync."grant" AS g
                                                WHERE g.user_key = k.key AND g.source = \(source)
                                                  AND g.external_id = \(externalID))
                            """
                        ).count
                        continue
                    }
                    added += try await connection.query(
                        """
                        INSERT INTO entitlement_sync."grant" (user_key, until, reason)
                        SELECT k.key, \(row.until), \(row.reason)
                          FROM (SELECT entitlement_sync.user_key_of(\(row.userID)) AS key) AS k
                         WHERE NOT EXISTS (SELECT 1 FROM entitlement_sync."grant" AS g
                                            WHERE g.user_key = k.key AND g.reason = \(row.reason)
                                              AND g.revoked_at IS NULL AND g.until >= \(row.until))
                        """
                    ).affected
                } catch let error as PostgresError where error.sqlState?.hasPrefix("ES") == true {
                    throw UnadoptableRow(index: index, reason: error.message, hint: error.hint ?? "")
                }
            }
            return added
        }
    }
}

/// A row of a baseline that the database refuses.
package struct UnadoptableRow: Error {
    /// Which one, from 0.
    package var index: Int
    package var reason: String
    package var hint: String
}
