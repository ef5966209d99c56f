import Composition
import Configuring
import Entitlements
import Foundation
import Ledger
import Logging
import Postgres
import Queue
import RateLimits
import Reconciliation
import StoreClients
import Telemetry
import Transport

/// The measurements, each beside its limit.
struct BenchWork {
    var database: BenchDatabase
    var runtime: Runtime
    /// Jobs in each measurement.
    var jobs: Int

    /// Jobs a second from the queue to the commit: the store in memory, then over HTTP.
    func throughput(_ simulator: SimulatorProcess) async throws -> [BenchMeasurement] {
        try await database.load(jobs, prefix: "plain-")
        let plain = try await database.plainSQL.run(jobs: jobs)
        try await database.load(jobs, prefix: "memory-")
        let promote = Double(jobs) / (try await timed { try await work(memoryStore()) })
        try await check("memory-")
        try await database.load(jobs, prefix: "plain-news-")
        let plainNews = try await database.plainSQL.run(jobs: jobs, publishes: true)
        try await database.load(jobs, prefix: "news-")
        let news = Double(jobs) / (try await timed { try await work(memoryStore(), publishes: true) })
        try await check("news-")
        let port = try await simulator.port()
        let raw = try await rawRate(port, of: "http-")
        let transport = HTTPTransport(
            configuration: HTTPTransportConfiguration(
                maxConnectionsPerHost: 64,
                maxTotalConnections: Self.connections,
                maxInFlight: 512
            ),
            logger: runtime.logger
        )
        return try await cleaningUp({ await transport.shutdown() }) {
            let client = RevenueCatClient(
                configuration: try RevenueCatConfiguration(
                    apiKey: "sk_bench",
                    projectID: "projbench",
                    baseURL: "http://127.0.0.1:\(port)/v2"
                ),
                http: HTTPClient(transport: transport),
                gate: .open,
                logger: runtime.logger
            )
            let reads = Double(jobs) / (try await timed { await read(client) })
            try await database.load(jobs, prefix: "http-")
            let lookups = UserLookups(pool: database.pool)
            let source = RevenueCatSource(client: client, lookups: lookups)
            let stores = StoresReader(sources: .init(revenueCat: source), lookups: lookups)
            let whole = Double(jobs) / (try await timed { try await work(stores.reader) })
            try await check("http-")
            let cheap = Double(await client.read(Self.query("http-1") { _ in true }).requests)
            let dear = Double(await client.read(Self.query("http-1") { _ in false }).requests)
            return [
                BenchMeasurement("plain_sql", plain, "jobs/s"),
                BenchMeasurement("promote", promote, "jobs/s", limit: plain, target: 0.6),
                BenchMeasurement("plain_sql_published", plainNews, "jobs/s"),
                BenchMeasurement("promote_published", news, "jobs/s", limit: plainNews, target: 0.6),
                BenchMeasurement("raw_requests", raw, "requests/s"),
                BenchMeasurement("store_reads", reads, "users/s", limit: raw),
                BenchMeasurement("end_to_end", whole, "jobs/s", limit: 1 / (1 / plain + cheap / raw), target: 0.5),
                BenchMeasurement("requests_with_access", cheap, "requests", below: 1.1),
                BenchMeasurement("requests_full_read", dear, "requests", below: 2.1),
            ]
        }
    }

    private static let connections = 64

    /// Requests a second by libcurl alone, the simulator's answers in a process of its own included, about users of a
    /// prefix.
    func rawRate(_ port: Int, of prefix: String) async throws -> Double {
        Double(jobs)
            / (try await timed {
                let urls = (1...jobs).map {
                    "http://127.0.0.1:\(port)/v2/projects/projbench/customers/\(prefix)\($0)/subscriptions?limit=100"
                }
                try await awayFromPool {
                    Result {
                        try RawRequests.get(urls, authorization: "Bearer sk_bench", connections: Self.connections)
                    }
                }.get()
            })
    }

    /// Reads users with 256 requests in flight.
    private func read(_ client: RevenueCatClient) async {
        await withTaskGroup(of: Void.self) { group in
            for lane in 0..<256 {
                group.addTask {
                    for number in stride(from: lane + 1, through: jobs, by: 256) {
                        _ = await client.read(Self.query("http-\(number)"))
                    }
                }
            }
        }
    }

