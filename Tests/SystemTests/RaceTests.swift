import Entitlements
import Foundation
import Postgres
import Queue
import TestSupport
import Testing
import UserRequests

/// What happens between the moments of one job.
struct RaceTests {
    /// Small batches, so that big asset sets take several.
    private var smallBatches: WorkerSetup {
        var setup = WorkerSetup()
        setup.assetBatch = 10
        return setup
    }

    @Test func `81: a restore and a reconcile of one user run one after the other, each with its decision`()
        async throws
    {
        try await World.with(customers: ["{id: ann, state: active}"]) { world in
            try await world.add("ann")
            let restore = try await world.restore("ann")
            let reconcile = try await world.reconcile("ann")
            try await world.inject(#"{"latency":"50ms"}"#)
            try await world.working {
                try await world.working {
                    try await world.waitUntil(
                        """
                        SELECT (count(*) = 2)::int::bigint FROM entitlement_sync.job_status
                         WHERE user_id = 'ann' AND state = 'done'
                        """
                    )
                }
            }
            #expect(try await world.status(restore).outcome == "restored")
            #expect(try await world.status(reconcile).outcome == "unchanged")
            let overlap = try await world.number(
                """
                SELECT count(*) FROM entitlement_sync.observation AS o
                  JOIN entitlement_sync.decision AS d ON d.job_id <> o.job_id
                 WHERE o.asked_at < d.at AND d.id < (SELECT x.id FROM entitlement_sync.decision AS x WHERE x.job_id = o.job_id)
                """
            )
            #expect(overlap == 0, "the second read began before the first decision")
        }
    }

    @Test func `As many users as a worker has places are held by the host, and another user is answered`() async throws
    {
        let held = (1...8).map { "held-\($0)" }
        let customers = (held + ["ann"]).map { "{id: \"\($0)\", state: active}" }
        try await World.with(customers: customers) { world in
            for user in held + ["ann"] { try await world.add(user) }
            try await world.pool.withConnection { host in
                try await host.execute(script: "BEGIN; SELECT 1 FROM users WHERE id LIKE 'held-%' FOR UPDATE")
                var jobs: [UUID] = []
                for user in held { jobs.append(try await world.restore(user)) }
                try await world.working(WorkerSetup(concurrency: 8)) {
                    try await world.waitUntil(
                        "SELECT (count(*) = 8)::int FROM entitlement_sync.queue AS q WHERE q.owner IS NOT NULL"
                    )
                    let other = try await world.restore("ann")
                    try await world.waitUntil(
                        "SELECT count(*) FROM entitlement_sync.job_history WHERE id = \(other) AND state = 'done'",
                        comment: "nobody else was answered"
                    )
                    try await host.execute(script: "COMMIT")
                    try await world.waitUntil(
                        "SELECT (count(*) = 9)::int FROM entitlement_sync.job_history WHERE state = 'done'"
                    )
                }
                for job in jobs { #expect(try await world.status(job).outcome == "restored") }
            }
        }
    }

    @Test func `A host that asks for a restore of a user whom it holds waits for no batch`() async throws {
        try await World.with(customers: ["{id: ann, state: active}", "{id: bob, state: active}"]) { world in
            for user in ["ann", "bob"] { try await world.add(user) }
            // The host's own trigger takes a lock that its transaction holds already.
            try await world.pool.withConnection { connection in
                try await connection.execute(
                    script: """
                        CREATE FUNCTION note_team() RETURNS trigger LANGUAGE plpgsql AS
                            $$ BEGIN PERFORM pg_advisory_xact_lock(77); RETURN NEW; END $$;
                        CREATE TRIGGER note_team BEFORE UPDATE OF type ON users
                            FOR EACH ROW EXECUTE FUNCTION note_team();
                        """
                )
            }
            for user in ["ann", "bob"] { _ = try await world.restore(user) }
            try await world.pool.withConnection { host in
                try await host.execute(
                    script:
                        "BEGIN; SELECT pg_advisory_xact_lock(77); UPDATE users SET updated_at = now() WHERE id = 'ann'"
                )
                try await world.working {
                    // Bob is being promoted, in the batch that ann's job came with.
                    try await world.waitUntil(
                        "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = 77 AND NOT granted"
                    )
                    try await host.execute(
                        script: """
                            SET LOCAL lock_timeout = '20s'; SELECT entitlement_sync.request_restore('ann'); COMMIT
                            """
                    )
                    try await world.waitUntil(
                        """
                        SELECT (count(*) = 2)::int::bigint FROM entitlement_sync.job_status AS s
                         WHERE s.state = 'done' AND s.outcome = 'restored'
                        """
                    )
                }
            }
        }
    }

    @Test func `86: a lapse while assets are still coming back wins; they end frozen`() async throws {
        try await World.with(customers: ["{id: ann, state: active}"]) { world in
            try await world.add("ann")
            try await world.addAssets(60, of: "ann", frozenFor: ["subscription_lapsed"])
            let restore = try await world.restore("ann")
            try await world.pool.withTransaction { host in
                // While the host holds one asset the run cannot end.
                try await host.query("SELECT id FROM assets WHERE user_id = 'ann' ORDER BY id DESC LIMIT 1 FOR UPDATE")
                try await world.working(smallBatches) {
                    try await world.waitUntil(
                        "SELECT (count(*) = 59)::int::bigint FROM assets WHERE frozen_reasons = '{}'",
                        comment: "the other assets did not come back"
                    )
                    try await world.change("ann", #"{"state":"expired"}"#)
                    let reconcile = try await world.reconcile("ann")
                    try await world.waitUntil(
                        "SELECT count(*) FROM entitlement_sync.job_status WHERE id = \(reconcile) AND state = 'done'"
                    )
                    #expect(try await world.status(reconcile).outcome == "demoted")
                }
            }
            try await world.work(smallBatches)
            #expect(try await world.status(restore).messageKey == "restored.assets_pending")
            #expect(try await world.type(of: "ann") == "free")
            #expect(try await world.assets(of: "ann", frozenFor: ["subscription_lapsed"]) == 60)
        }
    }

    @Test func `87: a restore while assets still freeze wins; they end free`() async throws {
        try await World.with(customers: ["{id: ann, state: active}"]) { world in
            try await world.add("ann")
            try await world.addAssets(60, of: "ann", frozenFor: [])
            #expect(try await world.reconciled("ann").outcome == "promoted")
            try await world.change("ann", #"{"state":"expired"}"#)
            let reconcile = try await world.reconcile("ann")
            try await world.pool.withTransaction { host in
                try await host.query("SELECT id FROM assets WHERE user_id = 'ann' ORDER BY id DESC LIMIT 1 FOR UPDATE")
                try await world.working(smallBatches) {
                    try await world.waitUntil(
                        "SELECT (count(*) = 59)::int::bigint FROM assets WHERE frozen_reasons = '{subscription_lapsed}'"
                    )
                    try await world.change("ann", #"{"state":"active"}"#)
                    let restore = try await world.restore("ann")
                    try await world.waitUntil(
                        "SELECT count(*) FROM entitlement_sync.job_status WHERE id = \(restore) AND outcome = 'restored'"
                    )
                }
            }
            try await world.work(smallBatches)
            #expect(try await world.status(reconcile).outcome == "demoted")
            #expect(try await world.type(of: "ann") == "subscriber")
            #expect(try await world.assets(of: "ann", frozenFor: []) == 60)
        }
    }

    @Test func `129: an asset that moves to somebody else, or goes, during the run is left alone`() async throws {
        try await World.with(customers: ["{id: ann, state: active}"]) { world in
            for user in ["ann", "bob"] { try await world.add(user) }
            try await world.addAssets(30, of: "ann", frozenFor: ["subscription_lapsed"])
            let restore = try await world.restore("ann")
            try await world.working(smallBatches) {
                try await world.pool.withTransaction { host in
                    try await host.query("UPDATE assets SET user_id = 'bob' WHERE id = 29")
                    try await host.query("DELETE FROM assets WHERE id = 30")
                    try await world.waitUntil(
                        "SELECT (count(*) = 28)::int::bigint FROM assets WHERE user_id = 'ann' AND frozen_reasons = '{}'"
                    )
                }
            }
            try await world.work(smallBatches)
            #expect(try await world.status(restore).outcome == "restored")
            #expect(try await world.assets(of: "bob", frozenFor: ["subscription_lapsed"]) == 1)
            #expect(try await world.assets(of: "ann", frozenFor: []) == 28)
        }
    }

    @Test func `83: who is banned while assets are still coming back keeps those that are frozen`() async throws {
        try await World.with(customers: ["{id: ann, state: active}"]) { world in
            try await world.add("ann")
            try await world.addAssets(30, of: "ann", frozenFor: ["subscription_lapsed"])
            _ = try await world.restore("ann")
            try await world.pool.withTransaction { host in
                // While the host holds one asset the run cannot end.
                try await host.query("SELECT id FROM assets WHERE user_id = 'ann' ORDER BY id DESC LIMIT 1 FOR UPDATE")
                try await world.working(smallBatches) {
                    try await world.waitUntil(
                        "SELECT (count(*) = 29)::int::bigint FROM assets WHERE frozen_reasons = '{}'"
                    )
                }
                try await world.pool.query("UPDATE users SET status = 'banned' WHERE id = 'ann'")
            }
            try await world.work(smallBatches)
            #expect(try await world.assets(of: "ann", frozenFor: ["subscription_lapsed"]) == 1)
        }
    }

    @Test func `83: who is being banned when the verdict is written gains nothing`() async throws {
        try await World.with(customers: ["{id: ann, state: active}", "{id: bob, state: active}"]) { world in
            for user in ["ann", "bob"] { try await world.add(user) }
            let job = try await world.restore("ann")
            try await world.pool.withTransaction { host in
                try await host.query("UPDATE users SET status = 'banned' WHERE id = 'ann'")
                try await world.working {
                    try await world.waitUntil("SELECT count(*) FROM entitlement_sync.queue WHERE owner IS NOT NULL")
                    // Once bob, who came later, has his answer, the verdict about ann has been tried.
                    let later = try await world.restore("bob")
                    try await world.waitUntil(
                        "SELECT count(*) FROM entitlement_sync.job_status WHERE id = \(later) AND state = 'done'"
                    )
                    try await host.query("COMMIT AND CHAIN")
                    try await world.waitUntil(
                        "SELECT count(*) FROM entitlement_sync.job_status WHERE id = \(job) AND state = 'done'"
                    )
                }
            }
            #expect(try await world.status(job).outcome == "not_eligible")
            #expect(try await world.type(of: "ann") == "free")
        }
    }

    @Test func `L1: two writers who find a purchase unknown at the same moment end in one row`() async throws {
        let item = #"[{"state":"active","id":"sub_both","store_subscription_identifier":"200000070000001"}]"#
        try await World.with(customers: ["{id: old, state: none}", "{id: new, state: none}"]) { world in
            for user in ["old", "new"] {
                try await world.add(user)
                try await world.change(user, #"{"subscriptions":\#(item)}"#)
            }
            #expect(try await world.restored("old").outcome == "restored")
            // The other writer's names, taken back so that they can be on their way when the worker looks.
            try await world.pool.query("CREATE TABLE names AS SELECT * FROM entitlement_sync.purchase_identifier")
            try await world.pool.query("DELETE FROM entitlement_sync.purchase_identifier")
            try await world.pool.withTransaction { host in
                try await host.query("INSERT INTO entitlement_sync.purchase_identifier SELECT * FROM names")
                let job = try await world.restore("new")
                try await world.working {
                    try await world.waitUntilBlocked("the worker did not meet the other writer")
                    try await host.query("COMMIT AND CHAIN")
                    try await world.waitUntil(
                        "SELECT count(*) FROM entitlement_sync.job_status WHERE id = \(job) AND state = 'done'"
                    )
                }
            }
            #expect(try await world.number("SELECT count(*) FROM entitlement_sync.purchase") == 1)
            // The reconcile that follows may have had its turn already.
            #expect(try await world.decisions(about: "new").map(\.rule).first == "owner_followed_revenuecat")
        }
    }

    @Test func `What a host's trigger asks for while a verdict is written has its turn afterwards`() async throws {
        try await World.with(customers: ["{id: ann, state: active}"]) { world in
            try await world.add("ann")
            try await world.pool.withConnection { connection in
                try await connection.execute(
                    script: """
                        CREATE FUNCTION look_again() RETURNS trigger LANGUAGE plpgsql AS
                            $$ BEGIN PERFORM entitlement_sync.request_reconcile(NEW.id); RETURN NEW; END $$;
                        CREATE TRIGGER look_again AFTER UPDATE OF type ON users FOR EACH ROW EXECUTE FUNCTION look_again();
                        """
                )
            }
            #expect(try await world.restored("ann").outcome == "restored")
            let ended = "SELECT kind || ' ' || outcome FROM entitlement_sync.job_status WHERE state = 'done' ORDER BY 1"
            let jobs = try await world.pool.query(PostgresQuery(rawSQL: ended)).map { try $0.decode(String.self) }
            #expect(jobs == ["reconcile unchanged", "restore restored"])
            #expect(try await world.number("SELECT count(*) FROM entitlement_sync.queue") == 0)
        }
    }

    @Test(.timeLimit(.minutes(2)))
    func `37, 82: a verdict on a reading that is older than what others wrote is not written`() async throws {
        let users = ["ann", "bob"]
        try await World.with(customers: users.map { "{id: \($0), state: active}" }) { world in
            for user in users {
                try await world.add(user)
                #expect(try await world.reconciled(user).outcome == "promoted")
                try await world.change(user, #"{"state":"expired"}"#)
            }
            let asked = try await world.storeRequests(for: "ann")
            var jobs: [UUID] = []
            for user in users { jobs.append(try await world.reconcile(user)) }
            try await world.pool.withTransaction { [jobs] host in
                // While the host holds them, what was read waits to be written.
                try await host.query("SELECT id FROM users ORDER BY id FOR UPDATE")
                try await world.working {
                    for user in users {
                        try await eventually("the store is not asked") {
                            try await world.storeRequests(for: user) != asked
                        }
                    }
                    // Another worker has read both meanwhile: ann as a whole, of bob one purchase.
                    try await world.pool.query(
                        "UPDATE entitlement_sync.user_sync SET read_at = clock_timestamp() WHERE user_id = 'ann'"
                    )
                    try await world.pool.query(
                        """
                        UPDATE entitlement_sync.purchase AS p SET observed_at = clock_timestamp()
                          FROM entitlement_sync.user_sync AS u WHERE u.user_key = p.owner_key AND u.user_id = 'bob'
                        """
                    )
                    try await world.change("ann", #"{"state":"active"}"#)
                    try await host.query("COMMIT AND CHAIN")
                    for job in jobs {
                        try await world.waitUntil(
                            "SELECT count(*) FROM entitlement_sync.job_status WHERE id = \(job) AND state = 'done'"
                        )
                    }
                }
            }
            for (user, job) in zip(users, jobs) {
                #expect(try await world.status(job).outcome == "unchanged")
                #expect(try await world.type(of: user) == "subscriber")
                #expect(try await world.decisions(about: user).map(\.outcome) == ["promoted", "unchanged"])
            }
            #expect(try await world.storeRequests(for: "ann") >= asked + 2, "the old reading is planned anew")
        }
    }

    @Test func `169: what others' transactions undo is done again as a whole, a bounded number of times at once`()
        async throws
    {
        try await World.with(customers: ["{id: ann, state: active}"]) { world in
            try await world.add("ann")
            try await world.addAssets(3, of: "ann", frozenFor: ["subscription_lapsed"])
            // A sequence stays where it is whatever becomes of the transaction: it counts the tries, and their times.
            try await world.pool.withConnection { connection in
                try await connection.execute(
                    script: """
                        CREATE SEQUENCE tries; CREATE SEQUENCE sixth; CREATE SEQUENCE seventh;
                        CREATE FUNCTION conflict() RETURNS trigger LANGUAGE plpgsql AS $$
                        DECLARE try integer := nextval('public.tries');
                        BEGIN
                            IF try IN (6, 7) THEN
                                PERFORM setval(CASE try WHEN 6 THEN 'public.sixth' ELSE 'public.seventh' END::regclass,
                                               (extract(epoch FROM clock_timestamp()) * 1000)::bigint);
                            END IF;
                            IF try < 9 THEN
                                RAISE EXCEPTION 'not now'
                                    USING ERRCODE = CASE try % 2 WHEN 0 THEN '40001' ELSE '40P01' END;
                            END IF;
                            RETURN NEW;
                        END $$;
                        CREATE TRIGGER conflict BEFORE UPDATE ON users FOR EACH ROW EXECUTE FUNCTION conflict();
                        """
                )
            }
            let job = try await world.restored("ann")
            #expect(job.outcome == "restored" && job.attempt == 0)
            #expect(try await world.number("SELECT t.last_value FROM tries AS t") == 9)
            let pause = try await world.number("SELECT b.last_value - a.last_value FROM sixth AS a, seventh AS b")
            #expect(pause >= 250, "after six tries it is left alone for a moment")
            #expect(try await world.assets(of: "ann", frozenFor: []) == 3)
            #expect(try await world.decisions(about: "ann").map(\.assetsChanged) == [3])
            #expect(try await world.number("SELECT count(*) FROM entitlement_sync.observation") == 1)
        }
    }

    @Test func `134: a user who flaps within a day is an alarm`() async throws {
        try await World.with(customers: ["{id: ann, state: active}"]) { world in
            try await world.add("ann")
            for state in ["active", "expired", "active", "expired"] {
                try await world.change("ann", "{\"state\":\"\(state)\"}")
                _ = try await world.reconciled("ann")
            }
            #expect(try await world.alarms().isEmpty)
            try await world.change("ann", #"{"state":"active"}"#)
            #expect(try await world.reconciled("ann").outcome == "promoted", "the store's word counts all the same")
            #expect(try await world.alarms() == ["flapping"])
        }
    }
}
