import Diagnostics
import Foundation
import HTTPTypes
import Postgres
import TestSupport
import Testing

/// What real workers go through while their metrics are read.
enum Scenes {
    /// All that was scraped.
    static let scrapes = Task { () throws -> [Exposition] in
        async let worked = work()
        async let limited = limits()
        async let down = outage()
        async let asked = direct()
        async let served = endpoints()
        async let several = apps()
        return try await worked + limited + down + asked + served + several
    }

    // MARK: Several apps

    private static func apps() async throws -> [Exposition] {
        let scrapes = Slot<[Exposition]>()
        try await AppsSite.with(["games", "golf"]) { site in
            try site.write("golf", changing: ["MODE": "sometimes"])
            let endpoint = try await site.open("serve")
            try await site.untilReady(endpoint) { $0.status == 200 && $0.text.contains("app golf") }
            let text = try await site.endpoints.transport.ask(.get, "/metrics", at: endpoint.adminPort).text
            scrapes.value = [try Exposition(text)]
            try await endpoint.close()
        }
        return try #require(scrapes.value)
    }

    // MARK: The work

    private static let scenario = """
        customers:
          - {id: payer, state: active}
          - {id: other-payer, state: active}
          - {id: stale-payer, state: active}
          - {id: sub, state: unknown}
          - {id: gone, state: expired}
          - {id: banned, state: active}
          - {id: shaky, state: active}
          - {id: held, state: active}
          - {id: canceled, state: active}
          - {id: stolen, state: active}
          - {id: alone, state: active}
          - {id: orphan, state: active}
          - {id: r-payer, state: active}
          - {id: r-sub, state: active}
          - {id: r-gone, state: expired}
        faults:
          - {customer: shaky, status: 503, times: 1}
          - {customer: broken, status: 500}
          - {customer: r-broken, status: 500}
          - {customer: canceled, latency: 3s}
          - {customer: stolen, latency: 3s}
        """

    private static let load = """
        INSERT INTO users (id, type, status)
        SELECT u, CASE WHEN u IN ('sub', 'gone', 'r-sub', 'r-gone', 'r-left') THEN 'subscriber' ELSE 'free' END,
               CASE WHEN u LIKE '%banned' THEN 'banned' ELSE 'active' END
          FROM unnest('{payer,other-payer,stale-payer,sub,gone,banned,shaky,held,canceled,stolen,alone,orphan,nobody,
                        claimant,broken,r-payer,r-sub,r-gone,r-left,r-banned,r-broken}'::text[]) AS u;
        INSERT INTO assets (user_id, frozen_reasons, frozen_at)
        VALUES ('payer', '{subscription_lapsed}', now()), ('payer', '{subscription_lapsed}', now()), ('gone', '{}', NULL);
        """

    private static func work() async throws -> [Exposition] {
        let simulator = try await Simulator(scenario: scenario)
        let scrapes = Slot<[Exposition]>()
        let settings = ["JOB_MAX_ATTEMPTS": "2", "JOB_LEASE_SECONDS": "5"]
        try await Site.with(store: simulator.url, settings: settings) { site in
            try await site.execute(load)
            let worker = try await MeteredWorker(of: site)
            try await interrupt(worker, at: site)
            try await answer(at: site)
            let counted = try await worker.scrape(until: "all jobs are counted") { metrics in
                Movement.all.filter { $0.name.contains("jobs_ended") }.allSatisfy { $0.isSeen(in: [metrics]) }
            }
            try await worker.stop()
            try await disturb(site)
            scrapes.value = [counted, try await gauges(of: site)]
        }
        return try #require(scrapes.value)
    }

