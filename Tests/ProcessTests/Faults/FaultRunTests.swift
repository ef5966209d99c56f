import Glibc
import Postgres
import TestSupport
import Testing

/// Two worker processes at once, and everything that may happen to them: what is left is what an undisturbed run leaves.
struct FaultRunTests {
    /// A store that takes its time, so that work lasts longer than any fault.
    private static let crowd = Profile.isFull ? Crowd(percent: 35, latency: 60) : Crowd(percent: 12, latency: 175)

    @Test(
        "109, 167: a fault that passes changes nothing",
        arguments: Profile.cases(Fault.chosen(Fault.all.dropFirst()))
    )
    func alone(fault: Fault) async throws { try await Self.run(fault, kills: 0) }

    @Test(
        "109, 166, 167: a fault that passes changes nothing, although workers are killed meanwhile",
        arguments: Profile.cases(Fault.chosen(Fault.all.reversed()))
    )
    func withKills(fault: Fault) async throws { try await Self.run(fault, kills: 4) }

    @Test(
        "172: a full disk changes nothing once it has room again",
        .enabled(if: SmallDisk.isAvailable, "only root may mount a small disk"),
        arguments: Profile.cases(Fault.chosen(Fault.disks)),
        Profile.cases([0, 4])
    )
    func fullDisk(fault: Fault, kills: Int) async throws { try await Self.run(fault, kills: kills) }

    private static func run(_ fault: Fault, kills: Int) async throws {
        let undisturbed = try await Undisturbed.record(of: crowd)
        try await Turnstile.shared.pass {
            try await Stage.with(fault.ground, crowd: crowd, settings: try await fault.settings(), seed: UInt64(kills))
            { stage in
                try await stage.untilEnded(Int64(crowd.size / 10))
                // The fault and the first kill find them at work.
                #expect(try await stage.putOff() > crowd.size / 4)
                try await stage.letGo(1..<5)
                try await eventually("nobody took up what was put off") { try await stage.isTakenUp() }
                async let deaths: Void = kill(kills, in: stage)
                try await fault.happen(stage)
                let recovery = try await recovery(stage)
                try await deaths
                try await stage.crew.finish()
                report("\(fault.name)\(kills > 0 ? ", \(kills) kills" : ""): \(recovery)")
                let killed = await stage.crew.deaths
                #expect(killed >= min(kills, 1))
                let said = await stage.crew.log
                #expect(kills > 0 || fault.leftTrace(said), "\(said)")
                try await Record.expectSettled(stage.site)
                let record = try await Record(of: stage.site)
                #expect(record.differences(from: undisturbed, hasTrouble: fault.troublesStore) == [])
            }
        }
    }

    /// Kills workers at instants that are random and the same in each run.
    private static func kill(_ count: Int, in stage: Stage) async throws {
        var random = SeededGenerator(seed: UInt64(count))
        for _ in 0..<count {
            try await Task.sleep(for: .milliseconds(.random(in: 200...1200, using: &random)))
            guard try await stage.crew.killOne() else { return }
        }
    }

    /// How long it takes from the fault's end to the next job that ends.
    private static func recovery(_ stage: Stage) async throws -> String {
        let began = ContinuousClock.now
        let ended = try await back(stage) { try await stage.ended() }
        // Counted apart: letting go may be repeated, its answer may be lost with the connection.
        let putOff = try await back(stage) { try await stage.putOff() }
        #expect(putOff > crowd.size / 20, "workers did what was put off")
        try await back(stage) { try await stage.letGo(0..<1) }
        try await eventually("nothing moves any more", within: .seconds(120)) {
            try await stage.crew.tend()
            // The test's own connections have to come back as well.
            guard let now = try? await stage.ended() else { return false }
            return now > ended
        } saying: {
            await stage.said
        }
        return "\(seconds(.now - began)) s to the next finished job"
    }

    /// What the database says, as soon as it says anything.
    private static func back<Value>(_ stage: Stage, _ ask: () async throws -> Value) async throws -> Value {
        var answer: Value?
        try await eventually("the database stays away") {
            answer = try? await ask()
            return answer != nil
        } saying: {
            await stage.said
        }
        return try #require(answer)
    }
}
