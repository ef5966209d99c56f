import Glibc
import Postgres
import TestSupport
import Testing

/// Stores that fail now and then, and stores that fail altogether.
struct StoreTroubleTests {
    private static let load = """
        INSERT INTO users (id)
        SELECT k || '-' || n FROM (VALUES ('well', 300), ('shaky', 150)) AS kind(k, users), generate_series(1, users) AS n;
        SELECT count(entitlement_sync.request_restore(u.id)) FROM (SELECT id FROM users ORDER BY md5(id)) AS u;
        """
    private static let customers = """
        generate:
          - {id: "well-{n}", count: 999, state: active}
          - {id: "shaky-{n}", count: 999, state: active}

        """

    @Test("A store that fails for a customer here and there is not left alone, however often in all")
    func scatteredFailures() async throws {
        // Where others keep the machine, calls may time out as well.
        try await Turnstile.shared.pass(alone: true) { try await Self.runWithScatteredFailures() }
    }

    private static func runWithScatteredFailures() async throws {
        let faults = (1...150).map { "  - {customer: shaky-\($0), status: 503, times: 1}\n" }.joined()
        let simulator = try await Simulator(scenario: Self.customers + "faults:\n" + faults)
        try await Site.with(store: simulator.url) { site in
            try await site.execute(Self.load)
            let worker = try await site.start("worker", "--until-idle")
            // Sampled while it works: once a job has ended, nothing shows that it was postponed.
            while worker.isRunning {
                let putOff = try await site.number(
                    "SELECT count(*) FROM entitlement_sync.job_status AS s WHERE s.last_error = 'breaker_open'"
                )
                try #require(putOff == 0, "a store that answers was taken for one that is down")
                try await Task.sleep(for: .milliseconds(20))
            }
            let ending = try await worker.ending()
            #expect(ending.code == 0, "\(ending)")
            #expect(
                try await site.texts(
                    "SELECT DISTINCT concat_ws(' ', s.state, s.outcome) FROM entitlement_sync.job_status AS s"
                ) == ["done restored"]
            )
            #expect(
                try await site.number(
                    """
                    SELECT count(*) FROM entitlement_sync.job_status AS s
                     WHERE s.attempt <> (s.user_id LIKE 'shaky-%')::integer
                    """
                ) == 0,
                "nobody paid for the failures of others"
            )
        }
    }

    @Test("A store that is down is left alone, costs no job its attempts, and is asked again when it is back")
    func outage() async throws {
        let simulator = try await Simulator(scenario: Self.customers + "faults: [{status: 503}]\n")
        // The requests in flight when it goes down do count: a few more attempts than those.
        try await Site.with(store: simulator.url, settings: ["JOB_MAX_ATTEMPTS": "20"]) { site in
            try await site.execute(Self.load)
            let worker = try await site.start("worker", "--until-idle")
            try await site.waitUntil(
                """
                SELECT (count(*) = 450)::integer::bigint FROM entitlement_sync.job_status AS s
                 WHERE s.state = 'queued' AND s.last_error = 'breaker_open'
                """
            )
            try await simulator.heal()
            let ending = try await worker.ending(within: .seconds(120))
            #expect(ending.code == 0, "\(ending)")
            #expect(
                try await site.texts(
                    "SELECT DISTINCT concat_ws(' ', s.state, s.outcome) FROM entitlement_sync.job_status AS s"
                ) == ["done restored"]
            )
        }
    }
}
