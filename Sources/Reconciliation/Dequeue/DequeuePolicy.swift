import Entitlements
import Queue
import RateLimits

/// Decides when a process dequeues, from which lanes, and how many jobs of each.
///
/// Pure: `Dequeuer` describes the load, does what `next` returns, and reports what came of it. The first row that applies
/// decides:
///
/// | state | step | until |
/// |---|---|---|
/// | shutting down | `stop` | the end |
/// | no lease | `wait` for a signal, 100 ms at most | the process is registered |
/// | waiting | `wait` as the last report demands | it is over |
/// | less than a quarter of the slots is free, and background jobs hold no more than an eighth, or none is free | `wait` for a slot, 100 ms at most | that is over |
/// | the last step failed | `returnUnknown` | `returnedUnknown` |
/// | quarantine is due | `runQuarantined` | `ranQuarantined` |
/// | any other | `dequeue` | `dequeued` or `failed` |
///
/// After a dequeue: an empty queue is polled after 50 ms, then ever less often; a lane that gave all that it was asked for is
/// dequeued again at once; a steady stream of single restores is dequeued a few at a time.
///
/// Slots are split: background jobs have the share that `BackgroundShare` leaves them. Restores come first, except in every
/// eighth dequeue, so that a flood of restores never stops background jobs. Under a store's rate limit only as many background
/// jobs are dequeued as keep the limit busy, at most once in 50 ms; a few at a time and more often while users wait, whose
/// restores would have to wait for a large batch to end.
struct DequeuePolicy {
    /// What a process holds at a moment.
    struct Load {
        var isStopping = false
        var isLeased = true
        /// Jobs that take a slot.
        var slotsTaken = 0
        /// Of them the background jobs.
        var background = 0
        /// Jobs in flight, also those that take no slot.
        var inFlight = 0
        /// Reads of dry runs, which wait for the same rate limit.
        var runReads = 0
        /// Who waits for the tokens of the store that every user is read from; `nil`: there is no limit.
        var limiter: LimiterOccupancy?
        /// The share of all slots that background jobs may use beside restores; `nil`: no restore was in flight lately.
        var shareBesideRestores: Double?
    }

    /// What ends a wait early.
    enum Event { case signal, slot, nothing }

    enum Step: Equatable {
        case stop
        case wait(Duration, Event)
        /// Give back the jobs that the database may count as dequeued, although their answer was lost.
        case returnUnknown
        /// Run a quarantined job alone, if there is one and the jobs in flight end within the time.
        case runQuarantined(Duration)
        case dequeue([JobQueue.LaneLimit], upTo: Int)
    }

    /// What came of a try to run a quarantined job.
    enum QuarantineResult { case none, ran, busy }

    /// Jobs in flight that make a steady stream.
    static let stream = 16
    private static let shortestPoll = Duration.milliseconds(50)
    /// Jobs that were dequeued for a limited store reach its rate limiter within this time.
    private static let backgroundInterval = (
        alone: Duration.milliseconds(50), besideRestores: Duration.milliseconds(10)
    )
    private static let quarantineInterval = Duration.seconds(2)
    /// How long the jobs in flight have to end before a quarantined job runs; doubled each time that was too short.
    static let shortestQuiet = Duration.seconds(5)
    private static let longestQuiet = Duration.seconds(60)

    private let slots: Int
    private let batch: Int
    private let longestPoll: Duration

    /// Waits that follow each other before the next dequeue.
    private var waits: [(duration: Duration, event: Event)] = []
    private var poll = shortestPoll
    private var hasUnknown = false
    private var rounds = 0
    private var lastBackground: ContinuousClock.Instant?
    private var nextQuarantine: ContinuousClock.Instant?
    private var quiet = shortestQuiet
    private var ranQuarantined = false
    /// The dequeue left out background jobs, for want of slots or of room at the rate limiter: they may wait although nothing was found.
    private(set) var lacksRoom = false
    private var isTooSoon = false
    /// What the last dequeue of background jobs found.
    private var hadEvents = false
    private var hadBackground = false

    /// `slots`: jobs that take a slot at once, at most, which postponed jobs do not; `batch`: jobs of one dequeue, at most;
    /// `longestPoll`: the longest pause between dequeues of an empty queue.
    init(slots: Int, batch: Int, longestPoll: Duration = .seconds(1)) {
        self.slots = slots
        self.batch = batch
        self.longestPoll = longestPoll
    }

    /// What to do next.
    mutating func next(_ load: Load, at now: ContinuousClock.Instant) -> Step {
        if load.isStopping { return .stop }
        guard load.isLeased else { return .wait(.milliseconds(100), .signal) }
        if !waits.isEmpty {
            let wait = waits.removeFirst()
            return .wait(wait.duration, wait.event)
        }
        let free = slots - load.slotsTaken
        if isFull(free, load) { return .wait(.milliseconds(100), .slot) }
        if hasUnknown { return .returnUnknown }
        if nextQuarantine.map({ now >= $0 }) ?? true {
            // Set now, so that a try that fails stops no other job.
            nextQuarantine = now + Self.quarantineInterval
            return .runQuarantined(quiet)
        }
        let limit = min(free, batch)
        return .dequeue(limits(limit, load, at: now), upTo: limit)
    }

