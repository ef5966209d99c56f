import Foundation
import Postgres
import TestSupport
import Testing

/// The adapter for tables with uuid keys, on the tables that it is written for.
struct UUIDAdapterTests {
    private static let payer = "11111111-1111-4111-8111-111111111111"
    private static let lapsed = "aaaaaaaa-aaaa-4aaa-8aaa-aaaaaaaaaaaa"
    private static let blocked = "ffffffff-ffff-4fff-8fff-ffffffffffff"
    private static let scenario = """
        customers:
          - {id: \(payer), state: active}
          - {id: \(lapsed), state: expired}
          - {id: \(blocked), state: active}
        """

    private static let migrated = DatabaseTemplate(name: "uuid_host") { url in
        try await DatabaseTemplate.fill(url, Paths.text(Paths.fixtures + "/uuid_tables.sql"))
        let migrate = ["migrate", "--adapter", Paths.sql + "/host/adapter_uuid.sql"]
        let ending = try await Site.run(migrate, settings: Site.settings(url))
        try #require(ending.code == 0, "\(ending)")
        try await DatabaseTemplate.fill(
            url,
            """
            INSERT INTO accounts (uid, plan, state) VALUES
                ('\(payer)', 'free', 'enabled'), ('\(lapsed)', 'pro', 'enabled'), ('\(blocked)', 'free', 'blocked');
            INSERT INTO accounts (uid, plan, state) SELECT gen_random_uuid(), 'free', 'enabled' FROM generate_series(1, 2500);
            INSERT INTO items (item_id, account_uid, locked_for, locked_at)
            SELECT gen_random_uuid(), '\(payer)', '{subscription_lapsed}', now() FROM generate_series(1, 2500);
            INSERT INTO items (item_id, account_uid, locked_for, locked_at)
            SELECT gen_random_uuid(), u.id::uuid, f.reasons::text[], CASE WHEN f.reasons <> '{}' THEN now() END
              FROM unnest('{\(payer),\(lapsed),\(blocked)}'::text[]) AS u(id)
             CROSS JOIN (VALUES ('{}'), ('{copyright}'), (NULL)) AS f(reasons);
            INSERT INTO entitlement_sync.product (store, product_id, entitlement) VALUES ('revenuecat', 'premium', 'premium')
            """
        )
    }

    @Test func `Users are promoted and demoted, and thousands of items unlocked, by uuid keys`() async throws {
        let simulator = try await Simulator(scenario: Self.scenario)
        try await Site.with(Self.migrated, store: simulator.url) { site in
            let doctor = try await site.run("doctor")
            #expect(doctor.out.contains("ok  adapter: ") && !doctor.out.contains("!!  adapter"), "\(doctor)")
            for text in ["no uuid", Self.payer + "0"] {
                #expect(try await site.run("restore", text).code == 65)
            }
            try await site.execute(
                """
                SELECT entitlement_sync.request_restore(upper('\(Self.payer)')),
                       entitlement_sync.request_restore('\(Self.blocked)'),
                       entitlement_sync.request_reconcile('\(Self.lapsed)')
                """
            )
            let ending = try await site.run("worker", "--until-idle")
            #expect(ending.code == 0, "\(ending)")
            #expect(try await site.answer(Self.payer) == "done restored restored.assets_pending")
            #expect(try await site.answer(Self.blocked) == "done not_eligible not_eligible")
            #expect(try await site.answer(Self.lapsed, kind: "reconcile") == "done demoted")
            func items(_ user: String) async throws -> [String] {
                try await site.texts(
                    """
                    SELECT concat(coalesce(nullif(i.locked_for, '{}'), '{}'), ' ', i.locked_at IS NOT NULL, ' ', count(*))
                      FROM items AS i WHERE i.account_uid = \(user)::uuid
                     GROUP BY coalesce(nullif(i.locked_for, '{}'), '{}'), i.locked_at IS NOT NULL ORDER BY 1
                    """
                )
            }
            #expect(try await items(Self.payer) == ["{copyright} t 1", "{} f 2502"])
            #expect(
                try await items(Self.lapsed) == ["{copyright,subscription_lapsed} t 1", "{subscription_lapsed} t 2"]
            )
            #expect(try await items(Self.blocked) == ["{copyright} t 1", "{} f 2"])
            #expect(
                try await site.texts(
                    "SELECT a.plan FROM accounts AS a WHERE a.uid = ANY ('{\(rawSQL: "\(Self.payer),\(Self.lapsed)")}') ORDER BY 1"
                ) == ["free", "pro"]
            )
        }
    }

    @Test func `Every user is met by a run over pages of uuid keys`() async throws {
        let simulator = try await Simulator(scenario: Self.scenario)
        try await Site.with(Self.migrated, store: simulator.url) { site in
            let worker = try await site.start("worker")
            let run = try await site.run("reconcile", "--all", "--dry-run", "--output", "json")
            #expect(run.code == 0 && run.out.contains("\"total\":2503"), "\(run.out.suffix(600)) \(run.err)")
            try await worker.stop()
        }
    }

    @Test func `An adapter that would write a plan which the table refuses is not installed, and no user is changed`()
        async throws
    {
        try await Site.with(Self.migrated) { site in
            let adapter = try Paths.text(Paths.sql + "/host/adapter_uuid.sql")
            let before = try await site.texts(
                "SELECT string_agg(a.uid || a.plan || a.xmin, ' ' ORDER BY a.uid) FROM accounts AS a"
            )
            for (plan, text) in [
                ("gold", "violates check constraint"),
                ("free", "set_type with 'subscriber' leaves a user that read_users gives the type 'free'"),
            ] {
                let right = "CASE type WHEN 'subscriber' THEN 'pro'"
                try #require(adapter.contains(right))
                let wrong = adapter.replacing(right, with: "CASE type WHEN 'subscriber' THEN '\(plan)'")
                let file = try Paths.temporary(wrong, suffix: ".sql")
                defer { try? FileManager.default.removeItem(atPath: file) }
                let ending = try await site.run("migrate", "--dry-run", "--adapter", file)
                #expect(ending.code == 78 && ending.err.contains(text), "\(ending)")
            }
            #expect(
                try await site.texts(
                    "SELECT string_agg(a.uid || a.plan || a.xmin, ' ' ORDER BY a.uid) FROM accounts AS a"
                )
                    == before
            )
        }
    }
}
