import Entitlements
import FoundationEssentials
import Ledger
package import Logging
import Metrics
import Postgres
package import Queue
import ServiceLifecycle
import Synchronization
import Telemetry

/// Applies jobs whose stores were read, in batches that grow with the load by themselves.
///
/// At shutdown it applies what is still read.
package final class Applier: Service {
    /// Longer than a batch may take, whose statements have limits of their own.
    private static let batchLimit = Duration.seconds(180)

    /// Raised when a batch leaves work for other services.
    package struct Signals: Sendable {
        /// Jobs may be due, or slots are free.
        package let dequeue: DequeueSignal
        /// Asset runs have begun.
        package let assets = Signal()
        /// Sales wait to be acknowledged.
        package let sales = Signal()
        /// Other users' purchases under submitted store accounts are to be searched for.
        package let accounts = Signal()

        package init(dequeue: DequeueSignal) { self.dequeue = dequeue }
    }

    private let apply: Apply
    private let queue: JobQueue
    private let lease: WorkerLease
    private let jobs: InFlightJobs
    private let notifier: OutcomeNotifier
    private let signals: Signals
    private let batch: Int
    private let restoreTook: @Sendable (Duration) -> Void
    private let metrics = PipelineMetrics()
    private let logger: Logger
    private let isStopping = Mutex(false)
    /// Limits the log lines of an alarm: a batch may raise it many times a second.
    private let alarms = LogThrottle<String>(every: .seconds(60))

    /// `batch`: jobs of one transaction, at most; `restoreTook` gets what each restore took in this process, the stores' answers
    /// left out.
    package init(
        _ apply: Apply,
        queue: JobQueue,
        lease: WorkerLease,
        jobs: InFlightJobs,
        notifier: OutcomeNotifier,
        signals: Signals,
        batch: Int,
        restoreTook: @escaping @Sendable (Duration) -> Void,
        logger: Logger
    ) {
        self.apply = apply
        self.queue = queue
        self.lease = lease
        self.jobs = jobs
        self.notifier = notifier
        self.signals = signals
        self.batch = batch
        self.restoreTook = restoreTook
        self.logger = logger
    }

    package func run() async {
        await withGracefulShutdownHandler {
            await withDiscardingTaskGroup { group in
                // Two, so that one reads its batch's records while the other one commits.
                for _ in 0..<2 { group.addTask { await self.applyBatches() } }
            }
        } onGracefulShutdown: { [self] in
            isStopping.withLock { $0 = true }
            jobs.readyToApply.raise()
        }
    }

    private func applyBatches() async {
        let clock = ContinuousClock()
        while !Task.isCancelled {
            // Before it is known whether the last is there: what is raised from here on is remembered. Should the other
            // task forget it, the time ends the wait.
            jobs.readTogether.lower()
            if !jobs.readsHaveEnded, let gathered = jobs.gatheringEnd(at: clock.now) {
                await jobs.readTogether.wait(upTo: gathered - clock.now)
                // It may have been another dequeue's last.
                continue
            }
            let items = jobs.take(upTo: batch, at: clock.now)
            guard !items.isEmpty else {
                if isStopping.withLock(\.self), jobs.readsHaveEnded, jobs.count == 0 { return }
                // Short, because a postponed job becomes due without a signal.
                await jobs.readyToApply.wait(upTo: .milliseconds(50))
                continue
            }
            let putBack = await applyHalving(items, at: clock)
            jobs.giveBack(items, putBack: putBack)
            // The dequeuer waits for notifications and due times, and has to know of free slots only where it lacked them.
            if jobs.lacksRoom || jobs.count == 0 { signals.dequeue.raise() }
        }
    }

    /// Applies a batch, and halves it where the data of one job spoils it.
    private func applyHalving(_ items: [InFlightJobs.Item], at clock: ContinuousClock) async -> [InFlightJobs.Item] {
        guard let epoch = items.first?.epoch else { return [] }
        let started = clock.now
        do {
            guard let report = try await applied(items, epoch) else {
                let jobs = items.prefix(20).map { "\($0.read.job.id)" }.joined(separator: " ")
                logger.error(
                    "a batch made no progress; it is halved, or a single job given back to the queue",
                    metadata: ["batch.jobs": "\(items.count)", "job.ids": "\(jobs)"]
                )
                // One that holds up all others is left with fewer each time.
                guard items.count == 1 else { return await halve(items, at: clock) }
                try await queue.release(items.map(\.read.job.userKey), for: epoch)
                return []
            }
            metrics.batchSize.record(items.count)
            metrics.applyTime.record(duration: clock.now - started)
            switch report.halted {
            case .leaseLost:
                logger.warning("the lease has ended: its jobs are left to others", metadata: ["jobs": "\(items.count)"])
                lease.lose(epoch)
                return []
            case .paused:
                try await queue.release(items.map(\.read.job.userKey), for: epoch)
                try? await Task.sleep(for: .milliseconds(500))
                return []
            case nil:
                break
            }
            log(report.alarms)
            signal(report)
            count(report, of: items, at: clock.now)
            return postponed(report, among: items, at: clock.now)
        } catch let error where spoilsBatch(error) || (isTimeout(error) && items.count > 1) {
            return await isolate(items, error, at: clock)
        } catch let error where lacksWordOfHost(error) && items.count > 1 {
            return await halve(items, at: clock)
        } catch {
            logger.warning("a batch could not be written; trying again", metadata: errorMetadata(error))
            try? await Task.sleep(for: .milliseconds(300))
            return items
        }
    }

    /// Applies a batch; `nil`: it did not end in time, and only the jobs' rows show what it came to.
    private func applied(_ items: [InFlightJobs.Item], _ epoch: Int32) async throws -> ApplyReport? {
        try await withThrowingTaskGroup(of: ApplyReport?.self) { group in
            group.addTask { [self] in try await apply(items.map(\.read), epoch: epoch) }
            group.addTask {
                try await Task.sleep(for: Self.batchLimit)
                return nil
            }
            defer { group.cancelAll() }
            return try await group.next() ?? nil
        }
    }

    /// Finds the job whose data the database refuses, by halves, and sends it back with the error.
    private func isolate(_ items: [InFlightJobs.Item], _ error: any Error, at clock: ContinuousClock) async
        -> [InFlightJobs.Item]
    {
        guard items.count > 1 else {
            guard let item = items.first else { return [] }
            if let fault = error as? AdapterFault {
                logger.error(
                    "the host adapter gave a value that is not allowed",
                    metadata: [
                        "adapter.function": "\(fault.function)", "adapter.field": "\(fault.field)",
                        "adapter.value": "\(fault.value ?? "NULL")", "job.id": "\(item.read.job.id)",
                    ]
                )
                return await endAsDead(item, for: fault)
            }
            logger.error(
                "a job's data is refused by the database",
                metadata: errorMetadata(error).merging(["job.id": "\(item.read.job.id)"]) { _, new in new }
            )
            var failed = item
            guard failed.read.reading.failure?.code != .refused else { return await endAsDead(failed) }
            failed.read.reading = Reading(
                coverage: .none,
                askedAt: item.read.reading.askedAt,
                failure: ReadFailure(.refused)
            )
            return [failed]
        }
        return await halve(items, at: clock)
    }

    private func halve(_ items: [InFlightJobs.Item], at clock: ContinuousClock) async -> [InFlightJobs.Item] {
        let middle = items.count / 2
        return await applyHalving(Array(items[..<middle]), at: clock) + applyHalving(Array(items[middle...]), at: clock)
    }

    /// Ends a job that can't even be refused in the usual way, touching neither its user nor the ledger.
    private func endAsDead(_ item: InFlightJobs.Item, for fault: AdapterFault? = nil) async -> [InFlightJobs.Item] {
        do {
            if try await apply.endAsDead(item.read.job, for: fault, epoch: item.epoch) { signals.dequeue.raise() }
            if fault != nil { log([AdapterFault.alarm]) }
            return []
        } catch {
            logger.warning("a refused job could not be ended; trying again", metadata: errorMetadata(error))
            try? await Task.sleep(for: .seconds(1))
            return [item]
        }
    }

    private func postponed(_ report: ApplyReport, among items: [InFlightJobs.Item], at now: ContinuousClock.Instant)
        -> [InFlightJobs.Item]
    {
        guard !report.postponed.isEmpty else { return [] }
        let keys = Set(report.postponed.map(\.job.userKey))
        return items.filter { keys.contains($0.read.job.userKey) }.map { item in
            var later = item
            later.postponements += 1
            let wait = min(Duration.milliseconds(20) * (1 << min(item.postponements, 6)), .seconds(1))
            later.notBefore = now + wait
            return later
        }
    }

    /// Logs the alarms of a batch; `doctor` shows all of them.
    private func log(_ alarms: [String]) {
        for name in alarms where self.alarms.leave(for: name) != nil {
            logger.error("an alarm was raised; doctor says what to do", metadata: ["alarm.name": "\(name)"])
        }
    }

    /// Wakes the services that go on from here.
    private func signal(_ report: ApplyReport) {
        if report.startedRuns { signals.assets.raise() }
        if report.acknowledges { signals.sales.raise() }
        if report.searchesAccounts { signals.accounts.raise() }
        if report.enqueued { signals.dequeue.raise() }
        notifier.add(report)
    }

    private func count(_ report: ApplyReport, of items: [InFlightJobs.Item], at now: ContinuousClock.Instant) {
        metrics.retried.increment(by: report.retried)
        metrics.postponed.increment(by: report.postponed.count)
        metrics.lost.increment(by: report.lost)
        metrics.assetsChanged.increment(by: report.assetsChanged)
        guard !report.ended.isEmpty else { return }
        let places = Dictionary(zip(items.map(\.read.job.id), items.indices)) { first, _ in first }
        for ended in report.ended {
            metrics.end(ended.kind, ended.outcome)
            guard let place = places[ended.id] else { continue }
            let item = items[place]
            metrics.count(item.read.reading)
            guard ended.kind == .restore else { continue }
            let job = item.read.job
            // A row locked by another transaction says nothing of this machine, nor does a retry, whose time is not notified, or
            // a job whose worker died.
            if item.postponements == 0, job.attempt == 0, job.crashes == 0 {
                restoreTook(min(job.lateness, job.age) + (now - item.readAt))
            }
            metrics.restoreTime.record(duration: job.age + (now - job.claimedTick))
        }
    }
}

/// Whether the data of one job makes the whole batch fail.
///
/// What passes by itself (a lost connection, a deadlock, a lock that was not to be had) does not.
package func spoilsBatch(_ error: any Error) -> Bool {
    guard let error = error as? PostgresError else {
        return error is LedgerRace || error is AdapterFault || error is DecodingError
    }
    switch error.code {
    case .decoding, .protocolViolation: return true
    case .serverError: return !error.isRetryable && !error.isConnectionFailure && error.sqlState != "55P03"
    default: return false
    }
}

/// Whether the host did not say of one of the users what access it gives itself: others need not wait for that.
package func lacksWordOfHost(_ error: any Error) -> Bool { error is OtherAccess.Unknown }

/// Whether the work took longer than one statement may: half of it takes half as long.
package func isTimeout(_ error: any Error) -> Bool { (error as? PostgresError)?.code == .timeout }
