import Composition
import Entitlements
import Foundation
import Logging
import Postgres
import Queue
import Reconciliation
import Synchronization
import UserRequests

/// How long users wait for single restores, from the call of the function to the notification of its outcome.
struct BenchPeople {
    var pool: PostgresPool
    /// For LISTEN, in the bench's database.
    var listening: PostgresConfiguration
    var logger: Logger
    /// Runs a worker with a store until the task is cancelled.
    var work: @Sendable (JobReader, PostgresListener) async throws -> Void

    private enum Step { case asked, accepted, begun, answered }

    /// When each restore came to which step.
    private final class Stopwatches: Sendable {
        private let times = Mutex<[UUID: [Step: ContinuousClock.Instant]]>([:])

        func note(_ step: Step, of id: UUID, at moment: ContinuousClock.Instant = .now) {
            times.withLock { $0[id, default: [:]][step] = moment }
        }

        func all() -> [UUID: [Step: ContinuousClock.Instant]] { times.withLock { $0 } }

        var answered: Int { times.withLock { $0.values.count { $0[.answered] != nil } } }
    }

    /// What was measured, in milliseconds.
    struct Times {
        /// From the accepted request to the beginning of the read.
        var pickUp: [Double] = []
        /// From the request to the notification of its outcome.
        var answer: [Double] = []
    }

    /// Lets each user request a restore, at an even rate; the store takes `storeLatency` for an answer.
    func measure(_ users: [String], perSecond: Int, storeLatency: Duration) async throws -> Times {
        let watches = Stopwatches()
        let memory = memoryStore()
        let reader = JobReader { job in
            watches.note(.begun, of: job.id)
            if storeLatency > .zero { try? await Task.sleep(for: storeLatency, tolerance: .zero) }
            return await memory.read(job)
        }
        let (connected, connect) = AsyncStream.makeStream(of: Void.self)
        try await withThrowingTaskGroup(of: Void.self) { group in
            group.addTask {
                try await PostgresListener(configuration: listening, logger: logger).run(
                    channels: ["entitlement_sync_outcome"],
                    onNotification: { notification in
                        let now = ContinuousClock.now
                        if let id = Self.job(in: notification.payload) { watches.note(.answered, of: id, at: now) }
                    },
                    onConnected: { connect.yield() }
                )
            }
            group.addTask { try await work(reader, PostgresListener(configuration: listening, logger: logger)) }
            for await _ in connected { break }
            // The worker takes its lease and listens for restores within this time.
            try await Task.sleep(for: .milliseconds(500))
            try await tap(users, perSecond: perSecond, watches)
            let deadline = ContinuousClock.now + .seconds(20)
            while watches.answered < users.count, ContinuousClock.now < deadline {
                try await Task.sleep(for: .milliseconds(20))
            }
            group.cancelAll()
            while let result = await group.nextResult() {
                guard case .failure(let error) = result, !(error is CancellationError) else { continue }
                if let error = error as? PostgresError, error.code == .cancelled { continue }
                throw error
            }
        }
        var times = Times()
        for (_, steps) in watches.all() {
            guard let asked = steps[.asked] else { continue }
            guard let accepted = steps[.accepted], let begun = steps[.begun], let answered = steps[.answered] else {
                throw CommandFailure(.software, "a restore had no answer within 20 s")
            }
            times.pickUp.append((begun - accepted).milliseconds)
            times.answer.append((answered - asked).milliseconds)
        }
        return times
    }

    private func tap(_ users: [String], perSecond: Int, _ watches: Stopwatches) async throws {
        let clock = ContinuousClock()
        let start = clock.now
        try await withThrowingTaskGroup(of: Void.self) { group in
            for (index, user) in users.enumerated() {
                let due = start + .seconds(1) * index / perSecond
                try await clock.sleep(until: due, tolerance: .zero)
                group.addTask {
                    let id = try await Requests(pool: pool).restore(user, proofs: "[]", clientError: nil)
                    watches.note(.accepted, of: id)
                    watches.note(.asked, of: id, at: due)
                }
            }
            try await group.waitForAll()
        }
    }

    /// The job's id in a notification's payload: `{"job":"...","outcome":...}`.
    private static func job(in payload: String) -> UUID? {
        UUID(uuidString: String(payload.dropFirst(8).prefix(36)))
    }
}
