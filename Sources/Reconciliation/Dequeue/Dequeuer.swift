import Entitlements
package import Logging
package import Queue
package import RateLimits
import ServiceLifecycle
import Synchronization

/// Fills free slots with due jobs and starts their reads.
///
/// At shutdown it stops dequeuing and waits for its reads to end.
package final class Dequeuer: Service {
    /// Crashes, three among other jobs and ten alone, after which a job is given up.
    private static let crashLimit = 13

    private let queue: JobQueue
    private let reader: JobReader
    private let lease: WorkerLease
    private let jobs: InFlightJobs
    private let dequeue: DequeueSignal
    private let limiter: @Sendable () -> LimiterOccupancy?
    private let isIdle: (@Sendable () async throws -> Bool)?
    private let share: BackgroundShare
    private let policy: Mutex<DequeuePolicy>
    private let isStopping = Mutex(false)
    /// When jobs were claimed last, or none were found.
    private let dequeuedAt = Mutex(ContinuousClock.now)
    private let metrics = PipelineMetrics()
    private let logger: Logger

    /// `slots`: jobs that take a slot at once, at most, which postponed jobs do not; `batch`: jobs of one dequeue, at most;
    /// `share`: what background jobs may use; `limiter`: who waits for the tokens of the store that every user is read from; `isIdle`: whether nothing else is left to
    /// do, which ends the service (`nil`: it runs until shutdown).
    package init(
        _ queue: JobQueue,
        reader: JobReader,
        lease: WorkerLease,
        jobs: InFlightJobs,
        dequeue: DequeueSignal,
        slots: Int,
        batch: Int,
        share: BackgroundShare,
        limiter: @escaping @Sendable () -> LimiterOccupancy?,
        isIdle: (@Sendable () async throws -> Bool)?,
        logger: Logger
    ) {
        self.queue = queue
        self.reader = reader
        self.lease = lease
        self.jobs = jobs
        self.dequeue = dequeue
        self.share = share
        self.limiter = limiter
        self.isIdle = isIdle
        self.logger = logger
        policy = Mutex(
            DequeuePolicy(slots: slots, batch: batch, longestPoll: isIdle == nil ? .seconds(1) : .milliseconds(100))
        )
    }

    /// How many slots background jobs may use now.
    package var backgroundSlots: Int {
        let share = share.besideRestores(at: .now)
        return policy.withLock { $0.backgroundSlots(share) }
    }

    package func run() async {
        await withGracefulShutdownHandler {
            await withDiscardingTaskGroup { reads in await repeatSteps(&reads) }
        } onGracefulShutdown: { [self] in
            logger.info("draining: no more jobs are claimed", metadata: ["jobs.in_flight": "\(jobs.count)"])
            isStopping.withLock { $0 = true }
            dequeue.raise()
            jobs.room.raise()
        }
        jobs.endAllReading()
    }

    private var load: DequeuePolicy.Load {
        let now = ContinuousClock.now
        let (slotsTaken, background) = (jobs.slotsTaken, jobs.background)
        if slotsTaken > background { share.noteRestore(at: now) }
        return DequeuePolicy.Load(
            isStopping: isStopping.withLock(\.self) || Task.isCancelled,
            isLeased: lease.epoch != nil,
            slotsTaken: slotsTaken,
            background: background,
            inFlight: jobs.count,
            runReads: jobs.runReads,
            limiter: limiter(),
            shareBesideRestores: share.besideRestores(at: now)
        )
    }

    private func repeatSteps(_ reads: inout DiscardingTaskGroup) async {
        while true {
            let load = load
            let (step, lacksRoom) = policy.withLock { ($0.next(load, at: .now), $0.lacksRoom) }
            // Before the dequeue: a batch that ends meanwhile has to raise the signal.
            jobs.lacksRoom = lacksRoom
            // At rest a dead worker's jobs would wait longer to be freed.
            if load.inFlight > 0 { ServiceScope.current?.stir() }
            switch step {
            case .stop: return
            case .wait(let duration, .signal): await waitForJobs(duration)
            case .wait(let duration, .slot): await jobs.room.wait(upTo: duration)
            case .wait(let duration, .nothing): try? await Task.sleep(for: duration, tolerance: .zero)
            case .returnUnknown, .runQuarantined, .dequeue:
                // Without a lease since the load was read, the next step waits for another one.
                guard let epoch = lease.epoch else { continue }
                guard await work(step, epoch, &reads) else { return }
            }
        }
    }

    /// Waits for jobs to come; at rest until the next one is due.
    private func waitForJobs(_ duration: Duration) async {
        guard ServiceScope.current?.restingPulse != nil else { return await dequeue.signal.wait(upTo: duration) }
        let due = try? await queue.timeUntilDue()
        await ServiceScope.pause(
            duration,
            after: dequeuedAt.withLock(\.self),
            atMost: due.map { max($0, duration) },
            wokenBy: dequeue.signal
        )
    }

    /// Does a step that needs the lease; `false`: nothing is left to do, and the worker is to end then.
    private func work(_ step: DequeuePolicy.Step, _ epoch: Int32, _ reads: inout DiscardingTaskGroup) async -> Bool {
        do {
            switch step {
            case .stop, .wait: break
            case .returnUnknown:
                try await queue.releaseAll(except: jobs.heldKeys, for: epoch)
                policy.withLock { $0.returnedUnknown() }
            case .runQuarantined(let quiet):
                let began = ContinuousClock.now
                let result = try await runQuarantined(epoch, quiet)
                policy.withLock { $0.ranQuarantined(result, began: began, at: .now) }
            case .dequeue(let limits, let total):
                let began = ContinuousClock.now
                dequeuedAt.withLock { $0 = began }
                let found = try await queue.claim(limits, upTo: total, for: epoch)
                start(found, epoch, &reads)
                let counts = Dictionary(grouping: found, by: \.lane).mapValues(\.count)
                let load = load
                policy.withLock { $0.dequeued(counts, of: limits, upTo: total, load: load, began: began, at: .now) }
                if found.isEmpty, jobs.count == 0, let isIdle, try await isIdle() { return false }
            }
        } catch {
            policy.withLock { $0.failed() }
            guard !Task.isCancelled else { return true }
            logger.warning("jobs could not be claimed; trying again", metadata: errorMetadata(error))
        }
        return true
    }

    private func start(_ found: [ClaimedJob], _ epoch: Int32, _ reads: inout DiscardingTaskGroup) {
        guard !found.isEmpty else { return }
        ServiceScope.current?.stir()
        metrics.claim(found)
        jobs.beginReading(found)
        for job in found {
            reads.addTask { [self] in
                let reading = await reader.read(job)
                jobs.endReading(ReadJob(job: job, reading: reading), epoch: epoch)
            }
        }
    }

    /// Runs a job whose workers kept dying, with no other job beside it that would end with it.
    ///
    /// Jobs that wait for a row of the host's may stay: their wait has no end that this process knows.
    private func runQuarantined(_ epoch: Int32, _ quiet: Duration) async throws -> DequeuePolicy.QuarantineResult {
        guard try await queue.hasQuarantined() else { return .none }
        guard await waitUntil(within: quiet, { jobs.busy == 0 }) else { return load.isStopping ? .none : .busy }
        guard !load.isStopping,
            let job = try await queue.claim([.init(lane: .quarantine, limit: 1)], upTo: 1, for: epoch).first
        else { return .none }
        metrics.claim([job])
        jobs.beginReading([job])
        let reading =
            job.crashes >= Self.crashLimit
            ? Reading(coverage: .none, askedAt: job.claimedAt, failure: ReadFailure(.crashed))
            : await reader.read(job)
        jobs.endReading(ReadJob(job: job, reading: reading), epoch: epoch)
        // Its own user's row may be locked by another transaction.
        _ = await waitUntil(within: DequeuePolicy.shortestQuiet) { !jobs.holds(job) }
        return .ran
    }

    /// Waits until a condition holds, at most for a time, or until a shutdown; returns whether it holds.
    private func waitUntil(within limit: Duration, _ condition: () -> Bool) async -> Bool {
        let deadline = ContinuousClock.now + limit
        while !condition() {
            guard !load.isStopping, ContinuousClock.now < deadline else { return false }
            await jobs.room.wait(upTo: .milliseconds(100))
        }
        return true
    }
}
