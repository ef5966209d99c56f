import Composition
import Configuring
import Entitlements
import Foundation
import Postgres
import Queue
import Runs
import UserRequests

/// What runs over all users cost: planning, a dry run over HTTP by a process of its own, and a run beside restores under a
/// store's limit.
struct BenchRuns {
    let database: BenchDatabase
    let runtime: Runtime
    /// Known users; one in five is a subscriber.
    let users: Int

    /// Requests of a reading: one where RevenueCat shows access, two where it shows none.
    private static let requestsPerUser = 0.2 * 1 + 0.8 * 2
    /// Users whose planning into the queue is measured.
    private static let queued = 100_000

    func measure() async throws -> [BenchMeasurement] {
        let jobs = 20_000
        try await database.load(jobs, prefix: "plain-run-")
        let plain = try await database.plainSQL.run(jobs: jobs)
        try await database.clearUsers()
        let subscribers = users / 5
        try await database.loadKnown(subscribers, prefix: "pays-", type: "subscriber")
        try await database.loadKnown(users - subscribers, prefix: "free-", type: "free")
        try await database.settle()
        return try await planning() + dryRun(plain) + limited()
    }

    private func planning() async throws -> [BenchMeasurement] {
        let lead = Leadership(pool: database.pool, duty: .planner, holder: "bench", duration: .seconds(3600))
        guard let fence = try await lead.take(nil) else {
            throw CommandFailure(.software, "another process plans runs")
        }
        let dry = try await plan(isDry: true, fence: fence, most: users)
        let real = try await plan(isDry: false, fence: fence, most: min(users, Self.queued))
        try await lead.stepDown(fence)
        return [
            BenchMeasurement("run_planned_dry", dry, "us/user"), BenchMeasurement("run_planned", real, "us/user"),
        ]
    }

    /// Plans a run's users, as far as wanted, and cancels it.
    ///
    /// - Returns: microseconds a user, the count of them included.
    private func plan(isDry: Bool, fence: Int64, most: Int) async throws -> Double {
        let planning = RunPlanning(pool: database.pool, brake: runtime.config.brake)
        let run = try await ask(isDry: isDry)
        var fed = 0
        let elapsed = try await ContinuousClock().measure {
            if isDry { while try await planning.count(run, fence: fence) {} }
            while fed < most, let read = try await planning.feed(run, fence: fence, batch: 500), read > 0 {
                fed += read
            }
        }
        guard fed >= most else { throw CommandFailure(.software, "only \(fed) of \(most) users were planned") }
        _ = try await RunRecords(pool: database.pool).cancel(run)
        try await database.clearQueue()
        return elapsed.milliseconds * 1000 / Double(fed)
    }

    private func dryRun(_ plain: Double) async throws -> [BenchMeasurement] {
        let simulator = try SimulatorProcess(prefixes: ["pays-": users / 5], without: ["free-": users - users / 5])
        defer { simulator.stop() }
        let port = try await simulator.port()
        let raw = try await BenchWork(database: database, runtime: runtime, jobs: min(20_000, users - users / 5))
            .rawRate(port, of: "free-")
        return try await working(port, perMinute: 0) { process in
            let run = try await ended(try await ask(isDry: true), within: .seconds(3600))
            guard run.ended == Int64(users), run.outcomes == ["unchanged": Int64(users)], let end = run.endedAt else {
                throw CommandFailure(.software, "the dry run came to \(run.outcomes)")
            }
            let rate = Double(users) / end.timeIntervalSince(run.startedAt ?? run.askedAt)
            let limit = 1 / (1 / plain + Self.requestsPerUser / raw)
            return [
                BenchMeasurement("dry_run_over_http", rate, "users/s", limit: limit, target: 0.5),
                BenchMeasurement("dry_run_memory", try process.peakMemory(), "MiB", below: 150),
            ]
        }
    }

    private func ask(isDry: Bool) async throws -> Int64 {
        guard let run = try await RunRecords(pool: database.pool).ask(.all, isDry: isDry, by: "bench") else {
            throw CommandFailure(.software, "a run goes on")
        }
        return run
    }

