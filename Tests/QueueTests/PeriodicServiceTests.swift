import Logging
import Queue
import ServiceLifecycle
import Synchronization
import TestSupport
import Testing

/// Services that repeat a step.
@Suite(.timeLimit(.minutes(5)))
struct PeriodicServiceTests {
    private struct Failed: Error {}

    /// What a service did, step by step.
    private final class Steps: Sendable {
        private let times = Mutex<[ContinuousClock.Instant]>([])
        let signal = Signal()

        /// Notes a step; its number, from 1.
        func note() -> Int {
            let count = times.withLock { times in
                times.append(.now)
                return times.count
            }
            signal.raise()
            return count
        }

        var count: Int { times.withLock(\.count) }
        /// The time between two steps.
        func gap(_ first: Int, _ second: Int) -> Duration { times.withLock { $0[second - 1] - $0[first - 1] } }
        func reach(_ wanted: Int) async { while count < wanted { await signal.wait(upTo: .milliseconds(20)) } }
    }

    /// Runs a service until a body has returned, then shuts it down.
    private func running(_ service: PeriodicService, _ body: @Sendable @escaping () async -> Void) async throws {
        let group = ServiceGroup(
            configuration: .init(
                services: [.init(service: service, successTerminationBehavior: .ignore)],
                logger: .quiet
            )
        )
        try await withThrowingTaskGroup(of: Void.self) { tasks in
            tasks.addTask { try await group.run() }
            await body()
            await group.triggerGracefulShutdown()
            try await tasks.waitForAll()
        }
    }

    @Test func `A step is repeated at once while there is more to do, then after the interval, which doubles`()
        async throws
    {
        let steps = Steps()
        let service = PeriodicService("test", every: .milliseconds(50), upTo: .milliseconds(150), logger: .quiet) {
            steps.note() < 20 ? .again : .idle
        }
        try await running(service) { await steps.reach(24) }
        #expect(steps.gap(20, 21) >= .milliseconds(50))
        #expect(steps.gap(21, 22) >= .milliseconds(100))
        #expect(steps.gap(22, 23) >= .milliseconds(150) && steps.gap(23, 24) >= .milliseconds(150))
        #expect((2...20).count { steps.gap($0 - 1, $0) < .milliseconds(50) } > 9)
    }

    @Test func `A service rests once the database notifies of what comes, after one more step, until something does`()
        async throws
    {
        let steps = Steps()
        // The pulse never comes.
        let rests = Mutex<[Bool]>([])
        let scope = ServiceScope(pulse: .seconds(36_000), settling: .zero) { isResting in
            rests.withLock { $0.append(isResting) }
        }
        let service = PeriodicService("test", every: .milliseconds(10), logger: .quiet) {
            _ = steps.note()
            return .idle
        }
        try await ServiceScope.$current.withValue(scope) {
            try await running(service) {
                await steps.reach(5)
                #expect(scope.wantedPulse == nil, "nothing is heard yet")
                scope.listen()
                #expect(scope.wantedPulse != nil)
                let before = steps.count
                scope.beginRest()
                await steps.reach(before + 1)
                await Self.untilQuiet(steps)
                scope.stir()
                await steps.reach(steps.count + 5)
                scope.beginRest()
                await Self.untilQuiet(steps)
                scope.stopListening()
                await steps.reach(steps.count + 5)
                scope.beginRest()
                #expect(scope.restingPulse == nil, "what is not heard of has to be read")
                #expect(rests.withLock(\.self) == [true, false, true, false])
            }
        }
    }

    private static func untilQuiet(_ steps: Steps) async {
        try? await eventually("it does not come to rest") {
            let before = steps.count
            try await Task.sleep(for: .milliseconds(300))
            return steps.count == before
        }
    }

    @Test func `At rest one service makes its step at a time`() async {
        let steps = Steps()
        let active = Atomic(0)
        let most = Atomic(0)
        let scope = ServiceScope(pulse: .milliseconds(20), settling: .zero)
        scope.listen()
        scope.beginRest()
        let services = (1...6).map { number in
            PeriodicService("test \(number)", every: .milliseconds(1), logger: .quiet) {
                let now = active.add(1, ordering: .relaxed).newValue
                if now > most.load(ordering: .relaxed) { most.store(now, ordering: .relaxed) }
                try await Task.sleep(for: .milliseconds(5))
                active.subtract(1, ordering: .relaxed)
                _ = steps.note()
                return .idle
            }
        }
        await ServiceScope.$current.withValue(scope) {
            await withTaskGroup { group in
                for service in services { group.addTask { await service.run() } }
                await steps.reach(20)
                group.cancelAll()
            }
        }
        #expect(most.load(ordering: .relaxed) == 1)
    }

