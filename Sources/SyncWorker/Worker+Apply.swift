import Entitlements
import FoundationEssentials
import Ledger
import Logging
import Metrics
import Postgres
import Queue
import Reconciliation

extension Worker {
    /// Applies whatever has been read while the last batch was written: batches grow with the load by themselves.
    func applyDuty() async {
        let clock = ContinuousClock()
        while !Task.isCancelled {
            // Before it is looked whether the last is there: what is raised from here on is remembered. Should the other one
            // who applies forget it, the time ends the wait.
            shared.flight.readTogether.lower()
            if !shared.isStopping, let gathered = shared.flight.gathers(at: clock.now) {
                await shared.flight.readTogether.wait(upTo: gathered - clock.now)
                // It may have been another claim's last.
                continue
            }
            let items = shared.flight.take(upTo: settings.batch, at: clock.now)
            guard !items.isEmpty else {
                if shared.readersAreDone, shared.flight.count == 0 { return }
                // Short, because what was put off becomes due without a signal.
                await shared.flight.readyToApply.wait(upTo: .milliseconds(50))
                continue
            }
            let putBack = await settle(items, at: clock)
            shared.flight.settle(items, putBack: putBack)
            // Whoever claims waits for notifications and due dates, and has to hear of places only where it lacked them.
            if shared.lacksRoom || shared.flight.count == 0 { shared.wake.raise() }
        }
    }

    /// Applies a batch, and halves it where the data of one job spoils it.
    private func settle(_ items: [Flight.Item], at clock: ContinuousClock) async -> [Flight.Item] {
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
            WorkerMetrics.shared.batchSize.record(items.count)
            WorkerMetrics.shared.applyTime.recordNanoseconds((clock.now - started).wholeNanoseconds)
            switch report.halted {
            case .leaseLost:
                logger.warning("the lease has ended: its jobs are left to others", metadata: ["jobs": "\(items.count)"])
                if shared.epoch == epoch { shared.epoch = nil }
                WorkerMetrics.shared.leasesLost.increment()
                return []
            case .paused:
                try await queue.release(items.map(\.read.job.userKey), for: epoch)
                try? await Task.sleep(for: .milliseconds(500))
                return []
            case nil:
                break
            }
            tell(report.alarms)
            answer(report)
            count(report, of: items, at: clock.now)
            return postponed(report, among: items, at: clock.now)
        } catch let error where spoilsBatch(error) || (isTimeout(error) && items.count > 1) {
            return await isolate(items, error, at: clock)
        } catch {
            logger.warning("a batch could not be written; trying again", metadata: describe(error))
            try? await Task.sleep(for: .milliseconds(300))
            return items
        }
    }

    /// Longer than a batch may take, whose statements have limits of their own.
    private static let batchLimit = Duration.seconds(180)

    /// Applies a batch; `nil`: it did not end in time, and what it comes to is told by the jobs' rows alone.
    private func applied(_ items: [Flight.Item], _ epoch: Int32) async throws -> ApplyReport? {
        try await withThrowingTaskGroup(of: ApplyReport?.self) { group in
            group.addTask { try await apply(items.map(\.read), epoch: epoch) }
            group.addTask {
                try await Task.sleep(for: Self.batchLimit)
                return nil
            }
            defer { group.cancelAll() }
            return try await group.next() ?? nil
        }
    }

    /// Finds the job whose data the database refuses, by halves, and sends it back with the error.
    private func isolate(_ items: [Flight.Item], _ error: any Error, at clock: ContinuousClock) async -> [Flight.Item] {
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
                return await bury(item, for: fault)
            }
            logger.error(
                "a job's data is refused by the database",
                metadata: describe(error).merging(["job.id": "\(item.read.job.id)"]) { _, new in new }
            )
            var failed = item
            guard failed.read.reading.failure?.code != .refused else {
                return await bury(failed)
            }
            failed.read.reading = Reading(
                coverage: .none,
                askedAt: item.read.reading.askedAt,
                failure: ReadFailure(.refused)
            )
            return [failed]
        }
        return await halve(items, at: clock)
    }

    private func halve(_ items: [Flight.Item], at clock: ContinuousClock) async -> [Flight.Item] {
        let middle = items.count / 2
        let first = await settle(Array(items[..<middle]), at: clock)
        let second = await settle(Array(items[middle...]), at: clock)
        return first + second
    }

    /// Ends a job that can't even be refused in the usual way, touching neither its user nor the ledger.
    private func bury(_ item: Flight.Item, for fault: AdapterFault? = nil) async -> [Flight.Item] {
        do {
            if try await apply.bury(item.read.job, for: fault, epoch: item.epoch) { shared.wake.raise() }
            if fault != nil { tell([AdapterFault.alarm]) }
            return []
        } catch {
            logger.warning("a refused job could not be ended; trying again", metadata: describe(error))
            try? await Task.sleep(for: .seconds(1))
            return [item]
        }
    }

    private func postponed(_ report: ApplyReport, among items: [Flight.Item], at now: ContinuousClock.Instant)
        -> [Flight.Item]
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

    /// Says which alarms a batch raised, each once in a while; `doctor` shows them all.
    private func tell(_ alarms: [String]) {
        for name in alarms where shared.mayTell(of: name) {
            logger.error("an alarm was raised; doctor says what to do", metadata: ["alarm.name": "\(name)"])
        }
    }

    /// Wakes whoever goes on from here.
    private func answer(_ report: ApplyReport) {
        if report.startedRuns { shared.assetsWaiting.raise() }
        if report.acknowledges { shared.salesWaiting.raise() }
        if report.enqueued { shared.wake.raise() }
        // Where somebody waited in this process and was told, hardly anybody else waits for the same restore.
        shared.answers.add(report.ended, areTold: report.ended.allSatisfy { report.delivered.contains($0.id) })
    }

    private func count(_ report: ApplyReport, of items: [Flight.Item], at now: ContinuousClock.Instant) {
        let metrics = WorkerMetrics.shared
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
            // What others held up says nothing about this machine, nor does a retry, whose time nobody announces, or a job
            // that somebody died with.
            if item.postponements == 0, job.attempt == 0, job.crashes == 0 {
                shared.backgroundLimit.note(min(job.lateness, job.age) + (now - item.readAt), at: now)
            }
            metrics.restoreTime.recordNanoseconds((job.age + (now - job.claimedTick)).wholeNanoseconds)
        }
    }
}

extension Duration {
    fileprivate var wholeNanoseconds: Int64 {
        let (seconds, attoseconds) = components
        return seconds.multipliedReportingOverflow(by: 1_000_000_000).partialValue + attoseconds / 1_000_000_000
    }
}

/// Whether the data of one job makes the whole batch fail.
///
/// What passes by itself (a lost connection, a deadlock, a lock that was not to be had) does not.
func spoilsBatch(_ error: any Error) -> Bool {
    guard let error = error as? PostgresError else { return error is LedgerRace || error is AdapterFault }
    switch error.code {
    case .decoding, .protocolViolation: return true
    case .serverError: return !error.isRetryable && !error.isConnectionFailure && error.sqlState != "55P03"
    default: return false
    }
}

/// Whether the work took longer than one statement may: half of it takes half as long.
func isTimeout(_ error: any Error) -> Bool { (error as? PostgresError)?.code == .timeout }
