import Entitlements
import TestSupport
import Foundation
import Postgres
import Queue
import Reconciliation

/// Why a history failed.
struct Failed: Error {
    /// What stays the same while the history is shrunk.
    var kind: String
    var text: String
}

/// One history taking place, in the database and in the model side by side.
struct Run {
    let lane: Lane
    var setup: HistorySetup
    var model: Model
    var truth: StoreTruth
    var workers: [Side: WorkerHands] = [:]
    /// Earlier readings of each user.
    var past: [Int: [Taken]] = [:]
    /// Items that a store's events were about, by the user who is read with them.
    var notified: [Int: Set<Int>] = [:]
    /// What was asked under an idempotency key: the words and the job that answers.
    var keys: [String: (words: String, job: Int)] = [:]
    /// The number under which this history's process plans runs.
    var fence: Int64 = 0

    var controls: Controls { Controls(pool: lane.host) }
    var commands: JobCommands { JobCommands(pool: lane.host) }

    init(lane: Lane, setup: HistorySetup) {
        self.lane = lane
        self.setup = setup
        model = Model(setup: setup)
        truth = StoreTruth(items: setup.items)
    }

    /// Makes every step, then sweeps until everything has settled; the state is compared after each.
    mutating func perform(_ steps: [Step]) async throws {
        try await live(steps)
        try await settle()
    }

    /// Begins and makes every step, comparing after each; jobs in flight stay in flight.
    mutating func live(_ steps: [Step]) async throws {
        try await begin()
        for step in steps {
            try await make(step)
            try await compare()
        }
    }

    /// An empty database with the users of the history and two workers.
    mutating func begin() async throws {
        try await lane.reset()
        for (index, user) in setup.users.enumerated() {
            try await lane.host.query(
                """
                INSERT INTO users (id, type, status)
                VALUES (\(userID(index)), \(user.type.rawValue), \(user.status.rawValue))
                """
            )
        }
        for side in Side.allCases { try await start(side) }
        try await takeLead()
    }

    /// Compares the database with the model.
    mutating func compare() async throws {
        let seen = try await lane.lines()
        model.adopt(seen)
        if let broken = seen.filter({ $0.hasPrefix("broken|") }).min() {
            throw Failed(kind: String(broken.prefix(10)), text: broken)
        }
        let actual = Set(seen.filter { !$0.hasPrefix("number|") && !$0.hasPrefix("key|") })
        let expected = Set(model.lines)
        guard actual != expected else { return }
        let extra = actual.subtracting(expected).sorted()
        let missing = expected.subtracting(actual).sorted()
        let kind = (extra + missing).first.map { String($0.prefix { $0 != "|" }) } ?? ""
        throw Failed(
            kind: "state: " + kind,
            text: "the database has\n  " + extra.joined(separator: "\n  ") + "\nthe model has\n  "
                + missing.joined(separator: "\n  ")
        )
    }

    /// Fails where a condition does not hold.
    func expect(_ holds: Bool, _ kind: String, _ text: @autoclosure () -> String = "") throws {
        guard !holds else { return }
        throw Failed(kind: kind, text: kind + " " + text())
    }

    /// The id, if any, that an SQL function returned.
    func id(_ rows: PostgresRows) throws -> UUID {
        guard let row = rows.first else { throw Failed(kind: "no id", text: "no id was returned") }
        return try row.decode(UUID.self)
    }

    /// Binds a job of the model to the id that was returned for it.
    mutating func returned(_ id: UUID, for job: Int) throws {
        try expect(model.jobs[job].id == nil || model.jobs[job].id == id, "another id was returned")
        if model.jobs[job].id == nil {
            try expect(!model.jobs.contains { $0.id == id }, "an old id was returned for a new job")
        }
        model.jobs[job].id = id
        model.jobs[job].wasReturned = true
    }
}

/// A worker process and the jobs in its hands.
struct WorkerHands {
    var epoch: Int32
    var hands: [Hand] = []
    /// The batch that was applied last, in order.
    var last: [Hand] = []
    let queue: JobQueue
    let leases: Leases
    var apply: Apply
    var assets: AssetRuns
}

/// A claimed job; with its reading once the stores were asked.
struct Hand {
    var claimed: ClaimedJob
    var job: Int
    var user: Int
    /// The user of the history whom it was claimed for; an erasure may have taken the name from the record since.
    var asks: Int?
    var epoch: Int32
    var taken: Taken?

    /// The job as the model takes it.
    func item(_ taken: Taken) -> ModelItem {
        ModelItem(
            job: job,
            user: user,
            key: claimed.userKey,
            attempt: claimed.attempt,
            lastError: claimed.lastError,
            kind: claimed.kind,
            isEvents: claimed.lane == .event,
            reading: taken.reading
        )
    }
}

extension Run {
    /// Starts a worker process.
    mutating func start(_ side: Side) async throws {
        let pool = lane.pool(side)
        let leases = Leases(pool: pool, duration: .seconds(3600))
        let epoch = try await leases.register(.init(host: side.rawValue, pid: 1, version: "test"))
        model.leases[epoch] = true
        workers[side] = WorkerHands(
            epoch: epoch,
            queue: JobQueue(pool: pool, ignoresPause: setup.mode == .observe),
            leases: leases,
            apply: Apply(
                pool: pool,
                settings: ApplySettings(
                    decision: setup.decision,
                    brake: setup.brake,
                    retry: setup.retry,
                    assetBatch: setup.assetBatch
                ),
                logger: .quiet
            ),
            assets: AssetRuns(pool: pool, mode: setup.mode, logger: .quiet)
        )
    }

    /// The worker of a side.
    func worker(_ side: Side) throws -> WorkerHands {
        guard let worker = workers[side] else { throw Failed(kind: "no worker", text: side.rawValue) }
        return worker
    }
}
