import Entitlements
import Queue
@testable import RateLimits
@testable import Reconciliation
import TestSupport
import Testing

/// When a process dequeues, and what: a model of its queue and its rate limiter goes through random loads.
struct DequeuePolicyTests {
    /// A process that does what the policy says, without waiting: time passes as the steps demand.
    private struct Model {
        static let slots = 64
        static let batch = 100

        var policy = DequeuePolicy(slots: slots, batch: batch)
        var now = ContinuousClock.now
        var waiting: [JobLane: Int] = [:]
        var dequeued: [JobLane: Int] = [:]
        /// Reads in flight and when they end, the next one first, as all take equally long.
        var reads: [(lane: JobLane, end: ContinuousClock.Instant)] = []
        /// Tokens a second of the limiter; `nil`: there is none.
        let rate: Double?
        /// From when on the limiter has a token to give, of which it keeps one at most; `nil`: there is no limiter.
        var nextToken: ContinuousClock.Instant?
        /// Background reads that wait for a token.
        var atLimiter = 0
        var longestRestoreWait = Duration.zero
        private var restoresSince: ContinuousClock.Instant?
        var quarantineResult = DequeuePolicy.QuarantineResult.none
        var quarantined = 0
        var timeInQuarantine = Duration.zero
        let readTime: Duration
        private var steps = 0

        init(readTime: Duration, rate: Double? = nil) {
            self.readTime = readTime
            self.rate = rate
            nextToken = rate.map { now + .seconds(1 / $0) }
        }

        var load: DequeuePolicy.Load {
            var load = DequeuePolicy.Load()
            load.background = atLimiter + reads.count { $0.lane != .restore }
            load.slotsTaken = atLimiter + reads.count
            load.inFlight = load.slotsTaken
            load.limiter = rate.map { LimiterOccupancy(perMinute: Int($0 * 60), waiting: atLimiter) }
            return load
        }

        /// When the next read ends or somebody at the limiter has a token, whichever is first; may be past.
        private var nextEvent: ContinuousClock.Instant? {
            let token = atLimiter > 0 ? nextToken : nil
            return [reads.first?.end, token].compactMap { $0 }.min()
        }

        /// Lets time pass: reads end, tokens come.
        mutating func pass(_ duration: Duration) {
            let end = now + duration
            while let event = nextEvent, event <= end {
                now = max(now, event)
                reads.removeFirst(reads.prefix { $0.end <= now }.count)
                if atLimiter > 0, let rate, let token = nextToken, token <= now {
                    nextToken = now + .seconds(1 / rate)
                    atLimiter -= 1
                    reads.append((.sweep, now + readTime))
                }
            }
            now = end
        }

        mutating func queue(_ lane: JobLane, _ count: Int) {
            waiting[lane, default: 0] += count
            if lane == .restore, count > 0, restoresSince == nil { restoresSince = now }
        }

        /// Does what the policy says next.
        mutating func step() async -> DequeuePolicy.Step {
            steps += 1
            // Other tests need the few threads that all tests share.
            if steps.isMultiple(of: 500) { await Task.yield() }
            let step = policy.next(load, at: now)
            switch step {
            case .stop, .returnUnknown: policy.returnedUnknown()
            // Jobs come all the time, so a signal ends the wait.
            case .wait(let duration, .signal): pass(waiting.values.contains { $0 > 0 } ? .milliseconds(1) : duration)
            case .wait(let duration, .slot):
                let (held, end) = (load.slotsTaken, now + duration)
                while now < end, load.slotsTaken == held {
                    pass(max(.zero, min(end, nextEvent ?? end) - now))
                }
            case .wait(let duration, .nothing): pass(duration)
            case .runQuarantined(let quiet):
                let began = now
                if quarantineResult == .busy { pass(quiet) }
                if quarantineResult == .ran { pass(readTime) }
                quarantined += 1
                timeInQuarantine += now - began
                policy.ranQuarantined(quarantineResult, began: began, at: now)
            case .dequeue(let limits, let total):
                let began = now
                pass(.milliseconds(1))
                var counts: [JobLane: Int] = [:]
                var left = total
                for limit in limits {
                    let count = min(left, limit.limit, waiting[limit.lane, default: 0])
                    guard count > 0 else { continue }
                    counts[limit.lane] = count
                    waiting[limit.lane, default: 0] -= count
                    dequeued[limit.lane, default: 0] += count
                    left -= count
                    if limit.lane != .restore, rate != nil {
                        atLimiter += count
                    } else {
                        for _ in 0..<count { reads.append((limit.lane, now + readTime)) }
                    }
                    if limit.lane == .restore, let since = restoresSince {
                        longestRestoreWait = max(longestRestoreWait, now - since)
                        restoresSince = waiting[.restore, default: 0] > 0 ? now : nil
                    }
                }
                policy.dequeued(counts, of: limits, upTo: total, load: load, began: began, at: now)
            }
            return step
        }
    }

