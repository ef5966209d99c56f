import Composition
import Configuring
import Entitlements
import Foundation
import Postgres
import Queue
import Runs
import UserRequests

/// What runs over everybody cost: planning, a dry run over HTTP by a process of its own, and a run beside restores under a
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

    /// Measures it all.
    func measure() async throws -> [BenchMeasurement] {
        let plain = try await plainSQL()
        let subscribers = users / 5
        try await database.loadKnown(subscribers, prefix: "pays-", type: "subscriber")
        try await database.loadKnown(users - subscribers, prefix: "free-", type: "free")
        try await database.settle()
        var found = try await planning()
        found += try await dryRun(plain)
        return found + (try await limited())
    }

    /// Jobs a second of the write set in plain SQL, for the ratio.
    private func plainSQL() async throws -> Double {
        let jobs = 20_000
        try await database.load(jobs, prefix: "plain-run-")
        let rate = try await database.drainInPlainSQL(jobs)
        try await database.clearUsers()
        return rate
    }

    // MARK: Planning

    private func planning() async throws -> [BenchMeasurement] {
        let lead = Leadership(pool: database.pool, duty: .planner, holder: "bench", duration: .seconds(3600))
        guard let fence = try await lead.take(nil) else { throw CommandFailure(.software, "somebody else plans runs") }
        let dry = try await plan(isDry: true, fence: fence, most: users)
        let real = try await plan(isDry: false, fence: fence, most: min(users, Self.queued))
        try await lead.stepDown(fence)
        return [
            BenchMeasurement(name: "run_planned_dry", value: dry, unit: "us/user"),
            BenchMeasurement(name: "run_planned", value: real, unit: "us/user"),
        ]
    }

    /// Plans a run's users, as far as wanted, and cancels it.
    ///
    /// - Returns: microseconds a user, the count of them included.
    private func plan(isDry: Bool, fence: Int64, most: Int) async throws -> Double {
        let runs = RunRecords(pool: database.pool)
        let planning = RunPlanning(pool: database.pool, brake: runtime.config.brake)
        guard let run = try await runs.ask(.all, isDry: isDry, by: "bench") else {
            throw CommandFailure(.software, "a run goes on")
        }
        var fed = 0
        let elapsed = try await ContinuousClock().measure {
            if isDry { while try await planning.count(run, fence: fence) {} }
            while fed < most, let looked = try await planning.feed(run, fence: fence, batch: 500), looked > 0 {
                fed += looked
            }
        }
        guard fed >= most else { throw CommandFailure(.software, "only \(fed) of \(most) users were planned") }
        _ = try await runs.cancel(run)
        try await database.clearQueue()
        return elapsed.milliseconds * 1000 / Double(fed)
    }

    // MARK: A dry run

    private func dryRun(_ plain: Double) async throws -> [BenchMeasurement] {
        let simulator = try SimulatorProcess(prefixes: ["pays-": users / 5], without: ["free-": users - users / 5])
        defer { simulator.stop() }
        let port = try await simulator.port()
        let raw = try await BenchWork(database: database, runtime: runtime, jobs: min(20_000, users - users / 5))
            .rawRate(port, of: "free-")
        let (process, log) = try worker(port, perMinute: 0).start()
        log.readabilityHandler = { _ = $0.availableData }
        let result: Result<[BenchMeasurement], any Error>
        do {
            let run = try await ended(try await ask(isDry: true), within: .seconds(3600))
            guard run.ended == Int64(users), run.outcomes == ["unchanged": Int64(users)], let end = run.endedAt else {
                throw CommandFailure(.software, "the dry run came to \(run.outcomes)")
            }
            let seconds = end.timeIntervalSince(run.startedAt ?? run.askedAt)
            let limit = 1 / (1 / plain + Self.requestsPerUser / raw)
            let rate = Double(users) / seconds
            result = .success([
                BenchMeasurement(name: "dry_run_over_http", value: rate, unit: "users/s", limit: limit, target: 0.5),
                BenchMeasurement(
                    name: "dry_run_memory",
                    value: try BenchProcess.peakMemory(of: process),
                    unit: "MiB",
                    below: 150
                ),
            ])
        } catch { result = .failure(error) }
        await worker(port, perMinute: 0).stop(process)
        return try result.get()
    }

    private func ask(isDry: Bool) async throws -> Int64 {
        guard let run = try await RunRecords(pool: database.pool).ask(.all, isDry: isDry, by: "bench") else {
            throw CommandFailure(.software, "a run goes on")
        }
        return run
    }

    private func ended(_ id: Int64, within limit: Duration, _ look: (RunRecord) -> Void = { _ in }) async throws
        -> RunRecord
    {
        let deadline = ContinuousClock.now + limit
        while let run = try await RunRecords(pool: database.pool).run(id), ContinuousClock.now < deadline {
            guard run.state.isOpen else { return run }
            look(run)
            try await Task.sleep(for: .milliseconds(500))
        }
        throw CommandFailure(.software, "run \(id) did not end in time")
    }

    // MARK: Under a limit

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
        let program = worker(port, perMinute: Self.perMinute)
        var processes: [Process] = []
        for _ in 0..<2 {
            let (process, log) = try program.start()
            log.readabilityHandler = { _ = $0.availableData }
            processes.append(process)
        }
        let result: Result<[BenchMeasurement], any Error>
        do { result = .success(try await sweep(beside: simulator)) } catch { result = .failure(error) }
        for process in processes { await program.stop(process) }
        return try result.get()
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
        let run: RunRecord
        do {
            run = try await ended(id, within: .seconds(900)) { run in
                // What it says once a quarter is done.
                guard predicted == nil, let total = run.total, run.ended * 4 >= total else { return }
                predicted = run.predictedEnd
            }
        } catch {
            tapping.cancel()
            throw error
        }
        tapping.cancel()
        let taps = try await tapping.value
        try await Task.sleep(for: .seconds(1))
        guard let start = run.startedAt, let end = run.endedAt, let predicted else {
            throw CommandFailure(.software, "nobody said when the run would end")
        }
        let took = end.timeIntervalSince(start)
        let waited = try await database.restoreTimes(taps)
        guard waited.count == taps.count else {
            throw CommandFailure(.software, "\(taps.count - waited.count) restores had no answer")
        }
        let (busiest, refused) = try await simulator.load()
        return [
            BenchMeasurement(name: "limited_run_users", value: Double(run.ended) / took * 60, unit: "users/min"),
            BenchMeasurement(
                name: "limited_busiest_minute",
                value: Double(busiest),
                unit: "requests",
                below: Double(Self.perMinute + 1)
            ),
            BenchMeasurement(name: "limited_refusals", value: Double(refused), unit: "requests", below: 1),
            BenchMeasurement(name: "restore_p50_beside_run", value: waited.percentile(50), unit: "ms"),
            BenchMeasurement(name: "restore_p99_beside_run", value: waited.percentile(99), unit: "ms", below: 100),
            BenchMeasurement(
                name: "predicted_end_off_by",
                value: abs(predicted.timeIntervalSince(end)) / took * 100,
                unit: "%",
                below: 5
            ),
        ]
    }

    private func worker(_ port: Int, perMinute: Int) -> BenchProcess {
        BenchProcess(
            runtime: runtime,
            database: database.name,
            arguments: ["worker"],
            settings: [
                "REVENUECAT_API_KEY": "sk_bench", "REVENUECAT_PROJECT_ID": "projbench",
                "REVENUECAT_BASE_URL": "http://127.0.0.1:\(port)/v2", "REVENUECAT_REQUESTS_PER_MINUTE": "\(perMinute)",
                "LOG_LEVEL": "warning",
            ]
        )
    }
}
