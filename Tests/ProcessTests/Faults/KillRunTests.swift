import Glibc
import Postgres
import TestSupport
import Testing

/// Two workers over a great crowd, killed at random instants.
struct KillRunTests {
    private static let crowd = Crowd(percent: 4500)
    private static let kills = 100

    @Test("166: thousands of restores come out the same, however often workers are killed", .full)
    func killed() async throws {
        let undisturbed = try await Self.alone { try await Undisturbed.record(of: Self.crowd) }
        let simulator = try await Simulator(scenario: Self.crowd.scenario)
        try await Site.with(store: simulator.url, settings: FaultRuns.settings) { site in
            let began = ContinuousClock.now
            let crew = try await Self.alone { try await Self.kill(at: site) }
            // Those whose workers died again and again are run one after the other, which takes minutes and no effort.
            try await Turnstile.shared.pass { try await crew.finish(within: .seconds(600)) }
            #expect(await crew.deaths == Self.kills)
            report("\(Self.crowd.size) restores, \(Self.kills) kills: \(seconds(.now - began)) s")
            try await Record.expectSettled(site)
            let record = try await Record(of: site)
            #expect(record.differences(from: undisturbed) == [])
        }
    }

    /// The store has to keep up with thousands of requests at once: nobody else gets in its way.
    private static func alone<Value: Sendable>(_ body: @Sendable () async throws -> Value) async rethrows -> Value {
        try await Turnstile.shared.pass(alone: true, body)
    }

    /// Kills workers at random instants.
    ///
    /// - Returns: those who are left.
    private static func kill(at site: Site) async throws -> Crew {
        try await site.execute(crowd.load)
        let crew = try await Crew(2, of: site, seed: 20)
        var random = SeededGenerator(seed: 20)
        // By what is done, so that every kill hits work, on a fast machine as on a slow one.
        let goals = (0..<kills).map { _ in
            Int.random(in: crowd.size / 50...crowd.size * 19 / 20, using: &random)
        }
        var hits = 0
        for goal in goals.sorted() {
            try await eventually("\(goal) jobs never ended", within: .seconds(300)) {
                try await site.number("SELECT count(*) FROM entitlement_sync.job_history") >= goal
            }
            // The kill comes at a random instant.
            try await Task.sleep(for: .milliseconds(.random(in: 0...100, using: &random)))
            let before = await crew.pids
            try await crew.killOne()
            let killed = Set(before).subtracting(await crew.pids)
            let held = try await site.number(
                """
                SELECT count(*) FROM entitlement_sync.queue AS q
                  JOIN entitlement_sync.worker AS w ON w.epoch = q.owner
                 WHERE w.pid = ANY (\(Array(killed)))
                """
            )
            if held > 0 { hits += 1 }
        }
        #expect(hits >= kills / 2, "most kills came between two pieces of work")
        return crew
    }
}
