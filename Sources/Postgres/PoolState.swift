/// Who has which connection, who waits for one, and when the next attempt to connect may be made.
///
/// Pure: no I/O, no clock. A connection is *connecting* (leaves for leased, or is gone), *leased* (leaves for idle,
/// leased by the next, or is gone) or *idle* (leaves for leased, or is gone). The task that is granted a slot to
/// connect does the connecting itself.
struct PoolState {
    /// Names a connection, or the slot for one.
    typealias ConnectionID = Int
    typealias WaiterID = Int
    typealias Instant = ContinuousClock.Instant

    /// What a waiting task gets.
    enum Grant: Equatable {
        /// An open connection, and how long it has been idle; zero when it comes straight from another task.
        case lease(ConnectionID, idle: Duration)
        /// The right to open this connection.
        case connect(ConnectionID)
    }

    enum Acquisition: Equatable {
        case granted(Grant)
        /// A later grant will name the waiter.
        case queued
        case full
        case closed
    }

    /// At least 1; those that are open stay where it becomes less.
    var maxConnections: Int { didSet { maxConnections = max(1, maxConnections) } }
    private let maxWaiters: Int
    private let backoff: Backoff
    /// The most recently used last.
    private var idle: [(id: ConnectionID, since: Instant)] = []
    private(set) var leased: Set<ConnectionID> = []
    private(set) var connecting: Set<ConnectionID> = []
    /// Oldest first.
    private(set) var waiters: [WaiterID] = []
    /// Attempts to connect that failed since the last success.
    private(set) var failures = 0
    private(set) var retryAt: Instant?
    private(set) var isClosed = false
    private var lastID = 0

    init(maxConnections: Int, maxWaiters: Int, backoff: Backoff) {
        self.maxConnections = max(1, maxConnections)
        self.maxWaiters = max(0, maxWaiters)
        self.backoff = backoff
    }

    var idleCount: Int { idle.count }
    /// Whether no connection is leased or being opened.
    var isQuiet: Bool { leased.isEmpty && connecting.isEmpty }

    // MARK: Asking

    mutating func acquire(_ waiter: WaiterID, at now: Instant) -> Acquisition {
        guard !isClosed else { return .closed }
        if waiters.isEmpty, let grant = nextGrant(at: now) { return .granted(grant) }
        guard waiters.count < maxWaiters else { return .full }
        waiters.append(waiter)
        return .queued
    }

    /// Takes a waiter out of the queue; false when it has its grant already.
    mutating func abandon(_ waiter: WaiterID) -> Bool {
        guard let index = waiters.firstIndex(of: waiter) else { return false }
        waiters.remove(at: index)
        return true
    }

    // MARK: Giving back

    /// Takes back a healthy connection; false when it must be closed instead, because the pool is.
    mutating func release(_ id: ConnectionID, at now: Instant) -> Bool {
        guard leased.remove(id) != nil, !isClosed else { return false }
        idle.append((id, now))
        return true
    }

    /// Takes back the slot of a connection that is gone.
    mutating func discard(_ id: ConnectionID) {
        leased.remove(id)
        connecting.remove(id)
    }

    /// Turns the lease of a connection that proved dead into the right to open it again.
    mutating func reconnect(_ id: ConnectionID) {
        guard leased.remove(id) != nil else { return }
        connecting.insert(id)
    }

    /// Notes that a connection was opened; false when the pool was closed meanwhile.
    mutating func connected(_ id: ConnectionID) -> Bool {
        guard connecting.remove(id) != nil else { return false }
        failures = 0
        retryAt = nil
        guard !isClosed else { return false }
        leased.insert(id)
        return true
    }

    /// Notes that the server could not be reached, and makes the next attempt wait.
    ///
    /// `spread`: see `Backoff`. Returns the waiters that get the failure: all of them when no lease is out that could
    /// serve them, else none.
    mutating func connectFailed(_ id: ConnectionID, at now: Instant, spread: Double) -> [WaiterID] {
        connecting.remove(id)
        // Attempts that were under way together count as one.
        if retryAt.map({ $0 <= now }) ?? true {
            failures += 1
            retryAt = now + backoff.delay(afterFailures: failures, spread: spread)
        }
        guard leased.isEmpty, connecting.isEmpty else { return [] }
        defer { waiters = [] }
        return waiters
    }

    /// Hands out what can be handed out, oldest waiter first; to be called after everything that gives back.
    mutating func serve(at now: Instant) -> [(waiter: WaiterID, grant: Grant)] {
        var served: [(WaiterID, Grant)] = []
        while !waiters.isEmpty, let grant = nextGrant(at: now) { served.append((waiters.removeFirst(), grant)) }
        return served
    }

    /// When `serve` should be called although nothing is given back: the end of the backoff, if a task waits for it.
    var nextService: Instant? { waiters.isEmpty ? nil : retryAt }

    private mutating func nextGrant(at now: Instant) -> Grant? {
        if let (id, since) = idle.popLast() {
            leased.insert(id)
            return .lease(id, idle: now - since)
        }
        guard mayConnect(at: now) else { return nil }
        lastID += 1
        connecting.insert(lastID)
        return .connect(lastID)
    }

    private func mayConnect(at now: Instant) -> Bool {
        guard !isClosed, leased.count + connecting.count + idle.count < maxConnections else { return false }
        guard let retryAt else { return true }
        // After a failure one attempt at a time, until one succeeds.
        return now >= retryAt && connecting.isEmpty
    }

    // MARK: Ageing and ending

    mutating func removeIdle(since moment: Instant) -> [ConnectionID] {
        let old = idle.filter { $0.since <= moment }.map(\.id)
        idle.removeAll { $0.since <= moment }
        return old
    }

    /// Refuses everything from now on; returns the tasks to resume and the connections to close.
    mutating func close() -> (waiters: [WaiterID], connections: [ConnectionID]) {
        isClosed = true
        defer {
            waiters = []
            idle = []
        }
        return (waiters, idle.map(\.id))
    }
}