    /// Whether to wait until more slots are free.
    ///
    /// Jobs are dequeued together, which costs less than one by one. Background jobs that hold more than an eighth of the
    /// slots keep no restore from a free one.
    private func isFull(_ free: Int, _ load: Load) -> Bool {
        guard load.slotsTaken > 0, free < max(1, slots / 4) else { return false }
        return free < 1 || load.background <= max(1, slots / 8)
    }

    /// How many slots background jobs may use; `nil`: without restores.
    func backgroundSlots(_ share: Double?) -> Int { max(1, Int(Double(slots) * (share ?? BackgroundShare.alone))) }

    private func interval(_ load: Load) -> Duration {
        load.shareBesideRestores == nil ? Self.backgroundInterval.alone : Self.backgroundInterval.besideRestores
    }

    private mutating func limits(_ limit: Int, _ load: Load, at now: ContinuousClock.Instant) -> [JobQueue.LaneLimit] {
        let restores = JobQueue.LaneLimit(lane: .restore, limit: limit)
        var rest = min(limit, backgroundSlots(load.shareBesideRestores) - load.background)
        isTooSoon = false
        if rest > 0, let limiter = load.limiter {
            // Evidence and dry runs wait for tokens as well, and must not shut out the jobs of the queue.
            rest = min(rest, max(limiter.room(besides: load.runReads), (limiter.most + 1) / 2 - load.background))
            let interval = interval(load)
            if rest > 0, let lastBackground, now - lastBackground < interval { isTooSoon = true }
        }
        lacksRoom = rest <= 0
        guard rest > 0, !isTooSoon else { return [restores] }
        lastBackground = now
        // Together no more than the rest. A lane that was empty is asked for a few, so that new jobs in it are found.
        let least = max(1, rest / 8)
        let events = hadEvents == hadBackground ? (rest + 1) / 2 : hadEvents ? rest - least : least
        let limits: [JobQueue.LaneLimit] = [
            restores, .init(lane: .event, limit: max(1, events)), .init(lane: .sweep, limit: max(1, rest - events)),
        ]
        return rounds % 8 == 7 ? limits.reversed() : limits
    }

    /// Reports a dequeue, from `began` to `now`: jobs by lane, what was asked for, and what is held now, the jobs included.
    mutating func dequeued(
        _ counts: [JobLane: Int],
        of limits: [JobQueue.LaneLimit],
        upTo total: Int,
        load: Load,
        began: ContinuousClock.Instant,
        at now: ContinuousClock.Instant
    ) {
        if limits.count > 1 {
            rounds += 1
            hadEvents = counts[.event, default: 0] > 0
            hadBackground = counts[.sweep, default: 0] > 0
        }
        let jobs = counts.values.reduce(0, +)
        guard jobs > 0 else { return foundNothing(limits, load, at: now) }
        poll = Self.shortestPoll
        let mayBeMore = jobs >= total || limits.contains { counts[$0.lane, default: 0] >= $0.limit }
        if jobs < 4, load.slotsTaken >= Self.stream, began + .milliseconds(4) > now {
            waits.append((began + .milliseconds(4) - now, .nothing))
        }
        // What was due is dequeued, and what comes is notified.
        if !mayBeMore { waits.append((poll, .signal)) }
    }

    private mutating func foundNothing(
        _ limits: [JobQueue.LaneLimit],
        _ load: Load,
        at now: ContinuousClock.Instant
    ) {
        // The next background job need not wait for the interval: none was dequeued.
        if limits.count > 1 { lastBackground = nil }
        if ranQuarantined, load.inFlight == 0 {
            // No other job waits, so the next quarantined job need not wait for them.
            nextQuarantine = now
        } else if isTooSoon {
            waits.append((min(poll, interval(load)), .signal))
        } else {
            waits.append((poll, .signal))
            poll = min(poll * 2, longestPoll)
        }
    }

    /// Reports a try to run a quarantined job.
    mutating func ranQuarantined(
        _ result: QuarantineResult,
        began: ContinuousClock.Instant,
        at now: ContinuousClock.Instant
    ) {
        ranQuarantined = result == .ran
        quiet = result == .busy ? min(quiet * 2, Self.longestQuiet) : Self.shortestQuiet
        switch result {
        case .none: nextQuarantine = began + Self.quarantineInterval
        // The other jobs have as long for themselves as this one had.
        case .ran: nextQuarantine = now + (now - began)
        // Dequeuing stopped in vain, so it goes on for longer.
        case .busy: nextQuarantine = now + (now - began) * 4
        }
    }

    /// Reports a failed dequeue, which may have been committed.
    mutating func failed() {
        hasUnknown = true
        waits = [(.milliseconds(250), .nothing)]
    }

    /// Reports that the jobs of lost answers were given back.
    mutating func returnedUnknown() { hasUnknown = false }
}
