import Foundation
import Postgres
import TestSupport
import Testing

/// A host application with other tables, columns and types, behind an adapter of its own.
struct AdapterTests {
    private static let adapter = Paths.fixtures + "/other_adapter.sql"
    private static let scenario = """
        customers:
          - {id: payer, state: active}
          - {id: hoarder, state: active}
          - {id: lapsed, state: expired}
          - {id: bystander, state: active}
          - {id: blocked, state: active}
          - {id: owner, subscriptions: [{state: active, store_subscription_identifier: "480001234567890"}]}
        """
    private static let rows = """
        INSERT INTO shop.accounts (uid, plan, state, name) VALUES
            ('payer', 'basic', 1, 'Pat'), ('hoarder', 'basic', 0, 'Hal'), ('lapsed', 'premium', 1, 'Lea'),
            ('claimant', 'basic', 1, 'Cleo'), ('owner', 'basic', 1, 'Otto'), ('bystander', 'premium', 1, 'Bob'),
            ('blocked', 'basic', 2, 'Ben'), ('nobody-asked', 'basic', 1, 'Nan');
        INSERT INTO shop.media (account_uid, blocked_for, title)
        SELECT a.uid, f.reasons, a.uid || f.n
          FROM shop.accounts AS a
         CROSS JOIN (VALUES (1, '{subscription_lapsed}'::text[]), (2, '{subscription_lapsed,moderation}'),
                            (3, '{moderation}'), (4, '{}')) AS f(n, reasons)
         WHERE a.uid NOT IN ('lapsed', 'hoarder', 'bystander');
        INSERT INTO shop.media (account_uid, blocked_for)
        SELECT 'lapsed', reasons FROM (VALUES ('{}'::text[]), ('{moderation}'), ('{}')) AS f(reasons);
        INSERT INTO shop.media (account_uid) VALUES ('bystander');
        INSERT INTO shop.media (account_uid, blocked_for)
        SELECT 'hoarder', '{subscription_lapsed}' FROM generate_series(1, 2500);
        """

    private static let migrated = DatabaseTemplate(name: "other_host") { url in
        try await DatabaseTemplate.fill(url, Paths.text(Paths.fixtures + "/other_host.sql"))
        let ending = try await Site.run(["migrate", "--adapter", adapter], settings: Site.settings(url))
        try #require(ending.code == 0, "\(ending)")
        try await DatabaseTemplate.fill(
            url,
            rows
                + """

                INSERT INTO entitlement_sync.product (store, product_id, entitlement, grants_access)
                VALUES ('revenuecat', 'premium', 'premium', true)
                """
        )
    }

