import Foundation
import Glibc
import HTTPTypes
import Postgres
import TestSupport
import Testing

/// Processes that serve people and are told to stop: everybody gets a whole answer, and nothing is lost.
@Suite(.serialized)
struct ShutdownTests {
    private static let scenario = """
        generate:
          - {id: "user-{n}", count: 20, state: active}
        faults: [{endpoint: subscriptions, latency: 40s}]
        """
    private static let users = (1...20).map { "user-\($0)" }

    @Test func `Told to stop while apps wait, streams are open and calls in flight, it ends with 0 within 10 s`()
        async throws
    {
        // How long it takes says something only where nobody else keeps the machine.
        try await Turnstile.shared.pass(alone: true) { try await Self.stopWhileAppsWait() }
    }

    private static func stopWhileAppsWait() async throws {
        try await EndpointSite.with(scenario: Self.scenario, users: Self.users) { endpoints in
            let site = endpoints.site
            let endpoint = try await endpoints.open()
            var asked: [(caller: Caller, restore: SeenRestore)] = []
            for user in Self.users {
                let caller = try await endpoints.caller(user, at: endpoint)
                let restore = try await caller.restore()
                asked.append((caller, restore))
            }
            try await site.waitUntil(
                """
                SELECT (count(*) = 20)::integer::bigint FROM entitlement_sync.job_status AS s WHERE s.state = 'running'
                """
            )
            // The call itself is in flight, not only claimed.
            try await eventually("the store was never asked") {
                try await endpoints.simulator.requests(for: "user-1") > 0
            }
            let streams = asked.suffix(10).map { $0.caller.events(of: $0.restore) }
            try await eventually("streams never began") { streams.allSatisfy { $0.names.contains("running") } }
            // A connection without a request, and one with half of it.
            async let silent = RawConnection.exchange([], with: endpoint.port, within: .seconds(20))
            let begun = Array("POST /v1/restores HTTP/1.1\r\nHost: test\r\n".utf8)
            async let half = RawConnection.exchange(begun, with: endpoint.port, within: .seconds(20))
            let told = try await withThrowingTaskGroup(of: HTTPAnswer.self) { group in
                for (caller, restore) in asked.prefix(10) {
                    group.addTask { try await caller.ask(.get, restore.path + "?wait=25") }
                }
                // Ten that wait, ten streams and these two; nothing shows that their requests have been read as well.
                try await eventually("nobody waits") { try endpoint.connections >= 22 }
                try await Task.sleep(for: .milliseconds(500))
                try await Self.stop(endpoint)
                return try await group.reduce(into: []) { $0.append($1) }
            }
            #expect(told.count == 10)
            for answer in told {
                let seen: SeenRestore = try answer.decode()
                #expect(answer.status == 200 && seen.outcome == nil, "\(answer)")
                // On a machine that is very busy a call may have lasted as long as any may, and its job waits for another.
                let retried = try await site.texts(
                    """
                    SELECT s.last_error FROM entitlement_sync.job_status AS s
                     WHERE s.id = \(seen.id)::uuid AND s.attempt = 1 AND s.last_error = 'timeout'
                    """
                )
                #expect(seen.state == "running" || seen.state == "queued" && !retried.isEmpty, "\(answer)")
            }
            try await eventually("streams were cut off") { streams.allSatisfy { $0.isWhole } }
            #expect(streams.allSatisfy { $0.names.last == "running" })
            let others = [try await silent, try await half]
            #expect(others.allSatisfy { $0.hasEnded }, "\(others)")

            let states = try await site.texts(
                """
                SELECT DISTINCT concat_ws(' ', s.state, s.attempt, s.last_error) FROM entitlement_sync.job_status AS s
                """
            )
            // On a machine that is very busy a call may have lasted as long as any may.
            #expect(states.allSatisfy { ["queued 0", "queued 1 timeout"].contains($0) }, "\(states)")
            let held = try await site.number(
                """
                SELECT count(*) FROM entitlement_sync.queue AS q
                 WHERE q.owner IS NOT NULL OR q.crashes > 0 OR q.restore_attempt = 0 AND q.due > now()
                """
            )
            #expect(held == 0, "leases are returned, and the jobs are due")
            let leases = try await site.number(
                "SELECT count(*) FROM entitlement_sync.worker AS w WHERE w.expires_at > now()"
            )
            #expect(leases == 0)

            // Whoever comes back finds what was asked for under the same id.
            try await endpoints.simulator.heal()
            let heir = try await endpoints.open()
            for (caller, restore) in asked {
                let again = Caller(endpoint: heir, token: caller.token)
                let end = try await again.end(of: restore)
                #expect(end.id == restore.id && end.outcome == "restored", "\(end)")
            }
            let last = Caller(endpoint: heir, token: asked[19].caller.token)
            let rest = last.events(of: asked[19].restore, ["Last-Event-ID": "running"])
            try await eventually("the stream never ended") { rest.isWhole }
            #expect(rest.names == ["finished"])
            try await heir.close()
        }
    }

    @Test(arguments: Profile.cases([SIGTERM, SIGINT]))
    func `An API without a worker ends as well, and what it accepted is worked off by others`(number: Int32)
        async throws
    {
        let scenario = "customers: [{id: ann, state: active}]\n"
        try await EndpointSite.with(scenario: scenario, users: ["ann"]) { endpoints in
            let endpoint = try await endpoints.open("serve")
            let ann = try await endpoints.caller("ann", at: endpoint)
            let asked = try await ann.restore()
            let stream = ann.events(of: asked)
            try await eventually("the stream never began") { stream.names == ["queued"] }
            async let waiting = ann.ask(.get, asked.path + "?wait=25")
            // Nothing shows that the wait has begun.
            try await Task.sleep(for: .milliseconds(500))
            try await Self.stop(endpoint, by: number)
            let answer = try await waiting
            let seen: SeenRestore = try answer.decode()
            #expect(answer.status == 200 && seen == asked, "\(answer)")
            try await eventually("the stream was cut off") { stream.isWhole }
            #expect(stream.names == ["queued"])
            let ending = try await endpoints.site.run("worker", "--until-idle")
            #expect(ending.code == 0, "\(ending)")
            let told = try await endpoints.site.answer("ann")
            #expect(told == "done restored restored")
        }
    }

    /// Tells a process to stop, and expects that it lets nobody in any more, says nothing to be sorry for and ends.
    private static func stop(_ endpoint: Endpoint, by number: Int32 = SIGTERM) async throws {
        let told = ContinuousClock.now
        endpoint.program.signal(number)
        try await eventually("it still lets people in", within: .seconds(10)) {
            guard endpoint.program.isRunning else { return true }
            let isIn = try await onThread { (try? RawConnection(to: endpoint.port)) != nil }
            return !isIn
        }
        let ending = try await endpoint.program.ending()
        #expect(ending.code == 0, "\(ending)")
        #expect(ContinuousClock.now - told < .seconds(10), "\(ending.took)")
        #expect(ending.out == "")
        let complaints = try endpoint.log.filter { $0["level"] == "error" || $0["level"] == "critical" }
        #expect(complaints == [])
    }
}
