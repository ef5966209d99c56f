import Foundation
import Postgres
import TestSupport
import Testing
import UserRequests

struct RecoveryTests {
    @Test func `166: what a stopped worker left is finished by the next; nothing is lost, one decision a job`()
        async throws
    {
        let users = (1...40).map { "user-\($0)" }
        try await World.with(customers: users.map { "{id: \($0), state: active}" }) { world in
            var setup = WorkerSetup()
            setup.lease = .seconds(2)
            setup.drain = .milliseconds(100)
            var jobs: [UUID] = []
            for user in users {
                try await world.add(user)
                try await world.addAssets(2, of: user, frozenFor: ["subscription_lapsed"])
                jobs.append(try await world.restore(user))
            }
            // Half of the store's answers are so slow that the worker is gone before they come.
            try await world.inject(#"{"every":2,"latency":"2s"}"#)
            try await world.working(setup) {
                try await world.waitUntil("SELECT count(*) FROM users WHERE type = 'subscriber'")
            }
            #expect(try await world.number("SELECT count(*) FROM users WHERE type = 'free'") > 0)
            try await world.heal()
            try await world.work(setup)
            for job in jobs { #expect(try await world.status(job).outcome == "restored") }
            #expect(try await world.number("SELECT count(*) FROM users WHERE type = 'subscriber'") == 40)
            #expect(try await world.number("SELECT count(*) FROM assets WHERE frozen_reasons = '{}'") == 80)
            #expect(try await world.number("SELECT count(*) FROM entitlement_sync.decision") == 40)
            #expect(
                try await world.number("SELECT count(DISTINCT job_id) FROM entitlement_sync.decision") == 40
            )
        }
    }

    @Test func `166: jobs whose worker died are freed once its lease has ended`() async throws {
        try await World.with(customers: ["{id: ann, state: active}"]) { world in
            try await world.add("ann")
            let job = try await world.restore("ann")
            // A process that claimed the job and was killed: its lease is over, the row still names it.
            try await world.pool.query(
                """
                INSERT INTO entitlement_sync.worker (epoch, host, pid, version, expires_at)
                VALUES (100000, 'gone', 1, 'old', now() - interval '1 second')
                """
            )
            try await world.pool.query("UPDATE entitlement_sync.queue SET owner = 100000, active = 0")
            try await world.work()
            #expect(try await world.status(job).outcome == "restored")
            #expect(try await world.decisions(about: "ann").count == 1)
        }
    }

    @Test func `128: a worker that is killed in the middle of very many assets is followed by one that goes on there`()
        async throws
    {
        try await World.with(customers: ["{id: ann, state: active}"]) { world in
            try await world.add("ann")
            try await world.addAssets(5000, of: "ann", frozenFor: ["subscription_lapsed"])
            // Every change is noted; once two batches have followed the verdict's own, the next one waits for the test.
            try await world.pool.withConnection { connection in
                try await connection.execute(
                    script: """
                        CREATE TABLE touched (id bigint);
                        CREATE FUNCTION touch() RETURNS trigger LANGUAGE plpgsql AS
                            $$ BEGIN INSERT INTO public.touched VALUES (NEW.id); RETURN NULL; END $$;
                        CREATE TRIGGER touch AFTER UPDATE ON assets FOR EACH ROW EXECUTE FUNCTION touch();
                        CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS $$
                        BEGIN
                            IF (SELECT count(*) FROM entitlement_sync.asset_batch) = 2 THEN
                                PERFORM pg_advisory_xact_lock(128);
                            END IF;
                            RETURN NULL;
                        END $$;
                        CREATE TRIGGER wait AFTER UPDATE ON assets FOR EACH STATEMENT EXECUTE FUNCTION wait();
                        """
                )
            }
            let job = try await world.restore("ann")
            let waiting: PostgresQuery = """
                SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = 128 AND NOT granted
                """
            try await world.pool.withConnection { test in
                try await test.query("SELECT pg_advisory_lock(128)")
                var setup = WorkerSetup()
                setup.drain = .zero
                try await world.working(setup) {
                    try await world.waitUntil(waiting, comment: "the third batch did not come")
                }
                // As far as the database knows, nobody has left.
                try await world.pool.query(
                    """
                    SELECT pg_terminate_backend(l.pid, 5000) FROM pg_locks AS l
                     WHERE l.locktype = 'advisory' AND l.objid = 128 AND NOT l.granted
                    """
                )
                try await test.query("SELECT pg_advisory_unlock(128)")
            }
            #expect(try await world.status(job).messageKey == "restored.assets_pending")
            #expect(try await world.type(of: "ann") == "subscriber", "before all assets")
            let progress = try await world.number("SELECT r.changed FROM entitlement_sync.asset_run AS r")
            #expect(progress == 3000)
            #expect(try await world.assets(of: "ann", frozenFor: []) == progress, "nothing of the third batch is left")
            try await world.work()
            #expect(try await world.assets(of: "ann", frozenFor: []) == 5000)
            #expect(try await world.number("SELECT count(*) FROM touched") == 5000, "none twice")
            #expect(try await world.decisions(about: "ann").map(\.assetsChanged) == [5000])
            #expect(try await world.number("SELECT count(*) FROM entitlement_sync.asset_run") == 0)
        }
    }

    @Test(.timeLimit(.minutes(2)))
    func `168: on a server that takes no writes nothing is decided; on the primary it is`() async throws {
        let primary = try await PrivatePostgres.start()
        try await World.with(customers: ["{id: ann, state: active}"], on: primary) { world in
            try await world.add("ann")
            let job = try await world.restore("ann")
            // It can be read, whatever is newer elsewhere, and is the first that the worker reaches.
            let standby = try await primary.standby()
            let observer = PostgresConnection(
                configuration: PostgresConfiguration(connectionString: standby.url(database: world.database.name))
            )
            try await observer.open()
            @Sendable func refused() async throws -> Int64 {
                try await observer.query(
                    "SELECT d.xact_rollback FROM pg_stat_database AS d WHERE d.datname = current_database()"
                )[0].decode(Int64.self)
            }
            let before = try await refused()
            var setup = WorkerSetup()
            setup.lease = .seconds(2)
            setup.database = """
                host=127.0.0.1,127.0.0.1 port=\(standby.port),\(primary.port) user=postgres dbname=\(world.database.name)
                """
            try await world.working(setup) {
                try await eventually("the standby refuses nothing") { try await refused() != before }
                #expect(try await world.status(job).state == "queued")
                #expect(try await world.storeRequests(for: "ann") == 0)
                #expect(try await world.type(of: "ann") == "free")
                await observer.close()
                try await standby.stop(immediately: true)
                try await world.waitUntil(
                    "SELECT count(*) FROM entitlement_sync.job_status WHERE id = \(job) AND outcome = 'restored'"
                )
            }
            #expect(try await world.decisions(about: "ann").count == 1)
        }
        try await primary.stop(immediately: true)
    }

    @Test func `two workers side by side decide every job once`() async throws {
        let users = (1...60).map { "user-\($0)" }
        try await World.with(customers: users.map { "{id: \($0), state: active}" }) { world in
            for user in users {
                try await world.add(user)
                _ = try await world.restore(user)
                _ = try await world.reconcile(user)
            }
            async let one: Void = world.work()
            async let other: Void = world.work()
            _ = try await (one, other)
            #expect(try await world.number("SELECT count(*) FROM users WHERE type = 'subscriber'") == 60)
            #expect(try await world.number("SELECT count(*) FROM entitlement_sync.job_decision") == 120)
            let done = try await world.number(
                "SELECT count(*) FROM entitlement_sync.job_status WHERE state = 'done'"
            )
            #expect(done == 120)
        }
    }

    @Test func `a host transaction that holds one user's row stalls nobody else`() async throws {
        try await World.with(customers: ["{id: held, state: active}", "{id: ann, state: active}"]) { world in
            for user in ["held", "ann"] { try await world.add(user) }
            let held = try await world.restore("held")
            let other = try await world.restore("ann")
            // Held before anybody works.
            try await world.pool.withTransaction { connection in
                try await connection.query("SELECT id FROM users WHERE id = 'held' FOR UPDATE")
                try await world.working {
                    try await world.waitUntil(
                        "SELECT count(*) FROM entitlement_sync.job_status WHERE id = \(other) AND outcome = 'restored'",
                        comment: "the other user waits too"
                    )
                    #expect(try await world.status(held).hasEnded == false)
                }
            }
            try await world.working {
                try await world.waitUntil(
                    "SELECT count(*) FROM entitlement_sync.job_status WHERE id = \(held) AND outcome = 'restored'"
                )
            }
            #expect(try await world.decisions(about: "held").count == 1)
        }
    }

    @Test(arguments: ["held", "odd"])
    func `a job that runs alone beside a row that a host holds keeps nobody from being claimed`(
        alone: String
    ) async throws {
        let others = (1...20).map { "user-\($0)" }
        let users = ["held", "odd"] + others
        try await World.with(customers: users.map { "{id: \($0), state: active}" }) { world in
            for user in users { try await world.add(user) }
            let held = try await world.restore("held")
            if alone == "held" { try await world.pool.query("UPDATE entitlement_sync.queue SET lane = 9") }
            try await world.pool.withTransaction { host in
                try await host.query("SELECT id FROM users WHERE id = 'held' FOR UPDATE")
                try await world.working {
                    // Claimed and read by now, and put off.
                    try await world.waitUntil(
                        "SELECT count(*) FROM entitlement_sync.job_status WHERE id = \(held) AND state = 'running'"
                    )
                    if alone == "odd" {
                        let key = try await world.number(
                            "SELECT entitlement_sync.user_key_of('odd')"
                        )
                        try await world.pool.query(
                            """
                            INSERT INTO entitlement_sync.queue (user_key, due, lane, restore_id, restore_due)
                            VALUES (\(key), now(), 9, entitlement_sync.new_id(), now())
                            """
                        )
                    }
                    for _ in 1...2 {
                        for user in others { _ = try await world.restore(user) }
                        try await world.waitUntil(
                            "SELECT (count(*) = 20)::integer::bigint FROM users WHERE id LIKE 'user-%' AND type = 'subscriber'",
                            comment: "others wait too"
                        )
                        // Longer than the two seconds until the worker tries again to run a job alone.
                        try await Task.sleep(for: .milliseconds(2500))
                        try await world.pool.query("UPDATE users SET type = 'free' WHERE id LIKE 'user-%'")
                    }
                    #expect(try await world.status(held).hasEnded == false)
                }
            }
            try await world.work()
            for user in ["held", alone] { #expect(try await world.type(of: user) == "subscriber") }
        }
    }
}
