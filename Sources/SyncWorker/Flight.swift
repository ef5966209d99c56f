import Queue
import Reconciliation
import Synchronization

/// The jobs this process holds: claimed and being read, read and waiting to be applied, put off for a moment.
final class Flight: Sendable {
    /// A read job with the lease under which it was claimed.
    struct Item: Sendable {
        var read: ReadJob
        var epoch: Int32
        /// When the stores' answers were there.
        var readAt: ContinuousClock.Instant
        var notBefore: ContinuousClock.Instant?
        var postponements = 0
    }

    private struct State {
        var reading: [Int64: [ClaimedJob]] = [:]
        var readingCount = 0
        /// How many of those that were claimed together, at these moments, are still being read.
        var together: [ContinuousClock.Instant: Int] = [:]
        var waiting: [Item] = []
        var applying: [Int64: Int] = [:]
        var applyingCount = 0
        /// How many of those that are being applied were put off before.
        var retriedCount = 0

        /// Jobs that wait for a row which another transaction holds.
        var putOff: Int { waiting.count { $0.postponements > 0 } + retriedCount }
    }

    /// How many jobs that were put off take no place.
    ///
    /// More would fill the memory with what the stores said for them.
    static let mostPutOff = 1024

    /// As many as make a stream.
    static let stream = 16
    /// The stores answer those that were claimed together within less.
    private static let gathering = Duration.milliseconds(2)

    private let state = Mutex(State())
    /// Raised when something can be applied, for one of those who wait.
    let readyToApply = Signal()
    /// Raised when the last of those was read that were claimed together.
    let readTogether = Signal()
    /// Raised when there is room for new claims.
    let room = Signal()

    /// Everything that is claimed and has not ended.
    var count: Int { state.withLock { $0.readingCount + $0.waiting.count + $0.applyingCount } }

    /// How many places are taken.
    ///
    /// A job that was put off takes none, up to a bound: it waits for a transaction of the host's, whose end nobody here knows,
    /// and others must not wait with it.
    var placesTaken: Int {
        state.withLock { state in
            state.readingCount + state.waiting.count + state.applyingCount - min(state.putOff, Self.mostPutOff)
        }
    }

    /// What is being read or written, or is about to be: without what waits for a row that another transaction holds.
    var busy: Int {
        state.withLock { state in
            state.readingCount + state.waiting.count { $0.postponements == 0 } + state.applyingCount
        }
    }

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
            // Whoever was woken by an earlier one takes this one along; what was put off becomes due without waking anybody.
            let isFirst = !state.waiting.contains { $0.notBefore == nil }
            state.waiting.append(Item(read: read, epoch: epoch, readAt: readAt))
            return (isFirst, state.together[read.job.claimedTick] == nil)
        }
        if isFirst { readyToApply.raiseForOne() }
        if isLast { readTogether.raise() }
    }

    /// Until when those that were read first wait for those that were claimed beside them: a transaction for each leaves a
    /// machine with a steady stream of restores no time for anything else.
    ///
    /// - Returns: `nil` where nothing can be applied, too little is held for a stream, or enough is there, or all of them.
    func gathers(at now: ContinuousClock.Instant) -> ContinuousClock.Instant? {
        state.withLock { state in
            guard state.waiting.count < Self.stream,
                state.readingCount + state.waiting.count + state.applyingCount >= Self.stream,
                let first = state.waiting.first(where: { ($0.notBefore ?? now) <= now }),
                state.together[first.read.job.claimedTick] != nil
            else { return nil }
            let until = first.readAt + Self.gathering
            return until > now ? until : nil
        }
    }

    /// Takes what can be applied now, at most `limit`, all of one lease and of different users.
    ///
    /// One user may be here twice: after a crash of the server has undone a claim, the next one finds the same job again.
    func take(upTo limit: Int, at now: ContinuousClock.Instant) -> [Item] {
        let (taken, hasMore) = state.withLock { state -> ([Item], Bool) in
            guard let epoch = state.waiting.first(where: { ($0.notBefore ?? now) <= now })?.epoch else {
                return ([], false)
            }
            var taken: [Item] = []
            var left: [Item] = []
            var users: Set<Int64> = []
            for item in state.waiting {
                if taken.count < limit, item.epoch == epoch, (item.notBefore ?? now) <= now,
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
            for item in taken { state.applying[item.read.job.userKey, default: 0] += 1 }
            return (taken, left.contains { ($0.notBefore ?? now) <= now })
        }
        if hasMore { readyToApply.raiseForOne() }
        return taken
    }

    /// Gives back what could not be applied; the rest of `taken` has ended.
    func settle(_ taken: [Item], putBack: [Item]) {
        state.withLock { state in
            state.applyingCount -= taken.count
            state.retriedCount -= taken.count { $0.postponements > 0 }
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

    /// Held jobs that nobody waits for, without those that were put off.
    var sweeps: Int {
        state.withLock { state in
            state.reading.values.reduce(0) { $0 + $1.count { $0.lane != .restore } }
                + state.waiting.count { $0.read.job.lane != .restore && $0.postponements == 0 }
        }
    }
}
