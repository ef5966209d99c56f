import Postgres
import Testing

/// What people who look into the records may see.
@Suite struct RoleTests {
    @Test(arguments: ["entitlement_sync_support", "entitlement_sync_auditor"])
    func `Auditors see purchases and no purchase tokens, support neither by itself`(_ role: String) async throws {
        try await World.with { world in
            try await world.pool.query(
                """
                INSERT INTO entitlement_sync.purchase_identifier (value, store, environment, kind, purchase_id)
                VALUES ('tok-secret', 'google_play', 'production', 'purchase_token', 1),
                       ('GPA.1', 'google_play', 'production', 'order_id', 1)
                """
            )
            for secret in [
                "SELECT value FROM entitlement_sync.purchase_identifier",
                "SELECT lookup_id FROM entitlement_sync.purchase", "SELECT token FROM entitlement_sync.acknowledgement",
                "SELECT proofs FROM entitlement_sync.job_request",
            ] + (role.hasSuffix("support") ? ["SELECT value FROM entitlement_sync.purchase_identifier_log"] : []) {
                await #expect(throws: (any Error).self, "\(secret)") {
                    try await world.pool.withTransaction { connection in
                        try await connection.query("SET LOCAL ROLE \(rawSQL: role)")
                        try await connection.query(PostgresQuery("\(rawSQL: secret)"))
                    }
                }
            }
            guard role.hasSuffix("auditor") else { return }
            let seen = try await world.pool.withTransaction { connection in
                try await connection.query("SET LOCAL ROLE \(rawSQL: role)")
                try await connection.query("SELECT id, status, owner_rule, account_key FROM entitlement_sync.purchase")
                return try await connection.query(
                    "SELECT coalesce(l.value, '-') FROM entitlement_sync.purchase_identifier_log AS l ORDER BY 1"
                ).map { try $0.decode(String.self) }
            }
            #expect(seen == ["-", "GPA.1"])
        }
    }
}
