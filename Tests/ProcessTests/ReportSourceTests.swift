import DevTools
import Foundation
import Logging
import Postgres
import TestSupport
import Testing
import Transport

/// Reports that are read from a standby.
struct ReportSourceTests {
    private static func with(
        _ body: @Sendable (PrivatePostgres, PrivatePostgres) async throws -> Void
    ) async throws {
        let primary = try await PrivatePostgres.start()
        let standby = try await primary.standby()
        try await body(primary, standby)
        try? await standby.stop(immediately: true)
        try await primary.stop(immediately: true)
    }

    /// Waits until a standby has everything.
    private static func untilReplayed(_ site: Site) async throws {
        try await eventually("the standby does not follow") {
            try await site.number(
                "SELECT count(*) FROM pg_stat_replication AS r WHERE r.replay_lsn >= pg_current_wal_lsn()"
            ) == 1
        }
    }

    @Test func `Explain, shadow, replay and runs read from the standby, say so, and print the same`() async throws {
        try await Self.with { primary, standby in
            let simulator = try await Simulator(scenario: "customers:\n  - {id: payer, state: active}\n")
            try await Site.with(on: primary, store: simulator.url) { site in
                try await site.execute("INSERT INTO users (id) VALUES ('payer')")
                let run = try await site.start("worker")
                #expect(try await site.run("reconcile", "--all", "--wait", "60").code == 0)
                try await run.stop()
                try await Self.untilReplayed(site)
                var far = site
                far.settings["REPORT_DATABASE_URL"] = standby.url(database: try site.database.name, overTCP: true)
                let reports = [
                    ["explain", "payer"], ["explain", "payer", "--at", "2099-01-01"], ["shadow"], ["replay", "--all"],
                    ["runs", "list"], ["runs", "show", "1"], ["runs", "report", "1"],
                ]
                for words in reports {
                    let near = try await Site.run(words, settings: site.settings)
                    let read = try await Site.run(words, settings: far.settings)
                    #expect(near.code == 0 && near.err == "", "\(words): \(near)")
                    // The line of the moment has another moment.
                    let printed = [read, near].map { $0.out.split(separator: "\n").filter { !$0.contains("  now  ") } }
                    #expect(read.code == 0 && printed[0] == printed[1], "\(words): \(read) \(near)")
                    #expect(
                        read.err == "entitlement-sync: read from a standby, less than a second behind\n",
                        "\(words): \(read)"
                    )
                }
                // What has to write goes to the primary.
                let paused = try await far.run("pause", "demotions")
                #expect(paused.code == 0 && paused.err == "", "\(paused)")
                try await standby.stop(immediately: true)
                let gone = try await far.run("explain", "payer")
                #expect(gone.code == 69 && !gone.err.contains("read from"), "\(gone)")
            }
        }
    }

    @Test(.full)
    func `A replay of a million decisions on the standby keeps the primary's restores and queue as they are`()
        async throws
    {
        try await Self.with { primary, standby in
            let names = (1...100).map { "user-\($0)" }
            try await EndpointSite.with(on: primary, scenario: AccessScene.scenario, users: names) { endpoints in
                let site = endpoints.site
                let loading = PostgresPool(
                    configuration: PostgresConfiguration(
                        connectionString: try site.database.url,
                        statementTimeout: nil,
                        maxConnections: 1
                    ),
                    logger: .silent
                )
                try await SampleHistory.load(1_000_000, into: loading)
                await loading.close()
                try await Self.untilReplayed(site)
                var far = site
                far.settings["REPORT_DATABASE_URL"] = standby.url(database: try site.database.name, overTCP: true)
                let endpoint = try await endpoints.open()
                var callers: [Caller] = []
                for name in names { callers.append(try await endpoints.caller(name, at: endpoint)) }
                _ = try await RestorePace.measure(callers, 20, for: 5)
                let alone = try await RestorePace.measure(callers, 20, for: 40)
                let replay = try await far.start("replay", "--all")
                let beside = try await RestorePace.measure(callers, 20, for: 40)
                let goesOn = replay.isRunning
                let queue = try await site.number("SELECT pg_total_relation_size('entitlement_sync.queue')") >> 20
                report(
                    "restore p99 alone \(alone), beside a replay \(beside) (it went on: \(goesOn)); the queue has \(queue) MiB"
                )
                #expect(queue < 50)
                let ending = try await replay.ending(within: .seconds(900))
                #expect(ending.code == 0, "\(ending)")
                report("the replay took \(ending.took)")
                try await endpoint.close()
            }
        }
    }

    @Test
    func `The console's figures, causes, runs and log are read from the standby, or from the primary while it is away`()
        async throws
    {
        try await Self.with { primary, standby in
            try await ConsoleSite.with(on: (primary, standby)) { console in
                let transport = HTTPTransport(configuration: HTTPTransportConfiguration(), logger: .silent)
                var root = ConsoleVisitor(console: console, transport: transport, cookie: nil)
                let answer = try await root.signIn("root", code: console.root.code(later: 1))
                #expect(answer.status == 303, "\(answer)")
                try await Self.untilReplayed(console.site)
                let words = "Read from a standby of the database, less than a second behind."
                for path in ["/console/figures", "/console/causes", "/console/runs", "/console/log"] {
                    let page = try await root.get(path)
                    #expect(page.status == 200 && page.text.contains(words), "\(path): \(page)")
                }
                // What is acted upon is the primary's.
                for path in ["/console", "/console/dead"] {
                    let page = try await root.get(path)
                    #expect(page.status == 200 && !page.text.contains("Read from a standby"), "\(path): \(page)")
                }
                try await standby.stop(immediately: true)
                let page = try await root.get("/console/figures")
                #expect(page.status == 200 && !page.text.contains("Read from a standby"), "\(page)")
                await transport.shutdown()
            }
        }
    }
}
