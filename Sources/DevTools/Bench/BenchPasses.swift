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

    /// Measures the planning of checks, the invariants with drift, and the brake's count.
    func measure() async throws -> [BenchMeasurement] {
        let database = try await makeDatabase("walks")
        let result: Result<[BenchMeasurement], any Error>
        do { result = .success(try await measure(on: database)) } catch { result = .failure(error) }
        await Task { await database.drop() }.value
        return try result.get()
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
            let took = try await clock.measure {
                _ = try await checks.planChecks()
            }
            turns.append(took.milliseconds)
        } while try await database.isInRound()
        let watch = InvariantMonitor(pool: database.pool)
        let drift = try await clock.measure { while try await watch.step() {} }
        var counts: [Double] = []
        for _ in 0..<100 {
            let took = try await clock.measure { _ = try await BrakeStore.spent(in: database.pool) }
            counts.append(took.milliseconds)
        }
        let worked = turns.reduce(0, +) / 1000
        let pause = Self.housekeepingPause.milliseconds / 1000
        return [
            // A worker pauses for five seconds after each turn.
            BenchMeasurement(
                name: "round_10M",
                value: (Double(turns.count) * pause + worked) / 60,
                unit: "min",
                below: 30
            ),
            BenchMeasurement(
                name: "round_10M_core",
                value: worked / (Double(turns.count) * pause) * 100,
                unit: "%",
                below: 10
            ),
            BenchMeasurement(name: "round_turn_p99", value: turns.percentile(99), unit: "ms"),
            BenchMeasurement(name: "laws_and_drift_10M", value: drift.milliseconds / 1000, unit: "s", below: 60),
            BenchMeasurement(name: "brake_count_1M", value: counts.percentile(99), unit: "ms", below: 10),
        ]
    }

    private static let housekeepingPause = Duration.seconds(5)
}
