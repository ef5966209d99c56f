package import Logging
import Metrics
import ServiceLifecycle
import Synchronization

/// The lease under which this process dequeues and writes.
package final class WorkerLease: Sendable {
    private let current = Mutex<Int32?>(nil)
    private let lost = Counter(label: "entitlement_sync_leases_lost_total")

    package init() {}

    /// The lease's number; `nil` before the first registration and after a lease was lost.
    package var epoch: Int32? { current.withLock { $0 } }

    func begin(_ epoch: Int32) { current.withLock { $0 = epoch } }

    /// Notes that a lease has ended; one that was taken since stays.
    package func lose(_ epoch: Int32) {
        let isLost = current.withLock { current in
            guard current == epoch else { return false }
            current = nil
            return true
        }
        if isLost { lost.increment() }
    }
}

/// Keeps this process's lease, takes a new one when it was lost, and ends it at shutdown.
package struct LeaseKeeper: Service {
    /// What the record of a worker says of its process.
    package struct Process: Sendable {
        package var host: String
        package var pid: Int32
        package var version: String
        /// The stores' lists that it can read.
        package var lists: [String]
        /// How much it may write: its MODE.
        package var mode: String?
        /// The stores that it asks.
        package var stores: [String]?
        /// Its SANDBOX; `nil`: what is on record stays.
        package var sandbox: String?

        package init(
            host: String,
            pid: Int32,
            version: String,
            lists: [String] = [],
            mode: String? = nil,
            stores: [String]? = nil,
            sandbox: String? = nil
        ) {
            self.host = host
            self.pid = pid
            self.version = version
            self.lists = lists
            self.mode = mode
            self.stores = stores
            self.sandbox = sandbox
        }
    }

    private let leases: Leases
    private let lease: WorkerLease
    private let process: Process
    private let dequeue: DequeueSignal
    private let logger: Logger

    /// `lease` gets the number; `dequeue` is raised once there is a lease.
    package init(_ leases: Leases, lease: WorkerLease, process: Process, dequeue: DequeueSignal, logger: Logger) {
        self.leases = leases
        self.lease = lease
        self.process = process
        self.dequeue = dequeue
        self.logger = logger
    }

    private var interval: Duration { max(leases.duration / 5, .milliseconds(200)) }

    package func run() async {
        let retry = min(interval, .milliseconds(500))
        await PeriodicService("lease keeper", .untilEnd, every: interval, retryingAfter: retry, logger: logger) {
            try await step()
        }.run()
    }

    /// Prolongs the lease, or registers.
    package func step() async throws -> PeriodicService.Next {
        guard let epoch = lease.epoch else {
            let epoch = try await leases.register(process)
            lease.begin(epoch)
            dequeue.raise()
            logger.info("working", metadata: ["worker.epoch": "\(epoch)"])
            // Where it may rest, it has something to say in a moment: notifications are heard by then.
            return ServiceScope.current?.mayRest == true ? .after(.milliseconds(300)) : .idle
        }
        // At rest no job is under way that another process would have to wait for.
        let longer = ServiceScope.current?.wantedPulse.map { $0 + leases.duration * 2 }
        guard try await !leases.heartbeat(epoch, resting: longer) else {
            guard longer != nil else { return .after(interval) }
            // Now that the database knows, whatever comes is notified.
            ServiceScope.current?.beginRest()
            return .idle
        }
        logger.warning("the lease has ended; registering again", metadata: ["worker.epoch": "\(epoch)"])
        lease.lose(epoch)
        return .again
    }

    /// Ends the lease, and gives back what stands under it; to be called once no batch is under way any more.
    package func end() async {
        guard let epoch = lease.epoch else { return }
        do {
            try await leases.end(epoch)
            logger.info("stopped: leases are returned", metadata: ["worker.epoch": "\(epoch)"])
        } catch {
            logger.error("leases could not be returned; they end by themselves", metadata: errorMetadata(error))
        }
    }
}
