import Synchronization
import TestSupport
import Testing
@testable import WebAPI

/// Work that many ask for, done in few steps.
@Suite struct RequestBatcherTests {
    /// What was done, step by step; the first step waits until it is let go.
    private final class Steps: Sendable {
        let done = Mutex<[[Int]]>([])
        let answered = Atomic(0)
        let began = AsyncStream.makeStream(of: Void.self)
        let goes = AsyncStream.makeStream(of: Void.self)

        func run(_ items: [Int]) async -> [Int]? {
            let isFirst = done.withLock { done in
                done.append(items)
                return done.count == 1
            }
            if isFirst {
                began.continuation.yield()
                for await _ in goes.stream { break }
            }
            return items.contains(13) ? nil : items.map { $0 * 10 }
        }
    }

    private static func with(
        batch: Int = 4,
        waiting: Int = 100,
        _ steps: Steps,
        _ body: (RequestBatcher<Int, Int>) async throws -> Void
    ) async throws {
        let batcher = RequestBatcher<Int, Int>(batch: batch, waiting: waiting, interval: .milliseconds(1)) {
            await steps.run($0)
        }
        try await withThrowingTaskGroup(of: Void.self) { group in
            group.addTask { await batcher.run() }
            try await body(batcher)
            group.cancelAll()
        }
    }

    /// Asks one after the other, so that their order is known, and waits for all.
    private static func ask(
        _ items: [Int],
        of batcher: RequestBatcher<Int, Int>,
        while began: Steps
    ) async throws -> [Int?] {
        try await withThrowingTaskGroup(of: (Int, Int?).self) { group in
            for item in items {
                group.addTask {
                    let answer = await batcher.ask(item)
                    began.answered.add(1, ordering: .relaxed)
                    return (item, answer)
                }
                if item == items.first { for await _ in began.began.stream { break } }
            }
            do {
                defer { began.goes.continuation.yield() }
                // Before the first is let go, all others have to wait, or to be refused.
                try await eventually {
                    batcher.waitingCount + began.answered.load(ordering: .relaxed) == items.count - 1
                }
            }
            var answers: [Int: Int?] = [:]
            for try await (item, answer) in group { answers[item] = answer }
            return items.map { answers[$0] ?? nil }
        }
    }

    @Test func `What comes while a step is under way is done in the next, and everybody gets their own answer`()
        async throws
    {
        let steps = Steps()
        try await Self.with(steps) { batcher in
            let answers = try await Self.ask([1, 2, 3, 4], of: batcher, while: steps)
            #expect(answers == [10, 20, 30, 40])
            #expect(await batcher.ask(5) == 50)
        }
        let done = steps.done.withLock { $0 }
        #expect(done.map { $0.sorted() } == [[1], [2, 3, 4], [5]])
    }

    @Test func `A step takes no more than it may`() async throws {
        let steps = Steps()
        try await Self.with(batch: 2, steps) { batcher in
            let answers = try await Self.ask([1, 2, 3, 4, 5, 6], of: batcher, while: steps)
            #expect(answers == [10, 20, 30, 40, 50, 60])
        }
        #expect(steps.done.withLock { $0.map(\.count) } == [1, 2, 2, 1])
    }

    @Test func `Whose step failed gets no answer, and the next ones do`() async throws {
        let steps = Steps()
        try await Self.with(steps) { batcher in
            let answers = try await Self.ask([1, 12, 13], of: batcher, while: steps)
            #expect(answers == [10, nil, nil])
            #expect(await batcher.ask(14) == 140)
        }
    }

    @Test func `Nobody is taken beyond those that may wait`() async throws {
        let steps = Steps()
        try await Self.with(waiting: 2, steps) { batcher in
            let answers = try await Self.ask([1, 2, 3, 4, 5], of: batcher, while: steps)
            #expect(answers.first == 10)
            #expect(answers.count { $0 == nil } == 2)
        }
    }

    @Test func `After several at a time the next begin an interval later, after one at a time at once`() async throws {
        let begun = Mutex<[(at: ContinuousClock.Instant, count: Int)]>([])
        let batcher = RequestBatcher<Int, Int>(batch: 4, waiting: 10, interval: .milliseconds(300)) { items in
            begun.withLock { $0.append((.now, items.count)) }
            // Work that takes a part of the interval.
            try? await Task.sleep(for: .milliseconds(50))
            return items
        }
        // Not from the first step's own note: what begins the interval comes before it.
        let start = ContinuousClock.now
        try await withThrowingTaskGroup(of: Void.self) { group in
            // Both wait when the work begins, and the third comes as soon as they are answered.
            async let one = batcher.ask(1)
            async let two = batcher.ask(2)
            try await eventually { batcher.waitingCount == 2 }
            group.addTask { await batcher.run() }
            let answers = await [one, two]
            #expect(answers == [1, 2])
            #expect(await batcher.ask(3) == 3)
            group.cancelAll()
        }
        let steps = begun.withLock { $0 }
        #expect(steps.map(\.count) == [2, 1] && steps[1].at - start >= .milliseconds(300))
    }

