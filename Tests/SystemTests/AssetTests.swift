import Diagnostics
import Entitlements
import Foundation
import Postgres
import TestSupport
import Testing
import UserRequests

struct AssetTests {
    @Test func `122, 123, 124, 126: only what the lapse froze comes back, once`() async throws {
        try await World.with(customers: ["{id: ann, state: active}"]) { world in
            try await world.add("ann")
            try await world.addAssets(12, of: "ann", frozenFor: ["subscription_lapsed"])
            try await world.addAssets(2, of: "ann", frozenFor: ["moderation"])
            try await world.addAssets(1, of: "ann", frozenFor: ["subscription_lapsed", "moderation"])
            try await world.pool.query("INSERT INTO assets (user_id, frozen_at) VALUES ('ann', '2020-01-01')")
            #expect(try await world.restored("ann").outcome == "restored")
            #expect(try await world.assets(of: "ann", frozenFor: ["moderation"]) == 3)
            let unfrozen = try await world.number(
                "SELECT count(*) FROM assets WHERE frozen_reasons = '{}' AND frozen_at IS NULL"
            )
            #expect(unfrozen == 12)
            let legacy = try await world.number("SELECT count(*) FROM assets WHERE frozen_at = '2020-01-01'")
            #expect(legacy == 1)
            // It is counted, and stands on the list for whoever reviews it.
            let check = await Doctor(pool: world.pool).checks().first { $0.name == "unexplained_assets" }
            #expect(check?.ok == false && check?.detail.hasPrefix("1 assets are frozen without") == true)
            let listed = try await world.texts(
                "SELECT concat_ws(' ', a.user_id, a.asset_id) FROM entitlement_sync_host.unexplained_assets(10) AS a"
            )
            #expect(listed == ["ann 16"])
            #expect(try await world.decisions(about: "ann").first?.assetsChanged == 13)
            #expect(try await world.restored("ann").outcome == "already_subscriber")
            #expect(try await world.decisions(about: "ann").last?.assetsChanged == 0)
        }
    }

    @Test func `133: a user without assets is restored`() async throws {
        try await World.with(customers: ["{id: ann, state: active}"]) { world in
            try await world.add("ann")
            #expect(try await world.restored("ann").messageKey == "restored")
            #expect(try await world.decisions(about: "ann").first?.assetsChanged == 0)
        }
    }

    @Test func `127: many assets follow in batches; the user is promoted first`() async throws {
        try await World.with(customers: ["{id: ann, state: active}"]) { world in
            try await world.add("ann")
            try await world.addAssets(2500, of: "ann", frozenFor: ["subscription_lapsed"])
            let job = try await world.restored("ann")
            #expect(job.outcome == "restored")
            #expect(job.messageKey == "restored.assets_pending")
            #expect(try await world.assets(of: "ann", frozenFor: []) == 2500)
            #expect(try await world.decisions(about: "ann").map(\.assetsChanged) == [2500])
            #expect(try await world.number("SELECT count(*) FROM entitlement_sync.asset_run") == 0)
        }
    }

    /// As many as the design speaks of in the long profile.
    private static let many =
        Profile.isFull ? 100_000 : 20_000

