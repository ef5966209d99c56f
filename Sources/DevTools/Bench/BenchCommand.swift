import ArgumentParser
import Composition
import Configuring
import Entitlements
import Foundation
import Logging
import Postgres
import Queue
import ServiceLifecycle
import StoreClients
import Transport
import UnixSignals

struct BenchCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "bench",
        abstract: "Measures the worker beside what the same machine does without it.",
        examples: ["bench --only throughput", "bench --full --output json"]
    )

    @Option(help: "Jobs in each measurement.")
    var jobs = 20_000

    @Option(help: "Seconds that each load of restores and events is kept up.")
    var seconds = 60

    @Option(help: "Users of the runs over all users.")
    var users = 100_000

    @Option(help: "Decisions in the large database of --full; the small one has a twentieth.")
    var decisions = 20_000_000

    @Flag(
        help: """
            Also: memory with 1,000,000 jobs waiting, the queue's size after 1,000,000 jobs, a large database beside a small one, \
            and walks over 10,000,000 users.
            """
    )
    var full = false

    /// What can be measured by itself.
    enum Part: String, ExpressibleByArgument, CaseIterable {
        /// Jobs a second, and the requests they cost.
        case throughput
        /// What checks leave that confirm what is known; with `--full`, what grows with the database.
        case size
        /// How long users wait.
        case people
        /// How long they wait over HTTP, and how fast events are kept.
        case http
        /// What one process costs.
        case process
        /// What runs over all users cost.
        case runs
        /// How many assets of one user come back how fast.
        case assets
        /// How many signatures a core checks.
        case signatures

        var needsDatabase: Bool { self != .signatures }
    }

    @Option(
        parsing: .upToNextOption,
        help: "Only these parts: throughput, size, people, http, process, runs, assets, signatures."
    )
    var only = Part.allCases

    @OptionGroup var options: OutputOptions

    func validate() throws {
        for (option, value, range) in [
            ("jobs", jobs, 1000...1_000_000), ("users", users, 10_000...10_000_000),
            ("decisions", decisions, 1_000_000...100_000_000), ("seconds", seconds, 1...600),
        ] where !range.contains(value) {
            throw ValidationError("--\(option): give \(range.lowerBound) to \(range.upperBound)")
        }
    }

    private struct Printed: Encodable {
        var measurements: [BenchMeasurement]
        /// The database's, where one was needed.
        var settings: String?
    }

    func run() async throws {
        try await reporting {
            let runtime = try Runtime(level: .warning)
            let database = only.contains(where: \.needsDatabase) ? try await Self.database(runtime) : nil
            let printed = try await cleaningUp({ await database?.drop() }) {
                try await untilSignal { try await measure(database, runtime) }
            }
            try print(printed)
            return .done
        }
    }

    /// Runs a body that ends at SIGINT and SIGTERM, so that the database and the simulator go with it.
    private func untilSignal<Value: Sendable>(_ body: @escaping @Sendable () async throws -> Value) async throws
        -> Value
    {
        try await withThrowingTaskGroup(of: Value?.self) { group in
            group.addTask {
                for await _ in await UnixSignalsSequence(trapping: [.sigint, .sigterm]) { break }
                return nil
            }
            group.addTask { try await body() }
            defer { group.cancelAll() }
            guard let value = try await group.next() ?? nil else {
                throw CommandFailure(.elapsed, "interrupted; nothing is left behind")
            }
            return value
        }
    }

    /// A database of its own on the configured server.
    private static func database(_ runtime: Runtime, suffix: String = "") async throws -> BenchDatabase {
        var configuration = runtime.postgres(connections: 8)
        configuration.sessionSettings["statement_timeout"] = "0"
        configuration.statementTimeout = nil
        do {
            return try await BenchDatabase(
                admin: runtime.postgres(connections: 1),
                configuration: configuration,
                sqlDirectory: try runtime.sqlDirectory(),
                logger: runtime.logger,
                suffix: suffix
            )
        } catch let error as PostgresError where error.sqlState == SQLState.insufficientPrivilege {
            throw CommandFailure(
                .notAllowed,
                "\(error.message); the bench works in a database of its own: connect as a user with CREATEDB"
            )
        }
    }

    private func measure(_ database: BenchDatabase?, _ runtime: Runtime) async throws -> Printed {
        // Before anything else runs in this process.
        let signatures = only.contains(.signatures) ? try await SignatureChecks().measure() : []
        guard let database else { return Printed(measurements: signatures) }
        let wornIn = only.contains(.people) || only.contains(.http) ? await database.wearIn() : false
        let work = BenchWork(database: database, runtime: runtime, jobs: jobs)
        let simulator = try SimulatorProcess(prefixes: ["http-": jobs])
        defer { simulator.stop() }
        var measurements: [BenchMeasurement] = []
        if only.contains(.throughput) { measurements += try await work.throughput(simulator) }
        if only.contains(.size) {
            measurements += try await work.size()
            if full { measurements += try await growth(runtime) }
        }
        if only.contains(.people) { measurements += try await work.people(seconds: seconds) }
        if only.contains(.http) {
            measurements += try await BenchHTTP(database: database, runtime: runtime, seconds: seconds).measure()
        }
        if only.contains(.process) { measurements += try await work.process(simulator, full: full) }
        if only.contains(.assets) {
            measurements += try await BenchAssets(database: database) { try await work.work(memoryStore()) }.measure()
        }
        if only.contains(.runs) {
            measurements += try await BenchRuns(database: database, runtime: runtime, users: users).measure()
        }
        measurements += signatures
        let settings = try await database.settings() + " wal_files=" + (wornIn ? "used" : "new")
        return Printed(measurements: measurements, settings: settings)
    }

    private func growth(_ runtime: Runtime) async throws -> [BenchMeasurement] {
        let makeDatabase: @Sendable (String) async throws -> BenchDatabase = {
            try await Self.database(runtime, suffix: "_" + $0)
        }
        return try await BenchPasses(makeDatabase: makeDatabase).measure()
            + BenchGrowth(makeDatabase: makeDatabase, runtime: runtime, decisions: decisions).measure()
    }

    private func print(_ result: Printed) throws {
        guard options.output == .text else { return try Output.json(result) }
        func number(_ value: Double?) -> String {
            value.map { String(format: $0 < 1000 ? "%.2f" : "%.0f", $0) } ?? "-"
        }
        Output.table(
            ["measurement", "value", "unit", "limit", "ratio", "target", "holds"],
            result.measurements.map {
                let holds = $0.holds.map { $0 ? "yes" : "no" } ?? "-"
                return [
                    $0.name, number($0.value), $0.unit, number($0.limit), number($0.ratio), number($0.target), holds,
                ]
            }
        )
        if let settings = result.settings { Output.line(settings) }
    }
}
