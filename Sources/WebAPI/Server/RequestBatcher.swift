import ServiceLifecycle
import Synchronization

/// Runs loops until a graceful shutdown or the task's cancellation.
func untilShutdown(_ loops: [@Sendable () async -> Void]) async {
    await withTaskGroup(of: Void.self) { group in
        for loop in loops { group.addTask { await loop() } }
        try? await gracefulShutdown()
        group.cancelAll()
    }
}

/// The database is unavailable: the work can be tried again later.
struct DatabaseUnavailable: Error {}

/// Answers many requests in few transactions: while one is under way, the next ones wait for theirs.
///
/// Each transaction costs a commit and a way to the database and back; a machine that does one for each request has no
/// time for anything else. While the database is unavailable, as in a failover, requests wait for it.
final class RequestBatcher<Item: Sendable, Answer: Sendable>: Sendable {
    typealias Instant = ContinuousClock.Instant
    private typealias Done = Result<[Answer]?, DatabaseUnavailable>

    private struct Waiting {
        var number: Int
        var item: Item
    }

    /// A caller without an answer yet.
    private struct Caller {
        var deadline: Instant
        var continuation: CheckedContinuation<Answer?, Never>
    }

    private struct State {
        /// Those whose work has not begun, or is to be begun again.
        var waiting: [Waiting] = []
        /// All who wait for an answer, also while their work is under way.
        var callers: [Int: Caller] = [:]
        var nextNumber = 0
        var isOpen = true
        /// The last work found the database unavailable.
        var isAway = false
        /// Requests wait for a database that is unavailable.
        var acceptsWaiters: Bool
    }

    /// Between two tries to reach the database, at first.
    private static var shortest: Duration { .milliseconds(100) }

    /// In one transaction.
    private let batch: Int
    /// Those that may wait; beyond it no item is taken.
    private let most: Int
    /// From the start of one transaction to the next, once several came at a time; those that come alone never wait.
    private let interval: Duration
    /// How long a request waits for a database that is unavailable.
    private let databaseWait: Duration
    private let work: @Sendable ([Item]) async throws(DatabaseUnavailable) -> [Answer]?
    private let state: Mutex<State>
    private let signal = AsyncStream.makeStream(of: Void.self, bufferingPolicy: .bufferingNewest(1))

    /// Makes one that does nothing before it runs.
    ///
    /// `work`: answers each of some items, in their order; `nil`: nothing can be done for any caller that waits. What it
    /// throws `DatabaseUnavailable` for is tried again, so it may be done twice.
    init(
        batch: Int,
        waiting: Int,
        interval: Duration,
        databaseWait: Duration = .zero,
        work: @escaping @Sendable ([Item]) async throws(DatabaseUnavailable) -> [Answer]?
    ) {
        self.batch = batch
        most = waiting
        self.interval = interval
        self.databaseWait = databaseWait
        self.work = work
        state = Mutex(State(acceptsWaiters: databaseWait > .zero))
    }

    /// Has something done.
    ///
    /// `arrival`: when the request came, from which its wait counts.
    ///
    /// - Returns: the answer; `nil`: nothing was done, or that is unknown; also for a cancelled task.
    func ask(_ item: Item, since arrival: Instant = .now) async -> Answer? {
        let number = state.withLock { state in
            state.nextNumber += 1
            return state.nextNumber
        }
        return await withTaskCancellationHandler {
            await withCheckedContinuation { continuation in
                let waits = state.withLock { [databaseWait] state in
                    guard state.isOpen, !Task.isCancelled, state.waiting.count < most else { return false }
                    state.waiting.append(Waiting(number: number, item: item))
                    // However long it took to arrive: a database that answers has the time for it.
                    let deadline = max(arrival + databaseWait, .now + min(databaseWait, .seconds(5)))
                    state.callers[number] = Caller(deadline: deadline, continuation: continuation)
                    return true
                }
                if waits { signal.continuation.yield() } else { continuation.resume(returning: nil) }
            }
        } onCancel: {
            // What is under way goes on, and its answer with it.
            let isLeft = state.withLock { state in
                let place = state.waiting.firstIndex { $0.number == number }
                if let place { state.waiting.remove(at: place) }
                return place != nil
            }
            if isLeft { answer(number, nil) }
        }
    }

