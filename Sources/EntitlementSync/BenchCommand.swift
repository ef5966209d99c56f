import ArgumentParser
import Bench
import Configuring
import Entitlements
import Foundation
import Logging
import Postgres
import ServiceLifecycle
import Storage
import StoreClients
import SyncWorker
import Transport
import UnixSignals

struct BenchCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "bench",
        abstract: "Measures the worker beside what the same machine does without it."
    )

    @Option(help: "Jobs in each measurement.")
    var jobs = 20_000

    @Flag(help: "Also: memory with 1,000,000 jobs waiting, the queue's size after 1,000,000 jobs.")
    var full = false

    @OptionGroup var options: OutputOptions

    func validate() throws {
        guard (1000...1_000_000).contains(jobs) else { throw ValidationError("--jobs: give 1000 to 1000000") }
    }

    private struct Printed: Encodable {
        var measurements: [Bench.Measurement]
        var settings: String
    }

    func run() async throws {
        try await reporting {
            let runtime = try Runtime(level: .warning)
            let database = try await Self.database(runtime)
            let result: Result<Printed, any Error>
            do {
                result = .success(try await untilSignal { try await measure(database, runtime) })
            } catch {
                result = .failure(error)
            }
            // Also after a signal, when this task is cancelled.
            await Task { await database.drop() }.value
            try print(try result.get())
            return .done
        }
    }

    /// Runs a body that ends at SIGINT and SIGTERM, so that the database and the simulator go with it.
    private func untilSignal<Value: Sendable>(_ body: @escaping @Sendable () async throws -> Value) async throws
        -> Value
    {
        try await withThrowingTaskGroup(of: Value?.self) { group in
            group.addTask {
                for await _ in await UnixSignalsSequence(trapping: [.sigint, .sigterm]) { return nil }
                return nil
            }
            group.addTask { try await body() }
            defer { group.cancelAll() }
            guard let first = try await group.next(), let value = first else {
                throw CommandFailure(.elapsed, "interrupted; nothing is left behind")
            }
            return value
        }
    }

    /// A database of its own on the configured server.
    private static func database(_ runtime: Runtime) async throws -> BenchDatabase {
        let sqlDirectory = try runtime.sqlDirectory()
        do {
            return try await BenchDatabase(
                configuration: runtime.postgres(connections: 1),
                connect: { name in
                    var configuration = runtime.postgres(connections: 8)
                    configuration.sessionSettings["statement_timeout"] = "0"
                    configuration.statementTimeout = nil
                    return configuration.inDatabase(name)
                },
                sqlDirectory: sqlDirectory,
                logger: runtime.logger
            )
        } catch let error as PostgresError where error.sqlState == SQLState.insufficientPrivilege {
            throw CommandFailure(
                .notAllowed,
                "\(error.message); the bench works in a database of its own: connect as a user with CREATEDB"
            )
        }
    }

    private func measure(_ database: BenchDatabase, _ runtime: Runtime) async throws -> Printed {
        var measurements: [Bench.Measurement] = []
        try await database.load(jobs, prefix: "plain-")
        let plain = Double(jobs) / (try await timed { try await database.drainInPlainSQL() })
        measurements.append(Bench.Measurement(name: "plain_sql", value: plain, unit: "jobs/s"))

        try await database.load(jobs, prefix: "memory-")
        let promote = Double(jobs) / (try await timed { try await work(database, runtime, memoryStore()) })
        try await check(database, "memory-")
        measurements.append(
            Bench.Measurement(name: "promote", value: promote, unit: "jobs/s", limit: plain, target: 0.6)
        )

        let simulator = try SimulatorProcess(prefix: "http-", count: jobs)
        defer { simulator.stop() }
        let transport = HTTPTransport(
            configuration: HTTPTransportConfiguration(
                maxConnectionsPerHost: 64,
                maxTotalConnections: 64,
                maxInFlight: 512
            ),
            logger: runtime.logger
        )
        do {
            let port = try await simulator.port()
            let client = RevenueCatClient(
                configuration: try RevenueCatConfiguration(
                    apiKey: "sk_bench",
                    projectID: "projbench",
                    baseURL: "http://127.0.0.1:\(port)/v2"
                ),
                http: StoreHTTP(transport: transport, target: "revenuecat"),
                gate: .open,
                logger: runtime.logger
            )
            let reads = Double(jobs) / (try await timed { await read(jobs, client) })
            measurements.append(Bench.Measurement(name: "store_reads", value: reads, unit: "users/s"))
            try await database.load(jobs, prefix: "http-")
            let reader = RevenueCatReader(
                client: client,
                lookups: UserLookups(pool: database.pool),
                logger: runtime.logger
            )
            let whole = Double(jobs) / (try await timed { try await work(database, runtime, reader.reader) })
            try await check(database, "http-")
            let limit = 1 / (1 / plain + 1 / reads)
            measurements.append(
                Bench.Measurement(name: "end_to_end", value: whole, unit: "jobs/s", limit: limit, target: 0.5)
            )
            measurements += try await prices(client)
            await transport.shutdown()
        } catch {
            await transport.shutdown()
            throw error
        }
        measurements += try await people(database, runtime)
        measurements += try await process(database, runtime, simulator)
        return Printed(measurements: measurements, settings: try await database.settings())
    }

    /// How many requests a user costs: with access, and where everything has to be read.
    private func prices(_ client: RevenueCatClient) async throws -> [Bench.Measurement] {
        func price(_ mayGrant: @escaping @Sendable ([String]) -> Bool) async -> Double {
            let query = CustomerQuery(
                userID: "http-1",
                lane: .sweep,
                sandboxCounts: false,
                mayGrant: mayGrant,
                isOtherUser: { _ in [] }
            )
            return Double(await client.read(query).requests)
        }
        return [
            Bench.Measurement(
                name: "requests_with_access",
                value: await price { _ in true },
                unit: "requests",
                below: 1.1
            ),
            Bench.Measurement(
                name: "requests_full_read",
                value: await price { _ in false },
                unit: "requests",
                below: 2.1
            ),
        ]
    }

    /// What people feel.
    private func people(_ database: BenchDatabase, _ runtime: Runtime) async throws -> [Bench.Measurement] {
        let commit = try await database.commitLatency()
        let people = BenchPeople(
            pool: database.pool,
            listening: runtime.postgres(connections: 1).inDatabase(database.name),
            logger: runtime.logger
        ) { reader, listener in
            try await work(database, runtime, reader, listener: listener)
        }
        try await database.load(200, prefix: "idle-", queued: false)
        let idle = try await people.measure((1...200).map { "idle-\($0)" }, perSecond: 20, storeLatency: .zero)
        try await database.load(5000, prefix: "tap-", queued: false)
        let store = Duration.milliseconds(50)
        let busy = try await people.measure((1...5000).map { "tap-\($0)" }, perSecond: 500, storeLatency: store)
        return [
            Bench.Measurement(name: "commit_p50", value: commit, unit: "ms"),
            Bench.Measurement(name: "idle_pick_up_p50", value: idle.pickUp.percentile(50), unit: "ms", below: 3),
            Bench.Measurement(name: "restore_p50_at_500/s", value: busy.answer.percentile(50), unit: "ms"),
            Bench.Measurement(
                name: "restore_p99_at_500/s",
                value: busy.answer.percentile(99),
                unit: "ms",
                below: store.milliseconds + 10
            ),
        ]
    }

    /// What one process costs.
    private func process(
        _ database: BenchDatabase,
        _ runtime: Runtime,
        _ simulator: SimulatorProcess
    ) async throws -> [Bench.Measurement] {
        let port = try await simulator.port()
        let program = BenchWorkerProcess(runtime: runtime, database: database.name, storePort: port)
        var measurements = [
            Bench.Measurement(name: "start_up", value: try await program.startUp(), unit: "ms", below: 200)
        ]
        guard full else { return measurements }
        try await database.load(1_000_000, prefix: "wait-")
        let memory = try await program.memory(after: .seconds(15))
        measurements.append(Bench.Measurement(name: "memory_1M_waiting", value: memory, unit: "MiB", below: 100))
        try await database.clearQueue()
        let users = min(jobs, 20_000)
        for _ in 0..<(1_000_000 / users) {
            try await database.tapAll(prefix: "plain-")
            try await work(database, runtime, memoryStore())
        }
        measurements.append(
            Bench.Measurement(name: "queue_after_1M", value: try await database.queueSize(), unit: "MiB", below: 50)
        )
        return measurements
    }

    /// Reads users with 256 requests in flight.
    private func read(_ count: Int, _ client: RevenueCatClient) async {
        await withTaskGroup(of: Void.self) { group in
            for lane in 0..<256 {
                group.addTask {
                    for number in stride(from: lane + 1, through: count, by: 256) {
                        _ = await client.read(
                            CustomerQuery(
                                userID: "http-\(number)",
                                lane: .sweep,
                                sandboxCounts: false,
                                isOtherUser: { _ in [] }
                            )
                        )
                    }
                }
            }
        }
    }

    private func work(
        _ database: BenchDatabase,
        _ runtime: Runtime,
        _ reader: StoreReader,
        listener: PostgresListener? = nil
    ) async throws {
        let config = runtime.config
        let worker = Worker(
            pool: database.pool,
            reader: reader,
            apply: Apply(
                pool: database.pool,
                settings: ApplySettings(decision: config.decision, brake: config.brake, retry: config.retry),
                logger: runtime.logger
            ),
            assets: AssetRuns(pool: database.pool, mode: .full, logger: runtime.logger),
            listener: listener,
            exchange: {},
            settings: WorkerSettings(
                concurrency: max(1500, config.worker.concurrency),
                batch: config.worker.batch,
                lease: config.worker.lease,
                untilIdle: listener == nil,
                host: "bench",
                pid: ProcessInfo.processInfo.processIdentifier,
                version: Build.version
            ),
            logger: runtime.logger
        )
        try await worker.run()
    }

    /// A figure counts only if the work was done.
    private func check(_ database: BenchDatabase, _ prefix: String) async throws {
        let done = try await database.subscribers(prefix: prefix)
        guard done == jobs else { throw CommandFailure(.software, "only \(done) of \(jobs) users were promoted") }
    }

    private func timed(_ body: () async throws -> Void) async throws -> Double {
        let clock = ContinuousClock()
        let elapsed = try await clock.measure { try await body() }
        return Double(elapsed.components.seconds) + Double(elapsed.components.attoseconds) / 1e18
    }

    private func print(_ result: Printed) throws {
        switch options.output {
        case .json: try Output.json(result)
        case .text:
            func number(_ value: Double?) -> String {
                value.map { String(format: $0 < 1000 ? "%.2f" : "%.0f", $0) } ?? "-"
            }
            Output.table(
                ["measurement", "value", "unit", "limit", "ratio", "target", "holds"],
                result.measurements.map {
                    [
                        $0.name, number($0.value), $0.unit, number($0.limit), number($0.ratio), number($0.target),
                        $0.holds.map { $0 ? "yes" : "no" } ?? "-",
                    ]
                }
            )
            Output.line(result.settings)
        }
    }
}