    private static func query(
        _ user: String,
        _ mayGrant: @escaping @Sendable ([String]) -> Bool = { _ in true }
    ) -> CustomerQuery {
        CustomerQuery(userID: user, lane: .sweep, sandboxCounts: false, mayGrant: mayGrant, isOtherUser: { _ in [] })
    }

    /// Bytes that users and checks leave, beside the rows of jobs that retention drops: a user with one purchase, the first check that
    /// confirms it, the next one, and one that reads a renewal.
    func size() async throws -> [BenchMeasurement] {
        let start = Instant(microseconds: Int64(Date.now.timeIntervalSince1970 * 1_000_000))
        let empty = try await database.bytes()
        try await database.load(jobs, prefix: "size-")
        try await work(memoryStore(from: start))
        try await check("size-")
        let known = try await database.bytes()
        var measurements = [BenchMeasurement("known_user", each(known.kept - empty.kept), "bytes")]
        for (name, period) in [
            ("confirmed_check_first", start), ("confirmed_check", start), ("renewed_check", start + .seconds(86_400)),
        ] {
            let before = try await database.bytes()
            try await database.check(prefix: "size-")
            let queued = try await database.logPosition()
            try await work(memoryStore(from: period))
            let written = try await database.logPosition()
            let after = try await database.bytes()
            let left = each(after.kept - before.kept)
            measurements += [
                name.hasPrefix("confirmed")
                    ? BenchMeasurement(name, left, "bytes", below: 160) : BenchMeasurement(name, left, "bytes"),
                BenchMeasurement(name + "_job", each(after.history - before.history), "bytes"),
                BenchMeasurement(name + "_log", each(written - queued), "bytes"),
            ]
        }
        return measurements
    }

    private func each(_ bytes: Double) -> Double { bytes / Double(jobs) }

    /// How long users wait.
    ///
    /// A restore is measured beside a floor: the same transactions one by one in plain SQL, at the same rate.
    func people(seconds: Int) async throws -> [BenchMeasurement] {
        let (perSecond, storeMs) = (500, 50)
        let commit = try await database.commitLatency()
        let people = BenchPeople(
            pool: database.pool,
            listening: runtime.postgres(connections: 1).inDatabase(database.name),
            logger: runtime.logger
        ) { reader, listener in
            try await work(reader, listener: listener)
        }
        try await database.load(200, prefix: "idle-", queued: false)
        let idle = try await people.measure((1...200).map { "idle-\($0)" }, perSecond: 20, storeLatency: .zero)
        let taps = perSecond * seconds
        // Its starts are random, and some more than planned.
        try await database.load(taps + taps / 10, prefix: "floor-", queued: false)
        try await database.load(taps, prefix: "tap-", queued: false)
        try await database.settle()
        let floor = try await database.plainSQL.restores(
            of: "floor-",
            perSecond: perSecond,
            seconds: seconds,
            storeMs: storeMs
        )
        // What it did not end would count among the answers.
        try await database.clearQueue()
        let busy = try await people.measure(
            (1...taps).map { "tap-\($0)" },
            perSecond: perSecond,
            storeLatency: .milliseconds(storeMs)
        )
        return [
            BenchMeasurement("commit_p50", commit, "ms"),
            BenchMeasurement("idle_pick_up_p50", idle.pickUp.percentile(50), "ms", below: 1),
            BenchMeasurement("restore_p50_at_500/s", busy.answer.percentile(50), "ms"),
            BenchMeasurement("floor_p50_at_500/s", floor.percentile(50), "ms"),
            BenchMeasurement("floor_p99_at_500/s", floor.percentile(99), "ms"),
            BenchMeasurement(
                "restore_p99_at_500/s",
                busy.answer.percentile(99),
                "ms",
                limit: floor.percentile(99),
                atMost: 1.15
            ),
        ]
    }

    /// What one process costs; `full` adds what takes minutes.
    func process(_ simulator: SimulatorProcess, full: Bool) async throws -> [BenchMeasurement] {
        let port = try await simulator.port()
        var measurements = [BenchMeasurement("start_up", try await startUp(port), "ms", below: 200)]
        guard full else { return measurements }
        try await database.load(1_000_000, prefix: "wait-")
        let memory = try await worker(port) { process in
            process.discardLog()
            try await Task.sleep(for: .seconds(15))
            return try process.peakMemory()
        }
        measurements.append(BenchMeasurement("memory_1M_waiting", memory, "MiB", below: 100))
        try await database.clearQueue()
        return try await measurements + bloat()
    }