    @Test(arguments: 0..<40)
    func `Restores wait for no background job, whatever the load`(seed: Int) async {
        var random = SeededGenerator(seed: UInt64(seed))
        var model = Model(readTime: .milliseconds(5 + random.below(200)), rate: random.oneIn(2) ? 8 : nil)
        model.queue(.sweep, 1_000_000)
        model.queue(.event, 1_000_000)
        let end = model.now + .seconds(20)
        while model.now < end {
            // As many restores as the slots that background jobs leave them.
            let restores = model.load.slotsTaken - model.load.background + model.waiting[.restore, default: 0]
            if random.oneIn(20), restores <= Model.slots / 4 - 4 { model.queue(.restore, 1 + random.below(3)) }
            let step = await model.step()
            if case .dequeue(let limits, let total) = step {
                #expect(limits.contains { $0.lane == .restore && $0.limit == total }, "seed \(seed)")
            }
        }
        #expect(model.longestRestoreWait <= .milliseconds(20), "seed \(seed)")
    }

    @Test(arguments: 0..<40)
    func `A flood of restores never stops background jobs`(seed: Int) async {
        var random = SeededGenerator(seed: UInt64(seed))
        var model = Model(readTime: .milliseconds(5 + random.below(100)))
        for _ in 0..<5 {
            let before = model.dequeued
            let end = model.now + .seconds(5)
            while model.now < end {
                model.queue(.restore, 200)
                model.queue(.sweep, 10)
                model.queue(.event, 10)
                _ = await model.step()
            }
            for lane in [JobLane.event, .sweep] {
                #expect(model.dequeued[lane, default: 0] > before[lane, default: 0], "seed \(seed)")
            }
            #expect(model.dequeued[.restore, default: 0] > before[.restore, default: 0])
        }
    }

    @Test(arguments: [1.0, 8, 30, 200])
    func `A store's rate limit is used to the end, and few jobs wait for it`(rate: Double) async {
        var model = Model(readTime: .milliseconds(150), rate: rate)
        model.queue(.sweep, 1_000_000)
        let end = model.now + .seconds(120)
        var most = 0
        while model.now < end {
            _ = await model.step()
            most = max(most, model.atLimiter)
        }
        #expect(Double(model.dequeued[.sweep, default: 0]) >= 0.97 * rate * 120)
        #expect(most <= 2 * LimiterOccupancy(perMinute: Int(rate * 60), waiting: 0).most)
    }

    @Test(arguments: [DequeuePolicy.QuarantineResult.ran, .busy])
    func `Quarantine ends: other jobs have at least as long as a quarantined job`(
        result: DequeuePolicy.QuarantineResult
    ) async {
        var model = Model(readTime: .milliseconds(200))
        model.quarantineResult = result
        let began = model.now
        while model.now < began + .seconds(1200) {
            model.queue(.restore, 1)
            model.queue(.sweep, 1)
            _ = await model.step()
        }
        #expect(model.quarantined > 3)
        let share = model.timeInQuarantine / (model.now - began)
        #expect(share <= (result == .busy ? 0.25 : 0.55), "\(share)")
    }

