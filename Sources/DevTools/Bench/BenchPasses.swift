import Diagnostics
import Logging
import Queue
import Reconciliation
import Runs

/// How long a pass over all known users takes, and a count of a day's demotions.
struct BenchPasses {
    /// Makes a new database whose name ends in the argument.
    let makeDatabase: @Sendable (String) async throws -> BenchDatabase

    /// How many users there are; a fifth pays.
    private static let known = 10_000_000

    /// What a worker pauses for after each turn.
    private static let pause = 5.0

    /// Measures the planning of checks, the invariants with drift, and the brake's count.
    func measure() async throws -> [BenchMeasurement] {
        let database = try await makeDatabase("walks")
        return try await cleaningUp({ await database.drop() }) {
            try await measure(on: database)
        }
    }

    private func measure(on database: BenchDatabase) async throws -> [BenchMeasurement] {
        try await database.loadKnown(Self.known / 5, prefix: "pays-", type: "subscriber")
        try await database.loadKnown(Self.known - Self.known / 5, prefix: "free-", type: "free")
        try await database.loadDemotions(1_000_000)
        try await database.settle()
        let checks = CheckScheduler(
            pool: database.pool,
            background: .seconds(30 * 86_400),
            dequeue: DequeueSignal(),
            logger: Logger(label: "bench")
        )
        let clock = ContinuousClock()
        var turns: [Double] = []
        repeat {
            turns.append(try await clock.measure { _ = try await checks.planChecks() }.milliseconds)
        } while try await database.isInRound()
        let monitor = InvariantMonitor(pool: database.pool)
        let drift = try await clock.measure { while try await monitor.step() {} }
        var counts: [Double] = []
        for _ in 0..<100 {
            counts.append(try await clock.measure { _ = try await BrakeStore.spent(in: database.pool) }.milliseconds)
        }
        let worked = turns.reduce(0, +) / 1000
        let paused = Double(turns.count) * Self.pause
        return [
            BenchMeasurement("round_10M", (paused + worked) / 60, "min", below: 30),
            BenchMeasurement("round_10M_core", worked / paused * 100, "%", below: 10),
            BenchMeasurement("round_turn_p99", turns.percentile(99), "ms"),
            BenchMeasurement("laws_and_drift_10M", drift.milliseconds / 1000, "s", below: 60),
            BenchMeasurement("brake_count_1M", counts.percentile(99), "ms", below: 10),
        ]
    }
}