    /// Everything that takes a job away from a worker.
    private static func interrupt(_ worker: MeteredWorker, at site: Site) async throws {
        try await site.execute(
            """
            SELECT entitlement_sync.request_restore(u) FROM unnest('{canceled,stolen}'::text[]) AS u;
            """
        )
        try await site.waitUntil(
            "SELECT (count(*) = 2)::integer::bigint FROM entitlement_sync.queue AS q WHERE q.owner IS NOT NULL",
            comment: "jobs are not claimed"
        )
        // What `queue cancel` does to a job that runs; a process of its own might come too late.
        try await site.execute(
            """
            UPDATE entitlement_sync.queue AS q SET cancel = true
              FROM entitlement_sync.user_sync AS s WHERE s.user_key = q.user_key AND s.user_id = 'canceled';
            """
        )
        try await site.execute(
            """
            UPDATE entitlement_sync.queue AS q SET owner = NULL, active = NULL
              FROM entitlement_sync.user_sync AS s WHERE s.user_key = q.user_key AND s.user_id = 'stolen'
            """
        )
        try await worker.scrape(until: "the job that was taken away is missed") {
            ($0.value("entitlement_sync_jobs_lost_total") ?? 0) > 0
        }
        // A job under the lease of a worker that is dead already.
        try await site.execute(
            """
            BEGIN;
            INSERT INTO entitlement_sync.worker (epoch, host, pid, version, expires_at)
            VALUES (2000000000, 'gone', 1, 'none', '-infinity');
            SELECT entitlement_sync.request_restore('orphan');
            UPDATE entitlement_sync.queue AS q SET owner = 2000000000, active = 0
              FROM entitlement_sync.user_sync AS s WHERE s.user_key = q.user_key AND s.user_id = 'orphan';
            COMMIT;
            """
        )
        // A row that the host holds for a while.
        try await site.pool.withTransaction { connection in
            try await connection.query("SELECT 1 FROM users AS u WHERE u.id = 'held' FOR UPDATE")
            try await site.execute("SELECT entitlement_sync.request_restore('held')")
            try await worker.scrape(until: "the job of a held user is put off") {
                ($0.value("entitlement_sync_jobs_postponed_total") ?? 0) > 0
            }
        }
        // A service whose step fails.
        let function = "ALTER FUNCTION entitlement_sync"
        try await site.execute("\(function).compact_queue(bigint, integer) RENAME TO compact_queue_away")
        try await worker.scrape(until: "a step fails") {
            ($0.value("entitlement_sync_service_failures_total", ["service": "queue_compactor"]) ?? 0) > 0
        }
        try await site.execute("\(function).compact_queue_away(bigint, integer) RENAME TO compact_queue")
        try await site.execute("UPDATE entitlement_sync.worker AS w SET expires_at = '-infinity'")
        try await worker.scrape(until: "the lease is lost") {
            ($0.value("entitlement_sync_leases_lost_total") ?? 0) > 0
        }
        try await site.waitUntil(
            "SELECT count(*) FROM entitlement_sync.worker AS w WHERE w.expires_at > now()",
            comment: "the worker has no new lease"
        )
    }

    /// One job for every way in which jobs end.
    private static func answer(at site: Site) async throws {
        try await site.execute(
            """
            SELECT entitlement_sync.request_restore(u)
              FROM unnest('{payer,other-payer,stale-payer,sub,gone,banned,shaky,nobody,broken}'::text[]) AS u;
            SELECT entitlement_sync.request_restore('claimant', client_error => 'receipt_already_in_use');
            SELECT entitlement_sync.request_reconcile(u)
              FROM unnest('{r-payer,r-sub,r-gone,r-left,r-banned,r-broken}'::text[]) AS u;
            BEGIN;
            SELECT entitlement_sync.request_restore('alone');
            UPDATE entitlement_sync.queue AS q SET lane = 9
              FROM entitlement_sync.user_sync AS s WHERE s.user_key = q.user_key AND s.user_id = 'alone';
            COMMIT;
            """
        )
        try await site.waitUntil(
            "SELECT (count(*) = 0)::integer::bigint FROM entitlement_sync.queue",
            comment: "jobs do not end"
        )
    }

    /// Breaks a law, has a host drift away, and has somebody look.
    private static func disturb(_ site: Site) async throws {
        try await site.execute(
            """
            ALTER TABLE entitlement_sync.decision DISABLE TRIGGER append_only;
            DELETE FROM entitlement_sync.decision AS d USING entitlement_sync.user_sync AS s
             WHERE s.user_key = d.user_key AND s.user_id = 'shaky';
            UPDATE users SET type = 'subscriber' WHERE id = 'nobody';
            UPDATE users SET type = 'free' WHERE id = 'other-payer';
            UPDATE entitlement_sync.purchase AS p
               SET period_ends_at = now() - interval '3 days', observed_at = now() - interval '5 days'
              FROM entitlement_sync.user_sync AS s WHERE s.user_key = p.owner_key AND s.user_id = 'stale-payer';
            UPDATE entitlement_sync.user_sync AS s SET read_at = now() - interval '5 days' WHERE s.user_id = 'stale-payer';
            DELETE FROM entitlement_sync.invariant_check;
            """
        )
        // What a worker does a minute after its start.
        try await InvariantMonitor(pool: site.pool).run()
    }

