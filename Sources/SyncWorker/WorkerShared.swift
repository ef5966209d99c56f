import FoundationEssentials
import Queue
import RateLimits
import Synchronization

/// What the duties of one worker share.
final class WorkerShared: Sendable {
    private struct State {
        var isStopping = false
        var readersAreDone = false
        var epoch: Int32?
        var lacksRoom = false
        var readingForRuns = 0
        var told: [String: ContinuousClock.Instant] = [:]
    }

    /// Under which name restores are queued in this process.
    let asker = UUID().uuidString
    let flight = Flight()
    /// Raised by notifications, by whoever queues jobs in this process, by ended jobs and a shutdown: look for due jobs.
    let wake = Signal()
    let answers = Answers()
    let backgroundLimit = BackgroundConcurrencyLimit()
    /// Whoever is claimed for a limited store has to come to its gate before it is known how many wait there.
    let sweepTurn = Throttle(every: sweepInterval)
    static let sweepInterval = Duration.milliseconds(50)
    /// Raised when sales wait to be acknowledged.
    let salesWaiting = Signal()
    /// Raised when asset runs begin.
    let assetsWaiting = Signal()
    private let stopping = Signal()
    private let state = Mutex(State())

    var isStopping: Bool { state.withLock { $0.isStopping } }
    var readersAreDone: Bool { state.withLock { $0.readersAreDone } }

    /// Whether jobs may be waiting that were not asked for, because their kind had no place left.
    var lacksRoom: Bool {
        get { state.withLock { $0.lacksRoom } }
        set { state.withLock { $0.lacksRoom = newValue } }
    }

    /// Readings of dry runs, which keep no others from the stores.
    var readingForRuns: Int { state.withLock { $0.readingForRuns } }

    /// Notes that readings of dry runs begin, or end.
    func read(forRuns count: Int) { state.withLock { $0.readingForRuns += count } }

    /// This process's lease; `nil` before the first registration and after one was lost.
    var epoch: Int32? {
        get { state.withLock { $0.epoch } }
        set { state.withLock { $0.epoch = newValue } }
    }

    /// Hears of new jobs; of those of this process it knew before the database told.
    func hear(_ payload: String) {
        if payload != asker { wake.raise() }
    }

    /// Stops claiming; what is in flight goes on.
    func stop() {
        state.withLock { $0.isStopping = true }
        stopping.raise()
        wake.raise()
        flight.room.raise()
        flight.readyToApply.raise()
        assetsWaiting.raise()
    }

    /// Whether an alarm of a name is to be logged: once a minute, for a batch may raise it many times a second.
    func mayTell(of alarm: String, at now: ContinuousClock.Instant = .now) -> Bool {
        state.withLock { state in
            if let last = state.told[alarm], now - last < .seconds(60) { return false }
            state.told[alarm] = now
            return true
        }
    }

    /// Says that no more reads will come.
    func endReading() {
        state.withLock { $0.readersAreDone = true }
        flight.readyToApply.raise()
    }

    /// Waits until a shutdown is asked for.
    func untilStopped() async {
        while !isStopping, !Task.isCancelled { await stopping.wait(upTo: .seconds(1)) }
    }
}