    @Test func `An empty queue is polled ever less often, and a signal is heard at once`() {
        var policy = DequeuePolicy(slots: 64, batch: 100)
        let now = ContinuousClock.now
        #expect(policy.next(.init(), at: now) == .runQuarantined(.seconds(5)))
        policy.ranQuarantined(.none, began: now, at: now)
        var polls: [Duration] = []
        for _ in 0..<7 {
            guard case .dequeue(let limits, let total) = policy.next(.init(), at: now) else { break }
            policy.dequeued([:], of: limits, upTo: total, load: .init(), began: now, at: now)
            guard case .wait(let poll, .signal) = policy.next(.init(), at: now) else { break }
            polls.append(poll)
        }
        #expect(polls == [50, 100, 200, 400, 800, 1000, 1000].map { Duration.milliseconds($0) })
    }

    @Test func `Each state has its step`() {
        var policy = DequeuePolicy(slots: 64, batch: 100)
        let now = ContinuousClock.now
        var load = DequeuePolicy.Load()
        load.isLeased = false
        #expect(policy.next(load, at: now) == .wait(.milliseconds(100), .signal))
        load.isLeased = true
        load.slotsTaken = 49
        #expect(policy.next(load, at: now) == .wait(.milliseconds(100), .slot))
        load.slotsTaken = 0
        policy.failed()
        #expect(policy.next(load, at: now) == .wait(.milliseconds(250), .nothing))
        #expect(policy.next(load, at: now) == .returnUnknown)
        #expect(policy.next(load, at: now) == .returnUnknown, "until it is done")
        policy.returnedUnknown()
        #expect(policy.next(load, at: now) == .runQuarantined(.seconds(5)))
        policy.ranQuarantined(.none, began: now, at: now)
        guard case .dequeue(_, upTo: 64) = policy.next(load, at: now) else {
            Issue.record("a process with free slots dequeues")
            return
        }
        load.isStopping = true
        #expect(policy.next(load, at: now) == .stop)
    }

    @Test func `Background jobs have three quarters of the slots without restores, else their share, one at least`() {
        let policy = DequeuePolicy(slots: 64, batch: 100)
        #expect(policy.backgroundSlots(nil) == 48)
        #expect(policy.backgroundSlots(0.125) == 8)
        #expect(DequeuePolicy(slots: 1, batch: 1).backgroundSlots(0.125) == 1)
    }

    @Test func `Background jobs under a limit are dequeued at most once in fifty milliseconds, in ten beside restores`()
    {
        for (share, milliseconds) in [(nil, 50), (0.125, 10)] as [(Double?, Int)] {
            var policy = DequeuePolicy(slots: 64, batch: 100)
            let now = ContinuousClock.now
            policy.ranQuarantined(.none, began: now, at: now)
            var load = DequeuePolicy.Load()
            load.limiter = LimiterOccupancy(perMinute: 30_000, waiting: 0)
            load.shareBesideRestores = share
            func lanes(after wait: Int) -> Int? {
                guard case .dequeue(let limits, _) = policy.next(load, at: now + .milliseconds(wait)) else {
                    return nil
                }
                return limits.count
            }
            #expect(lanes(after: 0) == 3)
            #expect(lanes(after: milliseconds - 1) == 1)
            #expect(lanes(after: milliseconds) == 3)
        }
    }

    @Test func `More may wait where a lane, or all of them together, gave all that was asked for`() {
        let limits: [JobQueue.LaneLimit] = [.init(lane: .restore, limit: 2), .init(lane: .event, limit: 5)]
        for (counts, total, isMore) in [
            ([.restore: 1, .event: 1], 9, false), ([.restore: 1, .event: 1], 2, true), ([.restore: 2], 9, true),
        ] as [([JobLane: Int], Int, Bool)] {
            var policy = DequeuePolicy(slots: 64, batch: 100)
            let now = ContinuousClock.now
            policy.ranQuarantined(.none, began: now, at: now)
            policy.dequeued(counts, of: limits, upTo: total, load: .init(), began: now, at: now)
            let step = policy.next(.init(), at: now)
            #expect((step == .wait(.milliseconds(50), .signal)) != isMore, "\(counts)")
        }
    }
}
