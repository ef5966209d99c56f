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

/// Answers many requests in few transactions: while one is under way, the next ones wait for theirs.
///
/// Each transaction costs a commit and a way to the database and back; a machine that does one for each request has no
/// time for anything else.
final class RequestBatcher<Item: Sendable, Answer: Sendable>: Sendable {
    private struct Waiting {
        var number: Int
        var item: Item
        var continuation: CheckedContinuation<Answer?, Never>
    }

    private struct State {
        var waiting: [Waiting] = []
        var nextNumber = 0
        var isOpen = true
    }

    /// In one transaction.
    private let batch: Int
    /// Those that may wait; beyond it no item is taken.
    private let most: Int
    /// From the start of one transaction to the next, once several came at a time; those that come alone never wait.
    private let interval: Duration
    private let work: @Sendable ([Item]) async -> [Answer]?
    private let state = Mutex(State())
    private let signal = AsyncStream.makeStream(of: Void.self, bufferingPolicy: .bufferingNewest(1))

    /// Makes one that does nothing before it runs.
    ///
    /// `work`: answers each of some items, in their order; `nil`: nothing can be done at the moment, for no caller that
    /// waits.
    init(batch: Int, waiting: Int, interval: Duration, work: @escaping @Sendable ([Item]) async -> [Answer]?) {
        self.batch = batch
        most = waiting
        self.interval = interval
        self.work = work
    }

    /// Has something done.
    ///
    /// - Returns: the answer; `nil`: nothing was done, or that is unknown; also for a cancelled task.
    func ask(_ item: Item) async -> Answer? {
        let number = state.withLock { state in
            state.nextNumber += 1
            return state.nextNumber
        }
        return await withTaskCancellationHandler {
            await withCheckedContinuation { continuation in
                let waits = state.withLock { state in
                    guard state.isOpen, !Task.isCancelled, state.waiting.count < most else { return false }
                    state.waiting.append(Waiting(number: number, item: item, continuation: continuation))
                    return true
                }
                if waits { signal.continuation.yield() } else { continuation.resume(returning: nil) }
            }
        } onCancel: {
            let waiting = state.withLock { state in
                state.waiting.firstIndex { $0.number == number }.map { state.waiting.remove(at: $0) }
            }
            waiting?.continuation.resume(returning: nil)
        }
    }

    /// Those whose work has not begun.
    var waitingCount: Int { state.withLock { $0.waiting.count } }

    /// Works until the task is cancelled; callers that wait then get no answer.
    func run() async {
        while !Task.isCancelled {
            let batch = take(self.batch)
            guard !batch.isEmpty else {
                for await _ in signal.stream { break }
                continue
            }
            let began = ContinuousClock.now
            guard let answers = await work(batch.map(\.item)), answers.count == batch.count else {
                // Those behind would wait as long, one batch after the other, and get the same answer.
                for waiting in batch + take() { waiting.continuation.resume(returning: nil) }
                continue
            }
            for (waiting, answer) in zip(batch, answers) { waiting.continuation.resume(returning: answer) }
            if interval > .zero, (2..<self.batch).contains(batch.count) {
                try? await Task.sleep(until: began + interval, tolerance: .zero, clock: .continuous)
            }
        }
        state.withLock { $0.isOpen = false }
        for waiting in take() { waiting.continuation.resume(returning: nil) }
    }

    private func take(_ most: Int = .max) -> [Waiting] {
        state.withLock { state in
            let taken = Array(state.waiting.prefix(most))
            state.waiting.removeFirst(taken.count)
            return taken
        }
    }
}