    /// What a worker shows of a queue that nobody works off.
    private static func gauges(of site: Site) async throws -> Exposition {
        try await site.execute("UPDATE entitlement_sync.control AS c SET paused = true WHERE c.name = 'all'")
        // Its owners need a lease that lives, so they are the worker's own.
        let worker = try await MeteredWorker(of: site, settings: ["JOB_LEASE_SECONDS": "60"])
        let epoch = try #require(try await worker.line(saying: "working")["worker.epoch"])
        let rows = QueuePlace.all.flatMap { place in
            (1...Int(place.jobs)).map { number -> String in
                let state = place.labels["state"] ?? ""
                let due = state == "delayed" ? "now() + interval '1 hour'" : "now() - interval '1 minute'"
                let key = place.lane * 1000 + (["due": 100, "delayed": 200][state] ?? 300) + number
                return "(\(1_000_000 + key), \(due), \(place.lane), \(state == "running" ? epoch : "NULL"), "
                    + "entitlement_sync.first_id_at(now() - interval '1 hour' - interval '\(key) ms'))"
            }
        }
        try await site.execute(
            """
            INSERT INTO entitlement_sync.queue (user_key, due, lane, owner, restore_id)
            VALUES \(rows.joined(separator: ", "))
            """
        )
        // A run that is halfway, with a part that nobody takes up; one that was stopped; a slot that waits; an alarm.
        try await site.execute(
            """
            INSERT INTO entitlement_sync.run (scope, is_dry, asked_by, is_paged, is_fed, started_at, total, fed, ended, parts, progress)
            SELECT 'all', true, 'test', true, true, now() - interval '1 minute', 100, 100, 60, 1,
                   jsonb_build_array(jsonb_build_object('at', now() - interval '1 minute', 'users', 0),
                                     jsonb_build_object('at', now(), 'users', 60));
            INSERT INTO entitlement_sync.run_part (run_id, number, keys, due)
            SELECT r.id, 1, '{1}', now() + interval '1 hour' FROM entitlement_sync.run AS r;
            INSERT INTO entitlement_sync.run (scope, state, asked_by) VALUES ('since', 'stopped', 'test');
            INSERT INTO entitlement_sync.schedule (name, cron, scope, late_since)
            VALUES ('weekly', '@weekly', 'all', now() - interval '1 hour');
            INSERT INTO entitlement_sync.alarm (name, detail) VALUES ('flapping', 'test') ON CONFLICT (name) DO NOTHING;
            """
        )
        try await site.waitUntil(
            "SELECT count(*) FROM entitlement_sync.run AS r WHERE r.predicted_end IS NOT NULL",
            comment: "nobody predicts the run's end"
        )
        let metrics = try await worker.scrape()
        // They are nobody's jobs, so nobody could end them.
        try await site.execute("DELETE FROM entitlement_sync.queue")
        try await worker.stop()
        return metrics
    }

    // MARK: The stores

    private static func limits() async throws -> [Exposition] {
        let simulator = try await Simulator(
            scenario: """
                customers: [{id: payer, state: active}, {id: limited, state: active}]
                faults: [{customer: limited, status: 429, backoff: 120s}]
                """
        )
        let scrapes = Slot<[Exposition]>()
        let settings = ["REVENUECAT_REQUESTS_PER_MINUTE": "480"]
        try await Site.with(store: simulator.url, settings: settings) { site in
            try await site.execute(
                "INSERT INTO users (id) VALUES ('payer'), ('limited'); SELECT entitlement_sync.request_restore('payer')"
            )
            let worker = try await MeteredWorker(of: site)
            try await site.waitUntil("SELECT count(*) FROM entitlement_sync.decision", comment: "no decision")
            try await site.execute("SELECT entitlement_sync.request_restore('limited')")
            try await site.waitUntil(
                "SELECT count(*) FROM entitlement_sync.rate_budget AS b WHERE b.blocked_until > now()",
                comment: "the store's wish is not written down: \(worker.program.err)"
            )
            // What was spent comes back within a moment; from nothing it takes longer than a scrape.
            try await site.execute(
                "UPDATE entitlement_sync.rate_budget AS b SET tokens = 0, refilled_at = clock_timestamp()"
            )
            try await InvariantMonitor(pool: site.pool).run()
            scrapes.value = [try await worker.scrape()]
            try await worker.stop()
        }
        return try #require(scrapes.value)
    }

