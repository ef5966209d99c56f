import Entitlements
import Queue
import Synchronization

/// The jobs of this process between dequeue and end: being read, waiting to be applied, being applied, postponed.
package final class InFlightJobs: Sendable {
    /// A read job with the lease under which it was claimed.
    struct Item: Sendable {
        var read: ReadJob
        var epoch: Int32
        /// When the stores' answers were there.
        var readAt: ContinuousClock.Instant
        var notBefore: ContinuousClock.Instant?
        var postponements = 0

        func isDue(at now: ContinuousClock.Instant) -> Bool { (notBefore ?? now) <= now }

        /// Whether it is a background job, and was not postponed.
        var isBackground: Bool { read.job.lane != .restore && postponements == 0 }
    }

    private struct State {
        var reading: [Int64: [ClaimedJob]] = [:]
        var readingCount = 0
        /// By the moment of their dequeue, how many of its jobs are still being read.
        var together: [ContinuousClock.Instant: Int] = [:]
        var waiting: [Item] = []
        var applying: [Int64: Int] = [:]
        var applyingCount = 0
        /// How many of the jobs that are being applied were postponed before.
        var retriedCount = 0
        /// How many of them are background jobs that were not postponed before.
        var applyingBackground = 0

        var count: Int { readingCount + waiting.count + applyingCount }
        /// Jobs that wait for a row locked by another transaction.
        var postponed: Int { waiting.count { $0.postponements > 0 } + retriedCount }
    }

    /// How many postponed jobs take no slot; more would fill the memory with their store readings.
    static let mostPostponed = 1024

    /// How long jobs that were read wait for the jobs that were dequeued with them.
    private static let gathering = Duration.milliseconds(2)

    private let state = Mutex(State())
    private let runReading = Mutex(0)
    private let flags = Mutex((readsHaveEnded: false, lacksRoom: false))
    /// Raised when a job can be applied, for one of the tasks that wait.
    let readyToApply = Signal()
    /// Raised when the last of the jobs that were dequeued together was read.
    let readTogether = Signal()
    /// Raised when a slot is free.
    let room = Signal()

    /// Jobs that are dequeued and have not ended.
    package var count: Int { state.withLock(\.count) }

    /// How many slots are taken.
    ///
    /// A postponed job takes none, up to a bound: it waits for a transaction of the host's, whose end this process does not
    /// know, and other jobs must not wait with it.
    package var slotsTaken: Int {
        state.withLock { $0.count - min($0.postponed, Self.mostPostponed) }
    }

    /// Jobs that are being read or applied, or are about to be: without those that wait for a row locked by another transaction.
    var busy: Int {
        state.withLock { state in
            state.readingCount + state.waiting.count { $0.postponements == 0 } + state.applyingCount
        }
    }

    /// Reads of dry runs, which take no slot.
    package var runReads: Int { runReading.withLock(\.self) }

    /// Notes that reads of dry runs begin, or end.
    package func countRunReads(_ change: Int) { runReading.withLock { $0 += change } }

    /// Whether background jobs may wait that were left out of the last dequeue, for want of slots or of room at the rate limiter.
    var lacksRoom: Bool {
        get { flags.withLock(\.lacksRoom) }
        set { flags.withLock { $0.lacksRoom = newValue } }
    }

    /// Whether no more reads will come.
    var readsHaveEnded: Bool { flags.withLock(\.readsHaveEnded) }

    /// Notes that no more reads will come.
    func endAllReading() {
        flags.withLock { $0.readsHaveEnded = true }
        readyToApply.raise()
    }

    package init() {}

    func beginReading(_ jobs: [ClaimedJob]) {
        state.withLock { state in
            for job in jobs {
                state.reading[job.userKey, default: []].append(job)
                state.together[job.claimedTick, default: 0] += 1
            }
            state.readingCount += jobs.count
        }
    }

    func endReading(_ read: ReadJob, epoch: Int32) {
        let readAt = ContinuousClock.now
        let (isFirst, isLast) = state.withLock { state in
            let key = read.job.userKey
            if let index = state.reading[key]?.firstIndex(where: { $0.id == read.job.id }) {
                state.reading[key]?.remove(at: index)
                if state.reading[key]?.isEmpty == true { state.reading[key] = nil }
                state.readingCount -= 1
                let left = (state.together[read.job.claimedTick] ?? 1) - 1
                state.together[read.job.claimedTick] = left > 0 ? left : nil
            }
            // A task that an earlier job has woken takes this one along; a postponed job becomes due without a signal.
            let isFirst = !state.waiting.contains { $0.notBefore == nil }
            state.waiting.append(Item(read: read, epoch: epoch, readAt: readAt))
            return (isFirst, state.together[read.job.claimedTick] == nil)
        }
        if isFirst { readyToApply.raiseForOne() }
        if isLast { readTogether.raise() }
    }

    /// Until when jobs that were read first wait for the jobs that were dequeued with them: a transaction for each leaves a
    /// machine with a steady stream of restores no time for other work.
    ///
    /// `nil` where no job can be applied, too few are held for a stream, enough are read, or all of them.
    func gatheringEnd(at now: ContinuousClock.Instant) -> ContinuousClock.Instant? {
        state.withLock { state in
            guard state.waiting.count < DequeuePolicy.stream,
                state.count >= DequeuePolicy.stream, let first = state.waiting.first(where: { $0.isDue(at: now) }),
                state.together[first.read.job.claimedTick] != nil
            else { return nil }
            let until = first.readAt + Self.gathering
            return until > now ? until : nil
        }
    }

    /// Takes jobs that can be applied now, at most `limit`, all of one lease and of different users.
    ///
    /// One user may be here twice: after a crash of the server has undone a dequeue, the next one finds the same job again.
    func take(upTo limit: Int, at now: ContinuousClock.Instant) -> [Item] {
        let (taken, hasMore) = state.withLock { state -> ([Item], Bool) in
            guard let epoch = state.waiting.first(where: { $0.isDue(at: now) })?.epoch else { return ([], false) }
            var taken: [Item] = []
            var left: [Item] = []
            var users: Set<Int64> = []
            for item in state.waiting {
                if taken.count < limit, item.epoch == epoch, item.isDue(at: now),
                    users.insert(item.read.job.userKey).inserted
                {
                    taken.append(item)
                } else {
                    left.append(item)
                }
            }
            state.waiting = left
            state.applyingCount += taken.count
            state.retriedCount += taken.count { $0.postponements > 0 }
            state.applyingBackground += taken.count(where: \.isBackground)
            for item in taken { state.applying[item.read.job.userKey, default: 0] += 1 }
            return (taken, left.contains { $0.isDue(at: now) })
        }
        if hasMore { readyToApply.raiseForOne() }
        return taken
    }

    /// Gives back the jobs that could not be applied; the rest of `taken` is no longer held here.
    func giveBack(_ taken: [Item], putBack: [Item]) {
        state.withLock { state in
            state.applyingCount -= taken.count
            state.retriedCount -= taken.count { $0.postponements > 0 }
            state.applyingBackground -= taken.count(where: \.isBackground)
            for item in taken {
                let left = (state.applying[item.read.job.userKey] ?? 1) - 1
                state.applying[item.read.job.userKey] = left > 0 ? left : nil
            }
            state.waiting += putBack
        }
        room.raise()
        if !putBack.isEmpty { readyToApply.raise() }
    }

    /// Whether a job of the user is held here.
    func holds(_ job: ClaimedJob) -> Bool {
        let key = job.userKey
        return state.withLock { state in
            state.reading[key] != nil || state.applying[key] != nil
                || state.waiting.contains { $0.read.job.userKey == key }
        }
    }

    /// The users whose jobs this process holds.
    var heldKeys: [Int64] {
        state.withLock { state in
            Array(state.reading.keys) + state.waiting.map(\.read.job.userKey) + Array(state.applying.keys)
        }
    }

    /// Background jobs, without postponed ones.
    package var background: Int {
        state.withLock { state in
            state.reading.values.reduce(0) { $0 + $1.count { $0.lane != .restore } }
                + state.waiting.count(where: \.isBackground) + state.applyingBackground
        }
    }
}
