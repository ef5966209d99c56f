import Postgres

/// What doctor finds about the stores' credentials and about RevenueCat's settings.
extension Doctor {
    /// Credentials that know none of our customers, and the pauses that the product has set by itself.
    func credentials() async throws -> [Check] {
        let rows = try await pool.query(
            """
            SELECT c.store, c.state FROM entitlement_sync.store_credential AS c WHERE c.digest IS NOT NULL ORDER BY c.store
            """
        )
        var checks = try rows.map { row in
            let (store, state) = try row.decode(String.self, String.self)
            let detail =
                switch state {
                case "doubted": "none of the customers who were asked for is known with the credentials in use"
                case "unchecked": "the credentials changed, and the store has not answered with them yet"
                default: "nothing is known against the credentials in use"
                }
            return Check(
                name: "credentials.\(store)",
                ok: state == "confirmed",
                detail: detail,
                fix: "Check the store's key and project, or app, in the variables. Where they are right and"
                    + " demotions are paused: entitlement-sync resume demotions."
            )
        }
        let causes = try await pool.query(
            "SELECT c.name, c.cause FROM entitlement_sync.control AS c WHERE c.paused AND c.cause IS NOT NULL ORDER BY c.name"
        )
        checks += try causes.map { row in
            let (name, cause) = try row.decode(String.self, String.self)
            return Check(
                name: "paused.\(name)",
                ok: false,
                detail: cause == "credentials"
                    ? "entitlement-sync paused \(name): a store knows none of our customers"
                    : "entitlement-sync paused \(name): a store no longer lists the purchases of too many users",
                fix: "Mend what the alarms say, then entitlement-sync resume \(name)."
            )
        }
        return checks
    }

    /// Purchases that RevenueCat moved between accounts, which its required setting rules out.
    func restoreBehavior() async throws -> [Check] {
        let rows = try await pool.query(
            """
            SELECT count(*) FROM entitlement_sync.ticket AS t
             WHERE t.kind = 'external_transfer' AND t.created_at > now() - interval '30 days'
            """
        )
        let moved = try rows.first?.decode(Int64.self, at: 0) ?? 0
        return [
            Check(
                name: "restore_behavior",
                ok: moved == 0,
                detail: moved == 0
                    ? "RevenueCat moved no purchase in 30 days; its restore behavior has to be \"Keep with original App User ID\""
                    : "RevenueCat moved \(moved) purchases to other accounts in 30 days",
                fix: "Set RevenueCat's restore behavior to \"Keep with original App User ID\"; transfer purchases here."
            )
        ]
    }
}