    /// The time from the start of a process to its lease, in milliseconds; the best of five.
    private func startUp(_ port: Int) async throws -> Double {
        var best = Double.infinity
        for _ in 0..<5 {
            let started = ContinuousClock.now
            let elapsed = try await worker(port) { process in
                guard await process.line(containing: "working") != nil else {
                    throw CommandFailure(.software, "the worker did not start")
                }
                return (ContinuousClock.now - started).milliseconds
            }
            best = min(best, elapsed)
        }
        return best
    }

    private func worker(_ port: Int, _ body: (BenchProcess) async throws -> Double) async throws -> Double {
        let settings = BenchProcess.revenueCat(port, perMinute: 600, logLevel: "info")
        return try await BenchProcess.running("worker", database, runtime, settings, body)
    }

    /// What a million jobs leave behind, and another million while an old snapshot keeps vacuum away; one job a user each
    /// time.
    private func bloat() async throws -> [BenchMeasurement] {
        let (prefix, some) = ("wait-", 20_000)
        func million() async throws {
            var last: Int64 = 0
            for _ in 0..<(1_000_000 / some) {
                last = try await database.tap(some, prefix: prefix, after: last)
                try await work(memoryStore())
            }
        }
        let fresh = try await database.claimCost(some, prefix: prefix)
        try await million()
        let size = try await database.queueSize()
        let used = try await database.claimCost(some, prefix: prefix)
        var pinned = (size: 0.0, cost: 0.0)
        try await database.withPinnedHorizon {
            try await million()
            pinned = (try await database.queueSize(), try await database.claimCost(some, prefix: prefix))
        }
        // The worker's own housekeeping, without waiting for autovacuum.
        try await database.tap(some, prefix: prefix)
        try await work(memoryStore())
        return [
            BenchMeasurement("claim_fresh", fresh, "us/job"),
            BenchMeasurement("queue_after_1M", size, "MiB", below: 50),
            BenchMeasurement("claim_after_1M", used, "us/job", below: 2 * fresh),
            BenchMeasurement("queue_with_pin", pinned.size, "MiB", below: 50),
            BenchMeasurement("claim_with_pin", pinned.cost, "us/job", below: 2 * fresh),
            BenchMeasurement("queue_after_pin", try await database.queueSize(), "MiB", below: 50),
        ]
    }

    /// Runs a worker: until it is idle, or with a `listener` until the task is cancelled.
    ///
    /// `publishes`: with messages, which stay in the outbox.
    func work(_ reader: JobReader, listener: PostgresListener? = nil, publishes: Bool = false) async throws {
        let config = runtime.config
        var settings = Worker.Settings(
            concurrency: max(1500, config.worker.concurrency),
            batch: config.worker.batch,
            lease: config.worker.lease,
            process: LeaseKeeper.Process(
                host: "bench",
                pid: ProcessInfo.processInfo.processIdentifier,
                version: Build.version
            ),
            apply: ApplySettings(
                decision: config.decision,
                brake: config.brake,
                retry: config.retry,
                publishes: publishes
            )
        )
        settings.untilIdle = listener == nil
        settings.readsRuns = false
        let dequeue = DequeueSignal()
        let worker = Worker(
            settings,
            pool: database.pool,
            stores: Worker.Stores(reader: reader, limiters: StoreRateLimiters(logger: runtime.logger)),
            signals: Applier.Signals(dequeue: dequeue),
            logger: runtime.logger
        )
        try await withThrowingTaskGroup(of: Void.self) { group in
            if let listener {
                group.addTask { await AppListener(listener, dequeue: dequeue, logger: runtime.logger).run() }
            }
            group.addTask { try await worker.run() }
            // Only the worker's end ends both.
            for try await _ in group { group.cancelAll() }
        }
    }

    /// A figure counts only if the work was done.
    private func check(_ prefix: String) async throws {
        let done = try await database.subscribers(prefix: prefix)
        guard done == jobs else { throw CommandFailure(.software, "only \(done) of \(jobs) users were promoted") }
    }

    private func timed(_ body: () async throws -> Void) async throws -> Double {
        try await ContinuousClock().measure { try await body() } / .seconds(1)
    }
}
