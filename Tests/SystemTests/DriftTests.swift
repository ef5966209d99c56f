import Diagnostics
import Entitlements
import Postgres
import TestSupport
import Testing

/// How records are looked at in SQL, without a store.
@Suite struct DriftTests {
    /// What a user's purchase shows, and which findings that is where their type is.
    struct Holding: Sendable, CustomTestStringConvertible {
        var type: UserType
        var status: String
        var gives: Bool?
        var entitlements: [String]
        var without: Int64 = 0
        var free: Int64 = 0
        var testDescription: String { "\(type) \(status) \(entitlements)" }
    }

    @Test(arguments: [
        Holding(type: .subscriber, status: "owned", gives: nil, entitlements: ["premium"]),
        Holding(type: .free, status: "owned", gives: nil, entitlements: ["premium"], free: 1),
        Holding(type: .free, status: "active", gives: true, entitlements: ["onside:premium_monthly"], free: 1),
        Holding(type: .free, status: "active", gives: true, entitlements: ["google_play:pro:monthly"], free: 1),
        Holding(type: .free, status: "active", gives: true, entitlements: ["google_play:extra"]),
        Holding(type: .subscriber, status: "expired", gives: false, entitlements: ["premium"], without: 1),
        Holding(type: .subscriber, status: "owned", gives: nil, entitlements: [], without: 1),
        Holding(type: .subscriber, status: "refunded", gives: nil, entitlements: ["premium"], without: 1),
    ])
    func `L2: what was bought for good, and what stores sell themselves, counts where records are looked at`(
        _ holding: Holding
    ) async throws {
        try await World.with { world in
            try await world.addProducts()
            try await world.add("ann", holding.type)
            try await world.pool.query(
                """
                INSERT INTO entitlement_sync.product (store, product_id, entitlement, grants_access)
                VALUES ('revenuecat', 'premium', 'premium', true) ON CONFLICT DO NOTHING
                """
            )
            try await world.pool.query(
                """
                INSERT INTO entitlement_sync.purchase (id, owner_key, observed_at, gives_access, source, store, environment, kind,
                            status, ownership, product_id, owner_rule, entitlements)
                VALUES (7, entitlement_sync.user_key_of('ann'), now(), \(holding.gives), 'revenuecat', 'app_store', 'production',
                        'one_time', \(holding.status), 'purchased', 'prod', 'named_by_revenuecat', \(holding.entitlements))
                """
            )
            let type = holding.type.rawValue
            try await world.pool.query(
                """
                INSERT INTO entitlement_sync.decision (user_key, job_id, kind, rule, outcome, type_before, type_after, explanation)
                VALUES (entitlement_sync.user_key_of('ann'), entitlement_sync.new_id(), 1, 'no_access', 'unchanged', \(type),
                        \(type), '-')
                """
            )
            try await InvariantMonitor(pool: world.pool).run()
            let drift = try #require(try await InvariantMonitor(pool: world.pool).drift())
            #expect(drift.checked == 1)
            #expect(drift.users[.subscriberWithoutAccess] == holding.without)
            #expect(drift.users[.freeWithAccess] == holding.free)
            #expect(drift.agreement == (holding.without + holding.free == 0 ? 1 : 0))
            let law = (await Doctor(pool: world.pool).checks()).first { $0.name == "law.access_denied" }
            #expect(law?.ok == (holding.free == 0), "\(String(describing: law))")
        }
    }

    @Test func `What means access is the same in SQL and in the workers' catalogue`() async throws {
        let rows: [(store: String, product: String, plan: String?, grants: Bool)] = [
            ("revenuecat", "premium", nil, true), ("revenuecat", "badge", nil, false),
            ("google_play", "pro", nil, true),
            ("google_play", "pro", "trial", false), ("google_play", "extra", nil, false),
            ("google_play", "extra", "gold", true), ("app_store", "a.b", nil, true),
        ]
        try await World.with { world in
            try await world.pool.query("DELETE FROM entitlement_sync.product")
            var catalog: [String: Bool] = [:]
            for row in rows {
                try await world.pool.query(
                    """
                    INSERT INTO entitlement_sync.product (store, product_id, base_plan_id, entitlement, grants_access)
                    VALUES (\(row.store), \(row.product), \(row.plan), 'x', \(row.grants))
                    """
                )
                let key = ([row.store, row.product] + [row.plan].compactMap(\.self)).joined(separator: ":")
                catalog[row.store == "revenuecat" ? row.product : key] = row.grants
            }
            let keys = [
                "premium", "badge", "none", "premium:x", "google_play:pro", "google_play:pro:month",
                "google_play:pro:trial",
                "google_play:extra", "google_play:extra:gold", "google_play:extra:x", "google_play:pro:a:b",
                "app_store:a.b",
                "app_store:a.b:x", "onside:a", "",
            ]
            for first in keys {
                for second in keys {
                    let means = try await world.number("SELECT entitlement_sync.means_access(\([first, second]))::int")
                    let expected = ProductCatalog(catalog).mapping(of: [first, second]) == .access
                    #expect((means == 1) == expected, "\(first), \(second)")
                }
            }
            #expect(try await world.number("SELECT entitlement_sync.means_access('{}')::int") == 0)
        }
    }

    @Test func `Assets that take too long to be looked through are no finding`() async throws {
        try await World.with { world in
            try await world.pool.query(
                """
                CREATE OR REPLACE FUNCTION entitlement_sync_host.unexplained_assets(most integer)
                RETURNS TABLE (user_id text, asset_id text) LANGUAGE plpgsql AS $$
                BEGIN RAISE EXCEPTION USING ERRCODE = '57014', MESSAGE = 'canceling statement'; END $$
                """
            )
            let check = (await Doctor(pool: world.pool).checks()).first { $0.name == "unexplained_assets" }
            #expect(check?.ok == true && check?.detail.hasPrefix("not counted") == true, "\(String(describing: check))")
        }
    }
}
