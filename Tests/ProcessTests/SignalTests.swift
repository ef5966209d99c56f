import Glibc
import Postgres
import TestSupport
import Testing

/// SIGTERM and SIGINT: what an init system and a terminal send.
@Suite(.serialized)
struct SignalTests {
    private static let users = 40
    private static let scenario = """
        generate:
          - {id: "user-{n}", count: 99, state: active}
        faults: [{latency: 30s}]
        """

    @Test(
        "A worker told to stop while the store keeps it waiting ends with 0 within 10 s, and its jobs lose nothing",
        arguments: Profile.cases([("SIGTERM", SIGTERM, true), ("SIGTERM", SIGTERM, false), ("SIGINT", SIGINT, false)])
    )
    func stopsInTime(name: String, number: Int32, untilIdle: Bool) async throws {
        // How long it takes says something only where nobody else keeps the machine.
        try await Turnstile.shared.pass(alone: true) { try await Self.stop(number, untilIdle) }
    }

    private static func stop(_ number: Int32, _ untilIdle: Bool) async throws {
        let simulator = try await Simulator(scenario: Self.scenario)
        try await Site.with(store: simulator.url) { site in
            try await site.execute(
                """
                INSERT INTO users (id) SELECT 'user-' || n FROM generate_series(1, \(Self.users)) AS n;
                SELECT entitlement_sync.request_restore(u.id) FROM users AS u;
                """
            )
            let worker = untilIdle ? try await site.start("worker", "--until-idle") : try await site.start("worker")
            try await site.waitUntil(
                """
                SELECT (count(*) = \(Int64(Self.users)))::integer::bigint FROM entitlement_sync.job_status AS s
                 WHERE s.state = 'running'
                """
            )
            // The call itself is in flight, not only claimed.
            try await eventually("the store was never asked", within: .seconds(10)) {
                try await simulator.requests(for: "user-1") > 0
            }
            let told = ContinuousClock.now
            worker.signal(number)
            let ending = try await worker.ending()
            #expect(ending.code == 0, "\(ending)")
            #expect(ContinuousClock.now - told < .seconds(10))
            #expect(ending.out == "")
            #expect(
                try await site.texts(
                    """
                    SELECT DISTINCT concat_ws(' ', s.state, s.attempt, s.last_error) FROM entitlement_sync.job_status AS s
                    """
                ) == ["queued 0"]
            )
            #expect(
                try await site.number(
                    """
                    SELECT count(*) FROM entitlement_sync.queue AS q
                     WHERE q.owner IS NOT NULL OR q.crashes > 0 OR q.due > now()
                    """
                ) == 0,
                "leases are returned, and the jobs are due"
            )
            #expect(
                try await site.number(
                    "SELECT count(*) FROM entitlement_sync.worker AS w WHERE w.expires_at > now()"
                ) == 0
            )

            try await simulator.heal()
            let next = try await site.run("worker", "--until-idle")
            #expect(next.code == 0, "\(next)")
            #expect(
                try await site.number(
                    "SELECT count(*) FROM users AS u WHERE u.type = 'subscriber'"
                ) == Int64(Self.users)
            )
        }
    }

    @Test("A worker told to stop while its database is away ends with 0 within 10 s")
    func stopsWithoutDatabase() async throws {
        let server = try await PrivatePostgres.start()
        let database = try await server.database(.selling)
        let worker = try await Program(
            [Paths.program, "worker"],
            environment: Site.environment(Site.settings(database.tcpURL))
        )
        try await worker.find("working", within: .seconds(15))
        try await server.stop(immediately: true)
        try await worker.find("trying again", within: .seconds(15))
        let told = ContinuousClock.now
        try await worker.stop()
        #expect(ContinuousClock.now - told < .seconds(10))
    }

    @Test("A simulator told to stop ends with 0 and says nothing", arguments: Profile.cases([SIGTERM, SIGINT]))
    func simulatorStops(number: Int32) async throws {
        let simulator = try await Simulator(scenario: Self.scenario)
        simulator.program.signal(number)
        let ending = try await simulator.program.ending(within: .seconds(10))
        #expect(ending.code == 0, "\(ending)")
        #expect(ending.err == "")
    }
}
