import Entitlements
import Postgres

/// The host's users and their assets.
struct UserChecks {
    let pool: PostgresPool

    /// Goes through every user of the host, page by page: many never had a job.
    func all() async throws -> [Check] {
        var cursor: String?
        var ineligible: Int64 = 0
        var unread: Int64 = 0
        var unexplained: Int64 = 0
        while true {
            let rows = try await pool.query(
                """
                SELECT (array_agg(u.id ORDER BY u.place DESC))[1],
                       count(*) FILTER (WHERE u.type = 'subscriber' AND NOT u.eligible),
                       count(*) FILTER (WHERE u.type = 'subscriber' AND u.eligible AND NOT EXISTS (
                           SELECT 1 FROM entitlement_sync.user_sync AS s
                            WHERE s.user_id = u.id
                              AND (s.ever_observed OR EXISTS (SELECT 1 FROM entitlement_sync."grant" AS g
                                                               WHERE g.user_key = s.user_key)))),
                       count(*) FILTER (WHERE NOT coalesce(u.type IN ('free', 'subscriber'), false) OR NOT u.is_known)
                  FROM (SELECT p.id, p.type, entitlement_sync.is_eligible(p.status) AS eligible, p.place,
                               coalesce(p.status IN ('active', 'onboarding', 'banned', 'banned_final', 'to_be_deleted'),
                                        false) AS is_known
                          FROM entitlement_sync_host.page_users(\(cursor), 5000) WITH ORDINALITY
                               AS p(id, type, status, created_at, place)) AS u
                """
            )
            guard let row = rows.first else { break }
            let (last, banned, unknown, strange) = try row.decode(String?.self, Int64.self, Int64.self, Int64.self)
            // By the adapter's order, and not for ever where it gives out one page again.
            guard let last, cursor.map(last.isExactly) != true else { break }
            cursor = last
            unread += strange
            ineligible += banned
            unexplained += unknown
        }
        return [
            Check(
                "law.ineligible_subscribers",
                zero: ineligible,
                fine: "no subscriber is banned or being deleted",
                wrong: "subscribers are banned or being deleted; nothing changes them silently",
                fix: "Decide for each whether the status or the type is right, and set it in the host."
            ),
            Check(
                "unexplained_subscribers",
                zero: unexplained,
                fine: "no subscriber is without an explanation",
                wrong: "subscribers have no purchase or grant that was ever seen",
                fix: "Reconcile those who were never read; give the others a grant (entitlement-sync adopt --file CSV),"
                    + " or set their type in the host."
            ),
            Check(
                "adapter_users",
                zero: unread,
                fine: "every user has a type and a status that the worker can read",
                wrong: "users have a type or status that the worker can't read: their jobs end as adapter_refused",
                fix: "See the check adapter_words and alarm.adapter_refused; let the adapter translate them."
            ),
        ]
    }

    /// Counting ends there.
    private static let mostAssets = 10_000

    /// Assets that are frozen without a recorded reason: it is unknown who froze them, so they are not unfrozen here.
    func unexplainedAssets() async throws -> Check? {
        // An adapter may leave it out.
        let exists = try await pool.query(
            "SELECT to_regprocedure('entitlement_sync_host.unexplained_assets(integer)') IS NOT NULL"
        ).first?.decode(Bool.self, at: 0)
        guard exists == true else { return nil }
        let rows: PostgresRows
        do { rows = try await countUnexplained() } catch let error as PostgresError
            where error.sqlState == SQLState.queryCanceled
        {
            // Nothing is known to be wrong.
            return Check(
                "unexplained_assets",
                fine: "not counted, for it takes too long; the adapter says which index would help"
            )
        }
        guard let (count, first) = try rows.first?.decode(Int64.self, String.self) else { return nil }
        let many = count > Self.mostAssets ? "more than \(Self.mostAssets)" : "\(count)"
        return Check(
            name: "unexplained_assets",
            ok: count == 0,
            detail: count == 0
                ? "no asset is frozen without a recorded reason"
                : "\(many) assets are frozen without a recorded reason, and stay so; among them \(first)",
            fix:
                "See SELECT * FROM entitlement_sync_host.unexplained_assets(1000), and let the host record a reason"
                + " for each, or unfreeze it."
        )
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
