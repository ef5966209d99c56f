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

struct BenchCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "bench",
        abstract: "Measures the worker beside what the same machine does without it."
    )

    @Option(help: "Jobs in each measurement.")
    var jobs = 20_000

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
            let database = try await BenchDatabase(
                configuration: runtime.postgres(connections: 1),
                connect: { name in
                    var configuration = runtime.postgres(connections: 8)
                    configuration.sessionSettings["statement_timeout"] = "0"
                    configuration.statementTimeout = nil
                    return configuration.inDatabase(name)
                },
                sqlDirectory: try runtime.sqlDirectory(),
                logger: runtime.logger
            )
            do {
                let result = try await measure(database, runtime)
                await database.drop()
                try print(result)
            } catch {
                await database.drop()
                throw error
            }
            return .done
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
                http: StoreHTTP(transport: transport),
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
            await transport.shutdown()
        } catch {
            await transport.shutdown()
            throw error
        }
        return Printed(measurements: measurements, settings: try await database.settings())
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

    private func work(_ database: BenchDatabase, _ runtime: Runtime, _ reader: StoreReader) async throws {
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
            listener: nil,
            exchange: {},
            settings: WorkerSettings(
                concurrency: max(1500, config.worker.concurrency),
                batch: config.worker.batch,
                lease: config.worker.lease,
                untilIdle: true,
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
            func number(_ value: Double?, _ digits: Int = 0) -> String {
                value.map { String(format: "%.\(digits)f", $0) } ?? "-"
            }
            Output.table(
                ["measurement", "value", "unit", "limit", "ratio", "target", "holds"],
                result.measurements.map {
                    [
                        $0.name, number($0.value), $0.unit, number($0.limit), number($0.ratio, 2), number($0.target, 2),
                        $0.holds.map { $0 ? "yes" : "no" } ?? "-",
                    ]
                }
            )
            Output.line(result.settings)
        }
    }
}