    @Test("The worker promotes, demotes, freezes, unfreezes and opens tickets on tables of other names and types")
    func otherTables() async throws {
        let simulator = try await Simulator(scenario: Self.scenario)
        try await Site.with(Self.migrated, store: simulator.url) { site in
            let before = try await Self.versions(site)
            try await site.execute(
                """
                SELECT entitlement_sync.request_restore(id)
                  FROM unnest('{payer,hoarder,owner,bystander,blocked}'::text[]) AS u(id);
                SELECT entitlement_sync.request_restore(
                    'claimant', '[{"store": "app_store", "kind": "transaction_id", "value": "480001234567890"}]',
                    'receipt_already_in_use');
                SELECT entitlement_sync.request_reconcile('lapsed');
                """
            )
            let ending = try await site.run("worker", "--until-idle")
            #expect(ending.code == 0, "\(ending)")

            #expect(try await site.answer("payer") == "done restored restored")
            #expect(try await site.answer("hoarder") == "done restored restored.assets_pending")
            #expect(try await site.answer("owner") == "done restored restored")
            #expect(try await site.answer("bystander") == "done already_subscriber already_subscriber")
            #expect(try await site.answer("blocked") == "done not_eligible not_eligible")
            #expect(try await site.answer("claimant") == "done store_account_mismatch mismatch")
            #expect(try await site.answer("lapsed", kind: "reconcile") == "done demoted")
            #expect(
                try await site.texts("SELECT a.uid || ' ' || a.plan FROM shop.accounts AS a ORDER BY 1") == [
                    "blocked basic", "bystander premium", "claimant basic", "hoarder premium", "lapsed basic",
                    "nobody-asked basic", "owner premium", "payer premium",
                ]
            )
            #expect(
                try await site.texts(
                    "SELECT m.blocked_for::text FROM shop.media AS m WHERE m.account_uid = 'payer' ORDER BY m.title"
                ) == ["{}", "{moderation}", "{moderation}", "{}"]
            )
            #expect(
                try await site.texts(
                    "SELECT m.blocked_for::text FROM shop.media AS m WHERE m.account_uid = 'lapsed' ORDER BY 1"
                ) == ["{moderation,subscription_lapsed}", "{subscription_lapsed}", "{subscription_lapsed}"]
            )
            #expect(
                try await site.number(
                    "SELECT count(*) FROM shop.media AS m WHERE m.account_uid = 'hoarder' AND m.blocked_for = '{}'"
                ) == 2500
            )
            #expect(
                try await site.texts("SELECT t.user_id || ' ' || t.kind FROM entitlement_sync.ticket_status AS t")
                    == ["claimant owner_mismatch"]
            )
            #expect(
                try await site.texts("SELECT t.purchase_owner_id FROM entitlement_sync.ticket_status AS t") == ["owner"]
            )
            // A row that was written has a new version, whatever was written into it.
            let untouched = try await Self.versions(site).intersection(before)
            for line in before where !line.contains(":payer ") && !line.contains(":hoarder ") {
                let mayChange = ["account:lapsed ", "account:owner ", "media:lapsed ", "media:owner "]
                if !mayChange.contains(where: line.contains) {
                    #expect(untouched.contains(line), "\(line) was written")
                }
            }
            // Where only the reason or the plan was ours to change, all else stands.
            #expect(
                try await site.texts("SELECT string_agg(a.name, ' ' ORDER BY a.name) FROM shop.accounts AS a")
                    == ["Ben Bob Cleo Hal Lea Nan Otto Pat"]
            )
        }
    }

    @Test("The commands that look at users work on tables of other names and types")
    func otherCommands() async throws {
        try await Site.with(Self.migrated) { site in
            let calls = [
                ["doctor", "--output", "json"], ["explain", "lapsed"],
                ["grant", "add", "payer", "--until", "2099-01-01", "--reason", "r"],
                ["sandbox", "allow", "payer", "--until", "2099-01-01"],
            ]
            for call in calls {
                let ending = try await Site.run(call, settings: site.settings)
                #expect(ending.code == 0 && ending.err == "", "\(call): \(ending)")
            }
            let doctor = try await site.run("doctor", "--output", "json")
            #expect(doctor.out.contains("\"ok\":true}"), "\(doctor)")
            let unknown = try await site.run("restore", "no-such-account")
            #expect(unknown.code == 65)
        }
    }

    @Test("The adapter that does not fit the host's tables is refused, and the fitting one then installs")
    func wrongAdapter() async throws {
        try await Site.with(.empty) { site in
            try await site.execute(Paths.text(Paths.fixtures + "/other_host.sql"))
            let wrong = try await site.run("migrate")
            #expect(wrong.code == 78)
            #expect(wrong.out == "")
            #expect(wrong.err.contains("public.users") && wrong.err.contains("--adapter FILE"), "\(wrong)")
            // Nobody works on a schema whose last step is missing.
            let worker = try await site.run("worker", "--until-idle")
            #expect(worker.code == 78)
            #expect(worker.err.contains("adapter"), "\(worker)")
            let right = try await site.run("migrate", "--adapter", Self.adapter)
            #expect(right.code == 0, "\(right)")
            #expect(try await site.run("worker", "--until-idle").code == 0)
        }
    }

    @Test func `An adapter whose optional function fails is refused with function and line, and a dry run tries it`()
        async throws
    {
        try await Site.with(.empty) { site in
            try await site.execute(Paths.text(Paths.fixtures + "/other_host.sql"))
            #expect(try await site.run("migrate", "--adapter", Self.adapter).code == 0)
            let broken = """
                CREATE OR REPLACE FUNCTION entitlement_sync_host.newest_users(most integer) RETURNS SETOF text
                LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
                BEGIN
                    RETURN QUERY SELECT a.nick FROM shop.accounts AS a LIMIT most;
                END
                $$;
                """
            let file = try Paths.temporary(Paths.text(Self.adapter) + broken, suffix: ".sql")
            defer { try? FileManager.default.removeItem(atPath: file) }
            let ending = try await site.run("migrate", "--dry-run", "--adapter", file)
            #expect(
                ending.code == 78 && ending.err.contains("a.nick does not exist, in newest_users line 3"),
                "\(ending)"
            )
            let functions = "SELECT count(*) FROM pg_proc AS p WHERE p.proname = 'newest_users'"
            #expect(try await site.number(PostgresQuery(rawSQL: functions)) == 0)
        }
    }

    @Test("An adapter that fails at an id which the host's tables cannot hold is refused")
    func strictAdapter() async throws {
        try await Site.with(.empty) { site in
            try await site.execute(Paths.text(Paths.fixtures + "/other_host.sql"))
            let fitting = try Paths.text(Self.adapter)
            let plain = "FROM shop.accounts AS a\n     WHERE a.uid = ANY (ids)"
            let reading = try #require(fitting.range(of: plain))
            // As where the column is a uuid: the id is read as one before any row is looked at.
            let strict = fitting.replacingCharacters(
                in: reading,
                with: """
                    FROM unnest(ids) AS w(id)
                     CROSS JOIN LATERAL (SELECT * FROM shop.accounts AS x WHERE x.uid = w.id::uuid::text OFFSET 0) AS a
                    """
            )
            let file = try Paths.temporary(strict, suffix: ".sql")
            defer { try? FileManager.default.removeItem(atPath: file) }
            let ending = try await site.run("migrate", "--adapter", file)
            #expect(ending.code == 78)
            #expect(ending.err.contains("uuid") && ending.err.contains("let read_users leave out"), "\(ending)")
        }
    }

    @Test func `The page's example is part of the adapter that is tested`() throws {
        let page = try Paths.text(Paths.folder + "/deploy/docs/integrate/other-tables.md")
        let lines = page.split(separator: "\n", omittingEmptySubsequences: false)
        let example = lines.drop { !$0.hasPrefix("    CREATE OR REPLACE FUNCTION") }.prefix {
            $0.isEmpty || $0.hasPrefix("    ")
        }
        .map { String($0.dropFirst(4)) }.joined(separator: "\n").trimmingCharacters(in: .whitespacesAndNewlines)
        try #require(example.hasPrefix("CREATE OR REPLACE FUNCTION"))
        #expect(try Paths.text(Self.adapter).contains(example))
    }

    /// Every row of the host with the version it is in.
    private static func versions(_ site: Site) async throws -> Set<String> {
        Set(
            try await site.texts(
                """
                SELECT 'account:' || a.uid || ' ' || a.xmin FROM shop.accounts AS a
                UNION ALL
                SELECT 'media:' || m.account_uid || ' ' || m.item_id || ' ' || m.xmin FROM shop.media AS m
                """
            )
        )
    }
}
