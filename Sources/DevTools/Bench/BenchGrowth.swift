import Composition
import Diagnostics
import Entitlements
import Foundation
import Logging
import Queue
import Reconciliation
import Runs
import SupportDesk
import UserRequests

/// Whether what users wait for takes as long in a large database as in a small one: the same acts in turns on both.
struct BenchGrowth {
    /// Makes a new database whose name ends in the argument.
    let makeDatabase: @Sendable (String) async throws -> BenchDatabase
    let runtime: Runtime
    /// Decisions in the large database; the small one has a twentieth.
    let decisions: Int

    private static let decisionsPerUser = 4
    private static let times = 20
    /// Users of a batch of checks or claims.
    private static let batch = 20_000
    /// Users, tickets or pages that a reading act is measured with in a turn.
    private static let readings = 200
    /// Turns of which the median counts; one more goes before, so that both databases have been in use.
    private static let turns = 7

    private struct Side {
        var database: BenchDatabase
        var users: Int
        var client: BenchAPIClient
        var tokens: [String]
    }

    private struct Act {
        var name: String
        var unit: String
        /// Gets the turn's number.
        var measure: @Sendable (Side, Int) async throws -> Double
    }

    /// Measures acts on both.
    ///
    /// - Returns: what each takes on the large database, beside 1.2 times what it takes on the small one.
    func measure() async throws -> [BenchMeasurement] {
        try await BenchTokens.with(runtime) { tokens in
            try await withSide(decisions / Self.times, "small", tokens) { small in
                try await withSide(decisions, "large", tokens) { large in try await compare(small, large) }
            }
        }
    }

    private func compare(_ small: Side, _ large: Side) async throws -> [BenchMeasurement] {
        // By act and side.
        var times: [String: [Int: [Double]]] = [:]
        for turn in 0...Self.turns {
            for act in acts {
                // Who goes first changes with each turn.
                let sides = turn.isMultiple(of: 2) ? [small, large] : [large, small]
                for side in sides {
                    let took = try await act.measure(side, turn)
                    guard turn > 0 else { continue }
                    times[act.name, default: [:]][side.users, default: []].append(took)
                }
            }
        }
        return acts.flatMap { act in
            let (few, many) = (times[act.name]?[small.users] ?? [], times[act.name]?[large.users] ?? [])
            let base = few.percentile(50)
            return [
                BenchMeasurement("small_" + act.name, base, act.unit),
                BenchMeasurement("large_" + act.name, many.percentile(50), act.unit, below: 1.2 * base),
            ]
        }
    }

    /// Loads a database, serves the API on it, and removes both at the end.
    private func withSide<Value>(
        _ decisions: Int,
        _ name: String,
        _ tokens: BenchTokens,
        _ body: (Side) async throws -> Value
    ) async throws -> Value {
        let database = try await makeDatabase(name)
        return try await cleaningUp({ await database.drop() }) {
            let users = decisions / Self.decisionsPerUser
            try await SampleHistory.load(decisions, users: users, into: database.pool)
            try await database.load(Self.batch, prefix: "live-", queued: false)
            try await database.signIn(Self.session)
            try await database.settle()
            return try await BenchProcess.running("serve", database, runtime, tokens.serving) { server in
                let port = try await server.port()
                return try await BenchAPIClient.with(port: port, connections: 8, logger: runtime.logger) { client in
                    let signed = try await tokens.sign(Self.spread(users).map { "past-\($0)" }, hours: 6)
                    return try await body(Side(database: database, users: users, client: client, tokens: signed))
                }
            }
        }
    }

    private var acts: [Act] {
        let start = Date.now
        return [
            Act(name: "claim", unit: "us/job") { side, _ in
                try await side.database.claimCost(Self.batch, prefix: "live-")
            },
            // Each turn the stores show the next period: each check writes a decision and an observation.
            Act(name: "apply", unit: "us/job") { side, turn in
                let checked = try await side.database.check(every: max(side.users / Self.batch, 1), of: side.users)
                let period = Instant(
                    microseconds: Int64((start.timeIntervalSince1970 + Double(turn) * 86_400) * 1_000_000)
                )
                let bench = BenchWork(database: side.database, runtime: runtime, jobs: checked)
                let took = try await ContinuousClock().measure { try await bench.work(memoryStore(from: period)) }
                return took.milliseconds * 1000 / Double(checked)
            },
            Act(name: "explain", unit: "ms") { side, turn in
                let timeline = Timeline(pool: side.database.pool)
                return try await each(Self.spread(side.users, turn)) { user in
                    guard try await timeline.events(of: "past-\(user)", until: nil) != nil else {
                        throw CommandFailure(.software, "past-\(user) is not known")
                    }
                }
            },
            Act(name: "entitlement", unit: "ms") { side, _ in
                try await each(side.tokens) { try await side.client.entitlement($0) }
            },
            page("queue") { console, _, _, _ in
                for lane in ["desk", "closed"] {
                    _ = try await console.queue(lane: lane, kind: nil, after: nil, limit: 50)
                }
                _ = try await console.counts()
            },
            page("ticket") { _, tickets, _, number in
                guard try await tickets.show(Int64(number / 40 + 1)) != nil else {
                    throw CommandFailure(.software, "there is no ticket \(number / 40 + 1)")
                }
            },
            page("user") { _, _, users, number in
                _ = try await users.show(Int64(SampleHistory.firstKey + number))
                _ = try await users.timeline(of: Int64(SampleHistory.firstKey + number))
            },
            page("search") { console, _, _, number in _ = try await console.search("past-\(number)") },
            page("figures") { _, _, users, _ in
                _ = try await users.figures()
                _ = try await users.causes(days: 14)
                _ = try await users.dead()
            },
        ]
    }

    /// A page of the console, with as many readings as take a moment.
    private func page(
        _ name: String,
        _ read: @escaping @Sendable (DeskConsole, DeskTickets, DeskUsers, Int) async throws -> Void
    ) -> Act {
        Act(name: "console_" + name, unit: "ms") { side, turn in
            let digest = Self.session
            let console = DeskConsole(pool: side.database.pool, session: digest)
            let tickets = DeskTickets(pool: side.database.pool, session: digest)
            let users = DeskUsers(pool: side.database.pool, session: digest)
            return try await each(Self.spread(side.users, turn).prefix(50)) {
                try await read(console, tickets, users, $0)
            }
        }
    }

    private static let session = Array("bench".utf8)

    /// Numbers of users, evenly spread; other ones each turn.
    private static func spread(_ users: Int, _ turn: Int = 0) -> [Int] {
        let step = users / readings
        return (0..<readings).map { $0 * step + 1 + turn * 7 % step }
    }

    /// The mean time of an act, one after the other, in milliseconds.
    private func each<Item>(_ items: some Collection<Item>, _ act: (Item) async throws -> Void) async throws -> Double {
        let took = try await ContinuousClock().measure { for item in items { try await act(item) } }
        return took.milliseconds / Double(items.count)
    }
}

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
