package import Postgres
import Queue

extension Doctor {
    /// Whether the roles may do what they are to do: one that came after the schema may do nothing until it is migrated again.
    func privileges() async throws -> [Check] {
        let rows = try await pool.query(
            """
            SELECT m.role, m.privilege, m.target, count(*) OVER ()
              FROM entitlement_sync.missing_privileges() AS m LIMIT 1
            """
        )
        guard let row = rows.first else {
            return [Check(name: "privileges", ok: true, detail: "every role that exists has its privileges", fix: "")]
        }
        let (role, privilege, target, count) = try row.decode(String.self, String.self, String.self, Int64.self)
        return [
            Check(
                name: "privileges",
                ok: false,
                detail: "roles lack \(count) privileges, such as \(role): \(privilege) on \(target)",
                fix: "Run entitlement-sync migrate as the schema's owner: it grants what is missing."
            )
        ]
    }
}

/// What is on record of how the program is set up.
package struct SetupRecords: Sendable {
    private let pool: PostgresPool

    package init(pool: PostgresPool) { self.pool = pool }

    /// How many products of each store are mapped; `play_store` is Google Play's other name.
    package func products() async throws -> [String: Int64] {
        let rows = try await pool.query(
            """
            SELECT CASE p.store WHEN 'play_store' THEN 'google_play' ELSE p.store END, count(*)
              FROM entitlement_sync.product AS p GROUP BY 1
            """
        )
        var products: [String: Int64] = [:]
        for row in rows {
            let (store, count) = try row.decode(String.self, Int64.self)
            products[store] = count
        }
        return products
    }

    /// How many workers are alive by version and mode.
    package func workers() async throws -> [(version: String, mode: String?, count: Int64)] {
        try await pool.query(
            """
            SELECT w.version, w.mode, count(*) FROM entitlement_sync.worker AS w
             WHERE w.expires_at > clock_timestamp() GROUP BY 1, 2 ORDER BY 3 DESC, 1, 2
            """
        ).map { row in
            let (version, mode, count) = try row.decode(String.self, String?.self, Int64.self)
            return (version, mode, count)
        }
    }
}