    private static func direct() async throws -> [Exposition] {
        let scenario = """
            app_store:
              customers:
                - {id: alice, transactions: [{original: "2000000100000001", transaction: "2000000100000001", product: premium_monthly, expires: +2d}]}
            google_play:
              purchases: [{token: tok-a, state: active, acknowledged: false}]
            onside:
              orders: [{order: 5b0d6f1e-2c77-4c1b-8f9a-0e6a7c1d2b33, account: odile, expires: +2d}]
            """
        let scrapes = Slot<[Exposition]>()
        try await StoreSite.with(scenario: scenario, settings: ["ONSIDE_REQUESTS_PER_MINUTE": "480"]) { stores in
            let site = stores.site
            try await site.execute("INSERT INTO users (id) VALUES ('alice'), ('bob'), ('ann'), ('odile'), ('mallory')")
            let worker = try await MeteredWorker(of: site)
            let good = try stores.argument("storekit_jws", of: "2000000100000001")
            for (user, proof) in [
                ("alice", good), ("bob", try stores.argument("app_receipt", of: "alice")),
                ("mallory", String(good.dropLast(4)) + "AAAA"), ("ann", "purchase_token=tok-a"),
                ("odile", try stores.argument("onside_history", of: "odile")),
            ] {
                let ending = try await site.run("restore", user, "--proof", proof, "--wait", "30")
                try #require(ending.code == 0, "\(ending)")
            }
            try await site.waitUntil("SELECT (count(*) = 0)::integer::bigint FROM entitlement_sync.acknowledgement")
            scrapes.value = [try await worker.scrape()]
            try await worker.stop()
        }
        return try #require(scrapes.value)
    }

    /// An app, a stranger and a store that call the API, and a webhook receiver that does not answer.
    private static func endpoints() async throws -> [Exposition] {
        let scrapes = Slot<[Exposition]>()
        let settings = ["OUTBOX_URL": "http://127.0.0.1:9/changes", "OUTBOX_SECRET": "a-secret-of-sixteen-bytes"]
        try await EndpointSite.with(
            scenario: "customers: [{id: ann, state: active}]\n",
            users: ["ann"],
            settings: settings
        ) { endpoints in
            let endpoint = try await endpoints.open(settings: endpoints.serviceAccount)
            let ann = try await endpoints.caller("ann", at: endpoint)
            _ = try await ann.end(of: try await ann.restore())
            let refused = try await endpoint.ask(.get, "/v1/entitlement")
            #expect(refused.status == 401)
            let event = #"{"event": {"type": "RENEWAL", "app_user_id": "ann"}}"#
            let kept = try await endpoint.post(try await endpoints.webhook("revenuecat", event), to: "revenuecat")
            #expect(kept.status == 200)
            let port = try await endpoint.adminPort
            try await eventually("nothing was looked into or told") {
                let scrape = try Exposition(
                    String(decoding: try await fetch("GET", "/metrics", from: port), as: UTF8.self)
                )
                scrapes.value = [scrape]
                return scrape.value("entitlement_sync_events_examined_total", [:]) ?? 0 > 0
                    && scrape.value("entitlement_sync_outbox_messages_total", ["result": "failed"]) ?? 0 > 0
                    && scrape.value("entitlement_sync_firebase_claims_total", ["result": "written"]) ?? 0 > 0
            }
            try await endpoint.close()
        }
        return try #require(scrapes.value)
    }

    private static func outage() async throws -> [Exposition] {
        let simulator = try await Simulator(scenario: "faults: [{status: 503}]")
        let scrapes = Slot<[Exposition]>()
        try await Site.with(store: simulator.url, settings: ["JOB_MAX_ATTEMPTS": "20"]) { site in
            try await site.execute(
                """
                INSERT INTO users (id) SELECT 'user-' || n FROM generate_series(1, 200) AS n;
                SELECT count(entitlement_sync.request_restore(u.id)) FROM users AS u
                """
            )
            let worker = try await MeteredWorker(of: site)
            try await worker.line(saying: "circuit breaker opened")
            scrapes.value = [try await worker.scrape()]
            try await worker.stop()
        }
        return try #require(scrapes.value)
    }
}
