import Foundation
import Postgres
import TestSupport
import Testing

/// The lines that operators build their alerts on.
struct LogTests {
    private static let scenario =
        """
        generate:
          - {id: "user-{n}", count: 99, state: active}
          - {id: "down-{n}", count: 99, state: active}
        customers: [{id: locked-out, state: active}]
        faults:
          - {customer: locked-out, status: 401}

        """ + (1...99).map { "  - {customer: down-\($0), status: 503}\n" }.joined()

    private static let load = """
        INSERT INTO users (id) SELECT 'user-' || n FROM generate_series(1, 9) AS n;
        INSERT INTO users (id) SELECT 'down-' || n FROM generate_series(1, 99) AS n;
        INSERT INTO users (id) VALUES ('locked-out');
        """

    @Test("Leases, rescues, refused writes, alarms, the breaker and the end are told in JSON, each with its keys")
    func lines() async throws {
        let simulator = try await Simulator(scenario: Self.scenario)
        let settings = ["JOB_LEASE_SECONDS": "5", "JOB_MAX_ATTEMPTS": "20", "LOG_LEVEL": "info"]
        try await Site.with(store: simulator.url, settings: settings) { site in
            try await site.execute(Self.load)
            let worker = try await MeteredWorker(of: site)
            let working = try await worker.line(saying: "working")
            #expect(Set(working.keys) == ["time", "level", "logger", "message", "worker.epoch"])
            let epoch = try #require(working["worker.epoch"])

            try await site.execute("UPDATE entitlement_sync.worker AS w SET expires_at = '-infinity'")
            let lost = try await worker.line(saying: "the lease has ended")
            #expect(lost["level"] == "warning" && lost["worker.epoch"] == epoch)
            try await worker.line(saying: "working") { $0["worker.epoch"] != epoch }

            try await site.execute(
                """
                BEGIN;
                INSERT INTO entitlement_sync.worker (epoch, host, pid, version, expires_at)
                VALUES (2000000000, 'gone', 1, 'none', '-infinity');
                SELECT entitlement_sync.request_restore('user-1');
                UPDATE entitlement_sync.queue AS q SET owner = 2000000000, active = 0;
                COMMIT;
                """
            )
            let freed = try await worker.line(saying: "jobs of a dead worker were freed")
            #expect(freed["level"] == "warning" && freed["jobs"] == "1")

            try await Self.refuseWrites(at: site, worker)

            try await site.execute("SELECT entitlement_sync.request_restore('locked-out')")
            let alarm = try await worker.line(saying: "an alarm was raised")
            #expect(alarm["level"] == "error" && alarm["alarm.name"] == "credentials")
            let refused = try await worker.line(saying: "store gave no usable answer")
            #expect(refused["store"] == "revenuecat" && refused["error.code"] == "unauthorized")
            #expect(refused["http.status"] == "401" && refused["http.endpoint"]?.hasPrefix("/projects/") == true)

            try await site.execute(
                "SELECT count(entitlement_sync.request_restore(u.id)) FROM users AS u WHERE u.id LIKE 'down-%'"
            )
            let opened = try await worker.line(saying: "circuit breaker opened")
            #expect(opened["level"] == "warning" && opened["store"] == "revenuecat")
            #expect(opened["error.code"] == "unavailable" && opened["breaker.failures"].flatMap { Int($0) } ?? 0 >= 50)
            #expect(opened["breaker.pause_ms"].flatMap { Double($0) } ?? 0 >= 500)
            try await simulator.heal()
            let closed = try await worker.line(saying: "circuit breaker closed")
            #expect(closed["level"] == "notice" && closed["store"] == "revenuecat")

            let ending = try await worker.stop()
            let lines = try ending.err.split(separator: "\n").map { try MeteredWorker.fields(of: String($0)) }
            let draining = try #require(lines.first { $0["message"]?.hasPrefix("draining") == true })
            #expect(draining["level"] == "info" && draining["jobs.in_flight"].flatMap { Int($0) } != nil)
            let stopped = try #require(lines.first { $0["message"]?.hasPrefix("stopped") == true })
            #expect(stopped["level"] == "info" && stopped["worker.epoch"] != nil)
            // One alarm is one line, however many batches raised it.
            #expect(lines.count { $0["alarm.name"] == "credentials" } == 1)
            for line in lines {
                #expect(line.keys.allSatisfy { $0.wholeMatch(of: /[a-z_]+(\.[a-z_]+)*/) != nil }, "\(line)")
            }
        }
    }

    /// Has the host's database refuse a batch for a reason that passes.
    private static func refuseWrites(at site: Site, _ worker: MeteredWorker) async throws {
        try await site.execute(
            """
            CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
            BEGIN RAISE EXCEPTION USING ERRCODE = '40001', MESSAGE = 'not now'; END $$;
            CREATE TRIGGER refuse BEFORE UPDATE ON users FOR EACH ROW EXECUTE FUNCTION refuse();
            SELECT entitlement_sync.request_restore('user-2');
            """
        )
        let refused = try await worker.line(saying: "a batch could not be written")
        #expect(refused["level"] == "warning" && refused["error.code"] == "serverError")
        #expect(refused["error.sqlstate"] == "40001" && refused["error.message"]?.isEmpty == false)
        try await site.execute("DROP TRIGGER refuse ON users")
        try await site.waitUntil("SELECT count(*) FROM users AS u WHERE u.id = 'user-2' AND u.type = 'subscriber'")
    }
}