    @Test func `86 127: a lapse in the middle of very many assets wins, and leaves none behind`() async throws {
        try await World.with(customers: ["{id: ann, subscriptions: [{state: active}]}"]) { world in
            try await world.add("ann")
            try await world.addAssets(Self.many, of: "ann", frozenFor: ["subscription_lapsed"])
            // A host with work of its own at each change, or it would be over before anybody could lapse.
            try await world.pool.withConnection { connection in
                try await connection.execute(
                    script: """
                        CREATE FUNCTION dawdle() RETURNS trigger LANGUAGE plpgsql AS
                            $$ BEGIN PERFORM pg_sleep(0.03); RETURN NULL; END $$;
                        CREATE TRIGGER dawdle AFTER UPDATE ON assets FOR EACH STATEMENT EXECUTE FUNCTION dawdle();
                        """
                )
            }
            _ = try await world.restore("ann")
            try await world.working {
                try await world.waitUntil(
                    "SELECT (count(*) > 2)::int FROM entitlement_sync.asset_batch",
                    comment: "the unfreezing does not go on"
                )
                try await world.change("ann", #"{"state":"expired"}"#)
                _ = try await world.reconcile("ann")
                try await world.pool.query("SELECT pg_notify('entitlement_sync_wake', '')")
                try await world.waitUntil(
                    """
                    SELECT (u.type = 'free' AND NOT EXISTS (SELECT 1 FROM entitlement_sync.asset_run))::int
                      FROM users AS u WHERE u.id = 'ann'
                    """,
                    comment: "the freezing does not end"
                )
            }
            #expect(try await world.assets(of: "ann", frozenFor: ["subscription_lapsed"]) == Int64(Self.many))
            let changes = try await world.decisions(about: "ann").map(\.assetsChanged)
            #expect(changes.count == 2 && changes[0] < Self.many && changes[0] == changes[1], "\(changes)")
        }
    }

    @Test func `131: an asset that the host refuses holds nobody up, and is tried again`() async throws {
        try await World.with(customers: ["{id: ann, state: active}"]) { world in
            try await world.add("ann")
            try await world.addAssets(20, of: "ann", frozenFor: ["subscription_lapsed"])
            try await world.pool.query(
                """
                CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
                $$ BEGIN RAISE EXCEPTION 'this one stays frozen'; END $$
                """
            )
            try await world.pool.query(
                """
                CREATE TRIGGER refuse BEFORE UPDATE ON assets FOR EACH ROW
                WHEN (old.id = 7) EXECUTE FUNCTION refuse()
                """
            )
            let job = try await world.restore("ann")
            try await world.working {
                try await world.waitUntil(
                    "SELECT count(*) FROM entitlement_sync.job_status WHERE id = \(job) AND outcome = 'restored'"
                )
                try await world.waitUntil(
                    "SELECT (count(*) = 19)::int::bigint FROM assets WHERE frozen_reasons = '{}'",
                    comment: "the other assets stay frozen"
                )
                #expect(try await world.type(of: "ann") == "subscriber")
                try await world.waitUntil(
                    """
                    SELECT count(*) FROM entitlement_sync.asset_batch AS b
                      JOIN entitlement_sync.decision AS d ON d.id = b.decision_id
                     WHERE d.job_id = \(job) AND b.failed = 'P0001'
                    """,
                    comment: "the failure is not on record with its decision"
                )
                let found = await Doctor(pool: world.pool).checks().filter { !$0.ok }.map(\.name)
                #expect(Set(found).isSuperset(of: ["refused_assets", "alarm.asset_refused"]), "\(found)")
                try await world.pool.query("DROP TRIGGER refuse ON assets")
                try await world.pool.query("UPDATE entitlement_sync.asset_run SET due = now()")
                try await world.waitUntil(
                    "SELECT (count(*) = 20)::int::bigint FROM assets WHERE frozen_reasons = '{}'",
                    comment: "the refused asset is not tried again"
                )
            }
            #expect(try await world.decisions(about: "ann").map(\.assetsChanged) == [20])
        }
    }

    @Test(arguments: ["STATEMENT", "ROW"])
    func `131: a host that refuses every change rests and keeps nobody else's; what it skips is passed by`(
        _ level: String
    ) async throws {
        try await World.with(customers: ["{id: ann, state: active}", "{id: bob, state: active}"]) { world in
            for user in ["ann", "bob"] {
                try await world.add(user)
                try await world.addAssets(3, of: user, frozenFor: ["subscription_lapsed"])
            }
            let body =
                level == "ROW"
                ? "IF old.user_id = 'ann' AND old.id % 2 = 0 THEN RETURN NULL; END IF; RETURN new;"
                : "RAISE EXCEPTION 'never';"
            try await world.pool.withConnection { connection in
                try await connection.execute(
                    script: """
                        CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \(body) END $$;
                        CREATE TRIGGER refuse BEFORE UPDATE ON assets FOR EACH \(level) EXECUTE FUNCTION refuse();
                        """
                )
            }
            let ann = try await world.restore("ann")
            try await world.working {
                try await world.waitUntil(
                    "SELECT count(*) FROM entitlement_sync.job_status WHERE id = \(ann) AND outcome = 'restored'"
                )
                #expect(try await world.type(of: "ann") == "subscriber")
                if level == "STATEMENT" {
                    try await world.waitUntil(
                        "SELECT count(*) FROM entitlement_sync.asset_run AS r WHERE r.parked AND r.due > now() + interval '50 minutes'"
                    )
                    let failures = try await world.number("SELECT count(*) FROM entitlement_sync.asset_batch")
                    #expect(failures <= 8, "each asset is tried twice, and then the run rests")
                    try await world.pool.query("ALTER TABLE assets DISABLE TRIGGER refuse")
                } else {
                    try await world.waitUntil("SELECT (count(*) = 0)::int FROM entitlement_sync.asset_run")
                }
                let job = try await world.restore("bob")
                try await world.waitUntil(
                    "SELECT count(*) FROM entitlement_sync.job_status WHERE id = \(job) AND outcome = 'restored'"
                )
            }
            #expect(try await world.assets(of: "bob", frozenFor: []) == 3)
            #expect(try await world.assets(of: "ann", frozenFor: []) == (level == "ROW" ? 2 : 0))
            let kept = try await world.number("SELECT count(*) FROM entitlement_sync.asset_run")
            #expect(kept == (level == "ROW" ? 0 : 1), "what is refused is kept")
        }
    }

    @Test func `180: a subscriber whose assets are still frozen for the lapse is restored`() async throws {
        try await World.with(customers: ["{id: ann, state: active}", "{id: bob, state: active}"]) { world in
            try await world.add("ann", .subscriber)
            try await world.add("bob")
            for user in ["ann", "bob"] {
                try await world.addAssets(3, of: user, frozenFor: ["subscription_lapsed"])
                #expect(try await world.restored(user).outcome == "restored")
                #expect(try await world.assets(of: user, frozenFor: []) == 3)
                #expect(try await world.type(of: user) == "subscriber")
            }
        }
    }
}