    @Test func `A failed step is repeated after half a second, and after the given time where it says so`() async throws
    {
        let steps = Steps()
        let service = PeriodicService("test", every: .milliseconds(1), logger: .quiet) {
            switch steps.note() {
            case 1: throw Failed()
            case 2: .after(.milliseconds(100))
            default: .idle
            }
        }
        try await running(service) { await steps.reach(3) }
        #expect(steps.gap(1, 2) >= .milliseconds(500))
        #expect(steps.gap(2, 3) >= .milliseconds(100))
    }

    @Test func `A signal ends a pause, and a service with nothing left to do makes no further step`() async throws {
        let (steps, signal) = (Steps(), Signal())
        let service = PeriodicService("test", every: .seconds(3600), wokenBy: signal, logger: .quiet) {
            steps.note() < 3 ? .idle : .never
        }
        try await running(service) {
            for step in 1...3 {
                await steps.reach(step)
                signal.raise()
            }
        }
        #expect(steps.count == 3)
    }

    @Test func `A shutdown cancels a step that hangs`() async throws {
        let steps = Steps()
        let service = PeriodicService("test", every: .seconds(1), logger: .quiet) {
            _ = steps.note()
            // Hangs until it is cancelled.
            try await Task.sleep(for: .seconds(3600))
            return .idle
        }
        try await running(service) { await steps.reach(1) }
        #expect(steps.count == 1)
    }

    @Test func `A signal does not repeat a failed step at once`() async throws {
        let (steps, signal) = (Steps(), Signal())
        let service = PeriodicService(
            "test",
            every: .seconds(1),
            retryingAfter: .milliseconds(300),
            wokenBy: signal,
            logger: .quiet
        ) {
            signal.raise()
            _ = steps.note()
            throw Failed()
        }
        try await running(service) { await steps.reach(2) }
        #expect(steps.gap(1, 2) >= .milliseconds(300))
    }

    @Test func `While a worker drains services begin no step, but those that jobs in flight need`() async throws {
        let (work, upkeep, needed) = (Steps(), Steps(), Steps())
        let scope = ServiceScope()
        scope.stop()
        func service(_ kind: PeriodicService.Kind, _ steps: Steps) -> PeriodicService {
            PeriodicService("test", kind, every: .milliseconds(1), logger: .quiet) {
                _ = steps.note()
                return .idle
            }
        }
        await withTaskGroup(of: Void.self) { group in
            ServiceScope.$current.withValue(scope) {
                group.addTask { await service(.work, work).run() }
                group.addTask { await service(.upkeep, upkeep).run() }
                group.addTask { await service(.untilEnd, needed).run() }
            }
            await needed.reach(5)
            group.cancelAll()
        }
        #expect(work.count == 0 && upkeep.count == 0)
    }

    /// How many steps are under way, and how many were at most.
    private final class Overlap: Sendable {
        private let counts = Mutex((now: 0, most: 0))

        func begin() {
            counts.withLock { counts in
                counts.now += 1
                counts.most = max(counts.most, counts.now)
            }
        }

        func end() { counts.withLock { $0.now -= 1 } }
        var most: Int { counts.withLock(\.most) }
    }

    @Test func `Upkeep is done by one service at a time`() async throws {
        let (overlap, steps) = (Overlap(), Steps())
        let upkeep = PeriodicService("test", .upkeep, every: .milliseconds(1), logger: .quiet) {
            overlap.begin()
            // Long enough for a second service to begin beside it.
            try? await Task.sleep(for: .milliseconds(5))
            overlap.end()
            _ = steps.note()
            return .idle
        }
        await withTaskGroup(of: Void.self) { group in
            ServiceScope.$current.withValue(ServiceScope()) {
                for _ in 0..<5 { group.addTask { await upkeep.run() } }
            }
            await steps.reach(20)
            group.cancelAll()
        }
        #expect(overlap.most == 1)
    }

    @Test func `The last of a worker's work is done after a cancellation as well, within its time`() async {
        let last = Steps()
        let began = ContinuousClock.now
        await withTaskGroup(of: Void.self) { group in
            group.addTask {
                await finish(within: .milliseconds(200)) {
                    _ = last.note()
                    // Goes on past its time, which ends it.
                    try? await Task.sleep(for: .seconds(3600))
                }
            }
            group.cancelAll()
        }
        #expect(last.count == 1 && ContinuousClock.now - began < .seconds(60))
    }
}