    @Test(.timeLimit(.minutes(10))) func `Whoever waits at the end gets no answer, and nobody is taken after it`()
        async throws
    {
        let steps = Steps()
        let batcher = RequestBatcher<Int, Int>(batch: 4, waiting: 10, interval: .zero) { await steps.run($0) }
        try await withThrowingTaskGroup(of: Void.self) { group in
            let work = Task { await batcher.run() }
            async let first = batcher.ask(1)
            for await _ in steps.began.stream { break }
            async let second = batcher.ask(2)
            do {
                defer {
                    work.cancel()
                    steps.goes.continuation.yield()
                }
                try await eventually { batcher.waitingCount == 1 }
            }
            #expect(await first == 10)
            #expect(await second == nil)
            await work.value
            #expect(await batcher.ask(3) == nil)
            group.cancelAll()
        }
    }

    // MARK: While the database is away

    /// A database that is away for the first calls, or does not answer at all.
    private final class Away: Sendable {
        let calls = Mutex<[[Int]]>([])
        private let times: Int
        private let hangs: Bool

        init(times: Int, hangs: Bool = false) { (self.times, self.hangs) = (times, hangs) }

        func run(_ items: [Int]) async throws(DatabaseUnavailable) -> [Int]? {
            let number = calls.withLock { calls in
                calls.append(items)
                return calls.count
            }
            if hangs { try? await Task.sleep(for: .seconds(600)) }
            if number <= times { throw DatabaseUnavailable() }
            return items.map { $0 * 10 }
        }
    }

    private static func with(
        _ away: Away,
        databaseWait: Duration,
        _ body: (RequestBatcher<Int, Int>) async throws -> Void
    ) async throws {
        let batcher = RequestBatcher<Int, Int>(batch: 2, waiting: 5, interval: .zero, databaseWait: databaseWait) {
            items throws(DatabaseUnavailable) in try await away.run(items)
        }
        try await withThrowingTaskGroup(of: Void.self) { group in
            group.addTask { await batcher.run() }
            try await body(batcher)
            group.cancelAll()
        }
    }

    @Test(.timeLimit(.minutes(10)))
    func `Requests that come while the database is unavailable are answered once it is back, in order`()
        async throws
    {
        let away = Away(times: 3)
        try await Self.with(away, databaseWait: .seconds(60)) { batcher in
            async let first = batcher.ask(1)
            try await eventually { away.calls.withLock { !$0.isEmpty } }
            async let second = batcher.ask(2)
            async let third = batcher.ask(3)
            let answers = await [first, second, third]
            #expect(answers == [10, 20, 30])
            #expect(await batcher.ask(4) == 40)
        }
        let calls = away.calls.withLock { $0 }
        #expect(calls.prefix(4).allSatisfy { $0.first == 1 } && calls.last == [4], "\(calls)")
    }

    @Test(.timeLimit(.minutes(10)), arguments: [false, true])
    func `Requests that have waited long enough get no answer, whether the database is gone or hangs`(hangs: Bool)
        async throws
    {
        let away = Away(times: .max, hangs: hangs)
        try await Self.with(away, databaseWait: .milliseconds(300)) { batcher in
            async let late = batcher.ask(2, since: .now - .seconds(1))
            #expect(await batcher.ask(1) == nil)
            #expect(await late == nil)
            #expect(batcher.waitingCount == 0)
        }
    }

    @Test(.timeLimit(.minutes(10)))
    func `No request waits after the end, or beyond the room`() async throws {
        let away = Away(times: .max)
        try await Self.with(away, databaseWait: .seconds(600)) { batcher in
            try await withThrowingTaskGroup(of: Int?.self) { group in
                for item in 1...9 { group.addTask { await batcher.ask(item) } }
                // Of nine, five may wait; two more are being worked on.
                for _ in 1...2 { #expect(try await group.next() == .some(nil)) }
                try await eventually { away.calls.withLock { $0.count > 1 } }
                batcher.stopWaiting()
                for try await answer in group { #expect(answer == nil) }
            }
            #expect(await batcher.ask(1) == nil, "nobody begins to wait")
        }
    }

    @Test(.timeLimit(.minutes(10)))
    func `Without a wait a database that is unavailable is an answer at once`() async throws {
        let away = Away(times: 1)
        try await Self.with(away, databaseWait: .zero) { batcher in
            #expect(await batcher.ask(1) == nil)
            #expect(await batcher.ask(2) == 20)
        }
    }
}
