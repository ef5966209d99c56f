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
    /// Workers that died with a job among others, and with it alone, before it is given up.
    private static let crashLimit = 13

    private let queue: JobQueue
    private let reader: StoreReader
    private let lease: WorkerLease
    private let jobs: InFlightJobs
    private let signal: DequeueSignal
    private let limiter: @Sendable () -> LimiterOccupancy?
    private let isIdle: (@Sendable () async throws -> Bool)?
    private let policy: Mutex<DequeuePolicy>
    private let isStopping = Mutex(false)
    private let logger: Logger

    /// - Parameters:
    ///   - queue: where jobs wait.
    ///   - reader: reads the stores for each job.
    ///   - lease: under which jobs are dequeued.
    ///   - jobs: gets the jobs.
    ///   - signal: raised when jobs may be due.
    ///   - slots: jobs that are held at once, at most.
    ///   - batch: jobs of one dequeue, at most.
    ///   - limiter: who waits for the tokens of the store that every user is read from.
    ///   - isIdle: whether nothing else is left to do; the service ends once nothing is. `nil`: it runs until shutdown.
    ///   - logger: gets failures and the shutdown.
    package init(
        _ queue: JobQueue,
        reader: StoreReader,
        lease: WorkerLease,
        jobs: InFlightJobs,
        signal: DequeueSignal,
        slots: Int,
        batch: Int,
        limiter: @escaping @Sendable () -> LimiterOccupancy?,
        isIdle: (@Sendable () async throws -> Bool)?,
        logger: Logger
    ) {
        self.queue = queue
        self.reader = reader
        self.lease = lease
        self.jobs = jobs
        self.signal = signal
        self.limiter = limiter
        self.isIdle = isIdle
        self.logger = logger
        policy = Mutex(
            DequeuePolicy(slots: slots, batch: batch, longestPoll: isIdle == nil ? .seconds(1) : .milliseconds(100))
        )
    }

    /// How many slots background jobs may use now.
    package var backgroundSlots: Int { policy.withLock { $0.backgroundSlots(at: .now) } }

    /// How long a service rests after background work that takes no slot.
    package func rest(after work: Duration) -> Duration { policy.withLock { $0.rest(after: work, at: .now) } }

    /// Notes what a restore took in this process, the stores' answers left out.
    package func noteRestore(_ time: Duration) { policy.withLock { $0.restoreEnded(after: time, at: .now) } }

    package func run() async {
        await withGracefulShutdownHandler {
            await withDiscardingTaskGroup { reads in await dequeue(&reads) }
        } onGracefulShutdown: { [self] in
            logger.info("draining: no more jobs are claimed", metadata: ["jobs.in_flight": "\(jobs.count)"])
            isStopping.withLock { $0 = true }
            signal.raise()
            jobs.room.raise()
        }
        jobs.endReading()
    }

    private var load: DequeuePolicy.Load {
        DequeuePolicy.Load(
            isStopping: isStopping.withLock(\.self) || Task.isCancelled,
            isLeased: lease.epoch != nil,
            slotsTaken: jobs.slotsTaken,
            background: jobs.background,
            inFlight: jobs.count,
            runReads: jobs.runReads,
            limiter: limiter()
        )
    }

    private func dequeue(_ reads: inout DiscardingTaskGroup) async {
        while true {
            let load = load
            let (step, lacksSlots) = policy.withLock { ($0.next(load, at: .now), $0.lacksSlots) }
            // Before the dequeue: a batch that ends meanwhile has to raise the signal.
            jobs.lacksSlots = lacksSlots
            guard step != .stop else { return }
            // Lost since the load was read: the next step waits for another one.
            guard let epoch = lease.epoch else {
                await signal.signal.wait(upTo: .milliseconds(100))
                continue
            }
            do {
                switch step {
                case .stop: return
                case .wait(let duration, .signal): await signal.signal.wait(upTo: duration)
                case .wait(let duration, .slot): await jobs.room.wait(upTo: duration)
                case .wait(let duration, .nothing): try? await Task.sleep(for: duration, tolerance: .zero)
                case .returnUnknown:
                    try await queue.releaseAll(except: jobs.heldKeys, for: epoch)
                    policy.withLock { $0.returnedUnknown() }
                case .runQuarantined(let quiet):
                    let began = ContinuousClock.now
                    let result = try await runQuarantined(epoch, quiet)
                    policy.withLock { $0.ranQuarantined(result, began: began, at: .now) }
                case .dequeue(let limits, let total):
                    let began = ContinuousClock.now
                    let found = try await queue.claim(limits, upTo: total, for: epoch)
                    start(found, epoch, &reads)
                    report(found, limits, total, began)
                    if found.isEmpty, jobs.count == 0, let isIdle, try await isIdle() { return }
                }
            } catch {
                policy.withLock { $0.failed() }
                guard !Task.isCancelled else { continue }
                logger.warning("jobs could not be claimed; trying again", metadata: errorMetadata(error))
            }
        }
    }

    private func start(_ found: [ClaimedJob], _ epoch: Int32, _ reads: inout DiscardingTaskGroup) {
        PipelineMetrics.shared.claim(found)
        jobs.beginReading(found)
        for job in found {
            reads.addTask { [self] in
                let reading = await reader.read(job)
                jobs.endReading(ReadJob(job: job, reading: reading), epoch: epoch)
            }
        }
    }

    private func report(
        _ found: [ClaimedJob],
        _ limits: [JobQueue.LaneLimit],
        _ total: Int,
        _ began: ContinuousClock.Instant
    ) {
        let counts = Dictionary(grouping: found, by: \.lane).mapValues(\.count)
        let load = load
        policy.withLock { $0.dequeued(counts, of: limits, upTo: total, load: load, began: began, at: .now) }
    }

    /// Runs a job whose workers kept dying, with no other job beside it that would end with it.
    ///
    /// Jobs that wait for a row of the host's may stay: their wait has no end that this process knows.
    private func runQuarantined(_ epoch: Int32, _ quiet: Duration) async throws -> DequeuePolicy.QuarantineResult {
        guard try await queue.hasQuarantined() else { return .none }
        guard await holds(within: quiet, { jobs.busy == 0 }) else { return load.isStopping ? .none : .busy }
        guard !load.isStopping,
            let job = try await queue.claim([.init(lane: .quarantine, limit: 1)], upTo: 1, for: epoch).first
        else { return .none }
        PipelineMetrics.shared.claim([job])
        jobs.beginReading([job])
        let reading =
            job.crashes >= Self.crashLimit
            ? Reading(coverage: .none, askedAt: job.claimedAt, failure: ReadFailure(.crashed))
            : await reader.read(job)
        jobs.endReading(ReadJob(job: job, reading: reading), epoch: epoch)
        // Its own user's row may be locked by another transaction.
        _ = await holds(within: DequeuePolicy.shortestQuiet) { !jobs.holds(job) }
        return .ran
    }

    /// Waits until a condition holds, at most for a time, or until a shutdown.
    ///
    /// - Returns: whether it holds.
    private func holds(within limit: Duration, _ condition: () -> Bool) async -> Bool {
        let deadline = ContinuousClock.now + limit
        while !condition() {
            guard !load.isStopping, ContinuousClock.now < deadline else { return false }
            await jobs.room.wait(upTo: .milliseconds(100))
        }
        return true
    }
}
