import Foundation
import Postgres
import TestSupport
import Testing

/// Two workers and a process that serves, on a cluster of servers or on one that nothing happens to.
struct FailoverScene: Sendable {
    let endpoints: EndpointSite
    let endpoint: Endpoint
    let workers: [Program]
    let traffic: FailoverTraffic

    var site: Site { endpoints.site }

    private static let settings = [
        "JOB_LEASE_SECONDS": "5", "JOB_MAX_ATTEMPTS": "20", "JOB_BACKOFF_CAP_MS": "500",
        "HTTP_DATABASE_WAIT_SECONDS": "45", "HTTP_MAX_CONNECTIONS_PER_ADDRESS": "4000",
        "BACKGROUND_CHECK_DAYS": "0", "DEMOTION_BRAKE_MINIMUM": "1000000",
    ]

    /// How everything stands in the end; how often something was tried again makes no difference to it.
    struct Ending: Equatable, Sendable {
        var users: [String]
        var assets: [String]
        var purchases: [String]
        var tickets: [String]

        /// The first few lines that only one of the two has.
        func differences(from other: Ending) -> [String] {
            let (mine, theirs) = (
                Set(users + assets + purchases + tickets),
                Set(other.users + other.assets + other.purchases + other.tickets)
            )
            return mine.subtracting(theirs).sorted().prefix(5).map { "only here: \($0)" }
                + theirs.subtracting(mine).sorted().prefix(5).map { "only there: \($0)" }
        }

        init(of site: Site) async throws {
            users = try await site.texts("SELECT concat_ws(' ', u.id, u.type) FROM users AS u ORDER BY 1")
            assets = try await site.texts(
                "SELECT concat_ws(' ', a.user_id, a.frozen_reasons) FROM assets AS a ORDER BY 1"
            )
            purchases = try await site.texts(
                """
                SELECT concat_ws(' ', u.user_id, p.status, p.gives_access) FROM entitlement_sync.purchase AS p
                  JOIN entitlement_sync.user_sync AS u ON u.user_key = p.owner_key ORDER BY 1
                """
            )
            tickets = try await site.texts(
                "SELECT concat_ws(' ', t.user_id, t.kind, t.state) FROM entitlement_sync.ticket_status AS t ORDER BY 1"
            )
        }
    }

    /// Makes a scene, lets a test act in it, and takes it down.
    ///
    /// - Parameters:
    ///   - cluster: where the database is; `nil`: on a server that nothing happens to.
    ///   - traffic: whose users there are.
    ///   - body: the test.
    /// - Throws: what the test threw, or why there is no such scene.
    static func with(
        _ cluster: PatroniCluster?,
        _ traffic: FailoverTraffic,
        _ body: @escaping @Sendable (FailoverScene) async throws -> Void
    ) async throws {
        var address: String?
        if let cluster {
            try await cluster.makeDatabase("app")
            let url = cluster.url(database: "app")
            try await DatabaseTemplate.selling.prepare(url)
            address = url
        }
        try await EndpointSite.with(
            at: address,
            scenario: traffic.scenario,
            users: traffic.users,
            settings: settings
        ) { endpoints in
            try await endpoints.site.execute(
                """
                INSERT INTO assets (user_id, frozen_reasons, frozen_at)
                SELECT u.id, '{subscription_lapsed}', now() FROM users AS u
                """
            )
            // Users are known before anything happens to them.
            try await endpoints.site.execute("SELECT entitlement_sync.request_reconcile(u.id) FROM users AS u")
            let reading = try await endpoints.site.run("worker", "--until-idle", within: .seconds(600))
            #expect(reading.code == 0, "\(reading)")
            let endpoint = try await endpoints.open("serve")
            let workers = [try await endpoints.site.start("worker"), try await endpoints.site.start("worker")]
            let scene = FailoverScene(endpoints: endpoints, endpoint: endpoint, workers: workers, traffic: traffic)
            try await body(scene)
            // They have lived through all of it.
            for worker in workers { try await worker.stop() }
            try await endpoint.close()
        }
    }

    /// How the traffic ends where nothing happens.
    static func undisturbed(_ count: Int, of mix: FailoverTraffic.Mix = .everything) async throws -> Ending {
        let found = Slot<Ending>()
        try await with(nil, FailoverTraffic(count, of: mix, rate: nil)) { scene in
            try await scene.traffic.send(to: scene.endpoint, of: scene.endpoints)
            try await scene.untilAtRest()
            found.value = try await Ending(of: scene.site)
        }
        return try #require(found.value)
    }

    /// Waits until nothing is left to do.
    func untilAtRest() async throws {
        try await eventually("work is left", within: .seconds(180)) {
            let left = try? await site.number(
                """
                SELECT (SELECT count(*) FROM entitlement_sync.queue) + (SELECT count(*) FROM entitlement_sync.asset_run)
                     + (SELECT count(*) FROM entitlement_sync.inbox AS i WHERE i.state = 'queued')
                """
            )
            if left == 0 { return true }
            try await Task.sleep(for: .milliseconds(200))
            return false
        }
    }

    /// What was accepted and is not on record, `most` of it.
    func missing(upTo most: Int = 20) async throws -> [String] {
        try await site.texts(
            """
            SELECT 'job ' || x FROM unnest(\(traffic.acceptedJobs)) AS x
             WHERE NOT EXISTS (SELECT 1 FROM entitlement_sync.job_status AS s WHERE s.id = x)
             UNION ALL
            SELECT 'event ' || x FROM unnest(\(traffic.acceptedEvents)) AS x
             WHERE NOT EXISTS (SELECT 1 FROM entitlement_sync.inbox_log AS i WHERE i.event_id = x)
             UNION ALL
            SELECT 'ticket of ' || x FROM unnest(\(traffic.acceptedClaimants)) AS x
             WHERE NOT EXISTS (SELECT 1 FROM entitlement_sync.ticket_status AS t WHERE t.user_id = x)
             ORDER BY 1 LIMIT \(Int64(most))
            """
        )
    }

    /// Doctor's findings about invariants and about commits.
    func findings() async throws -> [String] {
        let ending = try await site.run("doctor")
        try #require(ending.code == 0 && ending.out.contains("ok  schema: "), "\(ending)")
        return ending.out.split(separator: "\n").filter { $0.hasPrefix("!!") }.map(String.init).filter {
            $0.contains("law.") || $0.contains("commits_") || $0.contains("durability") || $0.contains("paused.")
        }
    }

    /// The memory of the process that serves, in bytes.
    var servingBytes: Int {
        get throws {
            let status = try String(contentsOfFile: "/proc/\(endpoint.program.pid)/status", encoding: .utf8)
            let kilobytes = try #require(status.firstMatch(of: /VmHWM:\s+(\d+) kB/).flatMap { Int($0.1) })
            return kilobytes << 10
        }
    }
}
