import Foundation
import Postgres
import TestSupport
import Testing

/// Jobs as operators find, read and move them.
struct QueueCommandTests {
    private static let scenario = """
        customers: [{id: stuck, state: active}, {id: other, state: active}, {id: payer, state: active}]
        faults: [{customer: stuck, status: 503}, {customer: other, status: 503}]
        """

    @Test func `A job that waits is listed and explained, and names its reference and error`() async throws {
        let simulator = try await Simulator(scenario: Self.scenario)
        try await Site.with(store: simulator.url) { site in
            try await site.execute(
                """
                INSERT INTO users (id) VALUES ('stuck'), ('payer');
                SELECT entitlement_sync.request_restore('stuck');
                """
            )
            let worker = try await site.start("worker")
            try await site.waitUntil(
                "SELECT count(*) FROM entitlement_sync.job_status AS s WHERE s.last_error IS NOT NULL AND s.state = 'queued'"
            )
            try await worker.stop()
            let list = try await site.run("queue", "list", "--output", "json")
            let jobs = try #require(try JSONSerialization.jsonObject(with: Data(list.out.utf8)) as? [[String: Any]])
            let job = try #require(jobs.first)
            #expect(jobs.count == 1 && job["user_id"] as? String == "stuck" && job["lane"] as? String == "restore")
            #expect(job["last_error"] as? String == "unavailable" && job["state"] as? String == "queued", "\(job)")
            let reference = try #require(job["reference"] as? String)
            let explained = try await site.run("explain", "stuck")
            #expect(explained.out.contains("Job \(reference), a restore, waits: unavailable, "), "\(explained)")
            let canceled = try await site.run("queue", "cancel", reference.lowercased())
            #expect(canceled.code == 0, "\(canceled)")
            #expect(try await site.run("queue", "cancel", "R-0000-00").err.contains("none with this reference"))
        }
    }

    @Test func `Dead jobs are queued again by reference, or all of one error`() async throws {
        let simulator = try await Simulator(scenario: Self.scenario)
        try await Site.with(store: simulator.url, settings: ["JOB_MAX_ATTEMPTS": "1"]) { site in
            try await site.execute(
                """
                INSERT INTO users (id) VALUES ('stuck'), ('other'), ('payer');
                SELECT entitlement_sync.request_restore(u.id) FROM users AS u;
                """
            )
            #expect(try await site.run("worker", "--until-idle").code == 0)
            #expect(try await Self.dead(site).count == 2)
            let doctor = try await site.run("doctor", "--quiet")
            #expect(doctor.out.contains("!!  dead_jobs: ") && !doctor.out.contains("ok  "), "\(doctor)")
            #expect(try await Self.dead(site, "--error", "product_unmapped").isEmpty)
            let dead = try await Self.dead(site, "--error", "unavailable")
            let reference = try #require(dead.first?["reference"] as? String)
            #expect(try await site.run("queue", "retry", reference).code == 0)
            #expect(try await Self.dead(site).count == 1)
            let none = try await site.run("queue", "retry", "--error", "product_unmapped", "--output", "json")
            #expect(none.out == "{\"error\":\"product_unmapped\",\"retried\":0}\n", "\(none)")
            let all = try await site.run("queue", "retry", "--error", "unavailable")
            #expect(all.code == 0 && all.out == "1 job is queued again\n", "\(all)")
            #expect(try await Self.dead(site).isEmpty)
            #expect(try await site.texts("SELECT count(*)::text FROM entitlement_sync.queue") == ["2"])
        }
    }

    private static func dead(_ site: Site, _ words: String...) async throws -> [[String: Any]] {
        let ending = try await Site.run(["queue", "dead", "--output", "json"] + words, settings: site.settings)
        return try #require(try JSONSerialization.jsonObject(with: Data(ending.out.utf8)) as? [[String: Any]])
    }

    @Test func `The script of uninstall gives assets back and leaves nothing behind`() async throws {
        try await Site.with { site in
            try await site.execute(
                """
                INSERT INTO users (id) VALUES ('ann'), ('ben'), ('cid');
                INSERT INTO users (id, status) VALUES ('dan', 'banned');
                -- A page of a thousand users, and one in which no user may have access.
                INSERT INTO users (id) SELECT 'e-' || n FROM generate_series(1, 996) AS n;
                INSERT INTO users (id, status) VALUES ('zed', 'banned');
                INSERT INTO assets (user_id, frozen_reasons, frozen_at)
                SELECT u.id, CASE WHEN n = 1 THEN '{copyright}' ELSE '{subscription_lapsed}' END::text[], now()
                  FROM users AS u, generate_series(1, 3) AS n WHERE u.id IN ('ann', 'ben', 'dan');
                """
            )
            let ending = try await site.run("uninstall", "--dry-run")
            #expect(ending.code == 0 && ending.out.hasPrefix("BEGIN;\n-- 4 assets of 2 users are frozen"), "\(ending)")
            // Other databases of the tests' server use the roles.
            let script = ending.out.split(separator: "\n").filter { !$0.hasPrefix("DROP ROLE") }.joined(separator: "\n")
            #expect(ending.out.contains("DROP ROLE IF EXISTS entitlement_sync_worker;"))
            // Where an asset can't be unfrozen, nothing is dropped.
            try await site.pool.withTransaction { connection in
                try await connection.query("SELECT 1 FROM assets AS a WHERE a.user_id = 'ben' FOR UPDATE")
                await #expect(throws: PostgresError.self) { try await site.execute(script) }
            }
            #expect(try await site.number("SELECT count(*) FROM entitlement_sync.schema_migration") > 0)
            try await site.execute(script)
            let left: PostgresQuery =
                "SELECT count(*)::text FROM pg_namespace AS n WHERE n.nspname LIKE 'entitlement\\_sync%'"
            #expect(try await site.texts(left) == ["0"])
            #expect(
                try await site.texts(
                    "SELECT DISTINCT u.status || ' ' || a.frozen_reasons::text FROM assets AS a JOIN users AS u ON u.id = a.user_id ORDER BY 1"
                ) == ["active {copyright}", "active {}", "banned {copyright}", "banned {subscription_lapsed}"]
            )
        }
    }
}