    private func ended(
        _ id: Int64,
        within limit: Duration,
        _ meanwhile: (RunRecord) -> Void = { _ in }
    ) async throws -> RunRecord {
        let deadline = ContinuousClock.now + limit
        while let run = try await RunRecords(pool: database.pool).run(id), ContinuousClock.now < deadline {
            guard run.state.isOpen else { return run }
            meanwhile(run)
            try await Task.sleep(for: .milliseconds(500))
        }
        throw CommandFailure(.software, "run \(id) did not end in time")
    }

    /// Requests a minute: ten times those of a real project, so that ten minutes are one.
    private static let perMinute = 4800
    private static let restoresPerSecond = 5
    /// Users who request restores, once each; the run reads them last.
    private static let taps = 1500

    /// A run by two processes under a store's limit, with a restore every 200 ms.
    private func limited() async throws -> [BenchMeasurement] {
        try await database.clearUsers()
        var (paying, others) = (["tap-": Self.taps], [String: Int]())
        // Runs go by id, and a user without purchases costs two requests: as in life, both kinds stand among each other.
        for stretch in 10..<30 {
            try await database.loadKnown(500, prefix: "\(stretch)-pays-", type: "subscriber")
            try await database.loadKnown(100, prefix: "\(stretch)-free-", type: "free")
            (paying["\(stretch)-pays-"], others["\(stretch)-free-"]) = (500, 100)
        }
        try await database.load(Self.taps, prefix: "tap-", queued: false)
        let simulator = try SimulatorProcess(prefixes: paying, without: others, perMinute: Self.perMinute)
        defer { simulator.stop() }
        let port = try await simulator.port()
        return try await working(port, perMinute: Self.perMinute) { _ in
            try await working(port, perMinute: Self.perMinute) { _ in try await sweep(beside: simulator) }
        }
    }

    private func working<Value>(
        _ port: Int,
        perMinute: Int,
        _ body: (BenchProcess) async throws -> Value
    ) async throws -> Value {
        let settings = BenchProcess.revenueCat(port, perMinute: perMinute)
        return try await BenchProcess.running("worker", database, runtime, settings) { process in
            process.discardLog()
            return try await body(process)
        }
    }

    private func sweep(beside simulator: SimulatorProcess) async throws -> [BenchMeasurement] {
        let requests = Requests(pool: database.pool)
        try await Task.sleep(for: .seconds(2))
        let id = try await ask(isDry: false)
        let tapping = Task {
            var taps: [UUID] = []
            while !Task.isCancelled, taps.count < Self.taps {
                do {
                    taps.append(try await requests.restore("tap-\(taps.count + 1)", proofs: "[]", clientError: nil))
                } catch let error as PostgresError where error.code == .cancelled { break }
                try? await Task.sleep(for: .seconds(1) / Self.restoresPerSecond)
            }
            return taps
        }
        var predicted: Date?
        let run = try await cleaningUp({ tapping.cancel() }) {
            try await ended(id, within: .seconds(900)) { run in
                // What it says once a quarter is done.
                guard predicted == nil, let total = run.total, run.ended * 4 >= total else { return }
                predicted = run.predictedEnd
            }
        }
        let taps = try await tapping.value
        try await Task.sleep(for: .seconds(1))
        guard let start = run.startedAt, let end = run.endedAt, let predicted else {
            throw CommandFailure(.software, "the run did not say when it would end")
        }
        let took = end.timeIntervalSince(start)
        let waited = try await database.restoreTimes(taps)
        guard waited.count == taps.count else {
            throw CommandFailure(.software, "\(taps.count - waited.count) restores had no answer")
        }
        let (busiest, refused) = try await simulator.load()
        return [
            BenchMeasurement("limited_run_users", Double(run.ended) / took * 60, "users/min"),
            BenchMeasurement("limited_busiest_minute", Double(busiest), "requests", below: Double(Self.perMinute + 1)),
            BenchMeasurement("limited_refusals", Double(refused), "requests", below: 1),
            BenchMeasurement("restore_p50_beside_run", waited.percentile(50), "ms"),
            BenchMeasurement("restore_p99_beside_run", waited.percentile(99), "ms", below: 100),
            BenchMeasurement("predicted_end_off_by", abs(predicted.timeIntervalSince(end)) / took * 100, "%", below: 5),
        ]
    }
}
