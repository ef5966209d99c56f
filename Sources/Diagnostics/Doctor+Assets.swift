import Postgres

/// What `doctor` finds of the host's assets.
extension Doctor {
    /// Counting ends there.
    private static let mostAssets = 10_000

    /// Assets that are frozen without a recorded reason: it is unknown who froze them, so they are not unfrozen here.
    func unexplainedAssets() async throws -> [Check] {
        // An adapter may leave it out.
        let tells = try await pool.query(
            "SELECT to_regprocedure('entitlement_sync_host.unexplained_assets(integer)') IS NOT NULL"
        ).first?.decode(Bool.self, at: 0)
        guard tells == true else { return [] }
        let rows: PostgresRows
        do { rows = try await countUnexplained() } catch let error as PostgresError
            where error.sqlState == SQLState.queryCanceled
        {
            // Nothing is known to be wrong.
            return [
                Check(
                    name: "unexplained_assets",
                    ok: true,
                    detail: "not counted, for it takes too long; the adapter says which index would help",
                    fix: ""
                )
            ]
        }
        guard let row = rows.first else { return [] }
        let (count, first) = try row.decode(Int64.self, String.self)
        let many = count > Self.mostAssets ? "more than \(Self.mostAssets)" : "\(count)"
        return [
            Check(
                name: "unexplained_assets",
                ok: count == 0,
                detail: count == 0
                    ? "no asset is frozen without a recorded reason"
                    : "\(many) assets are frozen without a recorded reason, and stay so; among them \(first)",
                fix:
                    "Look through SELECT * FROM entitlement_sync_host.unexplained_assets(1000), and let the host record a reason"
                    + " for each, or unfreeze it."
            )
        ]
    }

    private func countUnexplained() async throws -> PostgresRows {
        try await pool.query(
            """
            SELECT count(*), coalesce(string_agg(a.asset_id, ', ') FILTER (WHERE a.place <= 5), '')
              FROM entitlement_sync_host.unexplained_assets(\(Int32(Self.mostAssets + 1)))
                   WITH ORDINALITY AS a(user_id, asset_id, place)
            """
        )
    }
}