    /// Those whose work has not begun.
    var waitingCount: Int { state.withLock { $0.waiting.count } }

    /// Ends the wait for the database, now and from now on.
    func stopWaiting() {
        let isAway = state.withLock { state in
            state.acceptsWaiters = false
            // What is under way may still end; a server that hangs does not keep the process.
            let latest = ContinuousClock.now + .seconds(1)
            state.callers = state.callers.mapValues { caller in
                Caller(deadline: min(caller.deadline, latest), continuation: caller.continuation)
            }
            return state.isAway
        }
        if isAway { end { _ in true } }
    }

    /// Works until the task is cancelled; callers that wait then get no answer.
    func run() async {
        var backoff = Self.shortest
        while !Task.isCancelled {
            let batch = take(self.batch)
            guard !batch.isEmpty else {
                for await _ in signal.stream { break }
                continue
            }
            let began = ContinuousClock.now
            let done = await inTime { [work] in
                do throws(DatabaseUnavailable) { return .success(try await work(batch.map(\.item))) } catch {
                    return .failure(error)
                }
            }
            switch done {
            case .success(let answers?) where answers.count == batch.count:
                backoff = Self.shortest
                state.withLock { $0.isAway = false }
                for (waiting, one) in zip(batch, answers) { answer(waiting.number, one) }
                if interval > .zero, (2..<self.batch).contains(batch.count) {
                    try? await Task.sleep(until: began + interval, tolerance: .zero, clock: .continuous)
                }
            case .failure where putBack(batch):
                try? await Task.sleep(for: backoff)
                backoff = min(backoff * 2, .seconds(1))
            default:
                refuse(batch)
            }
        }
        state.withLock { $0.isOpen = false }
        end { _ in true }
    }

    /// Works, while those whose time is over are given up: a server that hangs keeps callers no longer than one that is gone.
    private func inTime(_ work: @escaping @Sendable () async -> Done) async -> Done {
        guard databaseWait > .zero else { return await work() }
        return await withTaskGroup(of: Done?.self) { group in
            group.addTask { await work() }
            group.addTask {
                while !Task.isCancelled {
                    let now = ContinuousClock.now
                    self.end { $0.deadline <= now }
                    let next = self.state.withLock { $0.callers.values.lazy.map(\.deadline).min() }
                    // Not too often, and not too late for one that was brought forward.
                    let (soonest, latest) = (now + .milliseconds(50), now + .milliseconds(500))
                    try? await Task.sleep(until: min(max(next ?? latest, soonest), latest), clock: .continuous)
                }
                return nil
            }
            for await case let done? in group {
                group.cancelAll()
                return done
            }
            return .failure(DatabaseUnavailable())
        }
    }

    /// Puts a batch back before all others; `false`: callers don't wait for the database.
    private func putBack(_ batch: [Waiting]) -> Bool {
        state.withLock { state in
            state.isAway = true
            guard state.acceptsWaiters else { return false }
            state.waiting.insert(contentsOf: batch.filter { state.callers[$0.number] != nil }, at: 0)
            return true
        }
    }

    /// Gives up a batch, and those behind: they would wait as long, one batch after the other, and get the same answer.
    private func refuse(_ batch: [Waiting]) {
        for waiting in batch + take() { answer(waiting.number, nil) }
    }

    private func answer(_ number: Int, _ answer: Answer?) {
        state.withLock { $0.callers.removeValue(forKey: number) }?.continuation.resume(returning: answer)
    }

    /// Answers callers that nothing was done, as far as is known.
    private func end(_ isOver: (Caller) -> Bool) {
        let over = state.withLock { state in
            let over = state.callers.filter { isOver($0.value) }
            guard !over.isEmpty else { return over }
            for number in over.keys { state.callers[number] = nil }
            state.waiting.removeAll { over[$0.number] != nil }
            return over
        }
        for caller in over.values { caller.continuation.resume(returning: nil) }
    }

    private func take(_ most: Int = .max) -> [Waiting] {
        state.withLock { state in
            let taken = Array(state.waiting.prefix(most))
            state.waiting.removeFirst(taken.count)
            return taken
        }
    }
}
