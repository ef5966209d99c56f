import Entitlements
package import Logging
package import Queue
package import RateLimits
package import Reconciliation
import ServiceLifecycle

/// Reads the users of dry runs of many, a part at a time.
package struct RunPartReader: Service {
    /// How long a part is this process's without a sign of life.
    private static let partLease = Duration.seconds(60)
    /// How often a user's rows may be locked by another transaction before the user is reported as locked.
    private static let mostPostponements = 30

    private let parts: RunParts
    private let reader: JobReader
    private let apply: Apply
    /// This process's; without one others read.
    private let lease: WorkerLease
    private let inFlight: InFlightJobs
    /// Users of one transaction, at most.
    private let batch: Int
    /// How many slots background jobs may use now; half of them are for these reads.
    private let slots: @Sendable () -> Int
    /// Who waits for the tokens of the store that every user is read from.
    private let limiter: @Sendable () -> LimiterOccupancy?
    private let logger: Logger

    package init(
        _ parts: RunParts,
        reader: JobReader,
        apply: Apply,
        lease: WorkerLease,
        inFlight: InFlightJobs,
        batch: Int,
        slots: @escaping @Sendable () -> Int,
        limiter: @escaping @Sendable () -> LimiterOccupancy?,
        logger: Logger
    ) {
        self.parts = parts
        self.reader = reader
        self.apply = apply
        self.lease = lease
        self.inFlight = inFlight
        self.batch = batch
        self.slots = slots
        self.limiter = limiter
        self.logger = logger
    }

    package func run() async {
        await withDiscardingTaskGroup { group in
            // Two, so that one reads the stores while the other one decides.
            for _ in 0..<2 {
                group.addTask {
                    await PeriodicService("run part reader", every: .seconds(1), logger: logger) {
                        try await step()
                    }.run()
                }
            }
        }
    }

    package func step() async throws -> PeriodicService.Next {
        guard let epoch = lease.epoch, let part = try await parts.take(lease: Self.partLease) else { return .idle }
        do {
            try await read(part, epoch: epoch)
        } catch {
            // A task of its own, because this one may be cancelled.
            try? await Task { try await parts.release(part) }.value
            guard !(error is CancellationError) else { return .idle }
            throw error
        }
        return .again
    }

    /// Reads a part for as long as it is ours.
    private func read(_ part: RunParts.Taken, epoch: Int32) async throws {
        try await withThrowingTaskGroup(of: Void.self) { group in
            group.addTask {
                let findings = try await findings(about: part.jobs, epoch: epoch)
                _ = try await parts.keep(findings, of: part)
            }
            group.addTask {
                while !Task.isCancelled {
                    try await Task.sleep(for: Self.partLease / 4)
                    guard try await parts.prolong(part, lease: Self.partLease) else { throw CancellationError() }
                }
            }
            defer { group.cancelAll() }
            try await group.next()
        }
    }

    /// What a job that is to be decided on again waits for.
    private struct Later {
        var job: ClaimedJob
        var due: ContinuousClock.Instant
        /// What the stores said; `nil`: they are to be asked.
        var reading: Reading?
        var postponements = 0
    }

    private func findings(about jobs: [ClaimedJob], epoch: Int32) async throws -> [Int64: Apply.BatchDryRun.Answer] {
        let clock = ContinuousClock()
        var findings: [Int64: Apply.BatchDryRun.Answer] = [:]
        var left = Dictionary(jobs.map { ($0.userKey, Later(job: $0, due: clock.now)) }) { first, _ in first }
        while !left.isEmpty {
            try Task.checkCancellation()
            let now = clock.now
            let ready = left.values.filter { $0.due <= now }
            guard !ready.isEmpty else {
                let next = left.values.map(\.due).min() ?? now
                try await Task.sleep(for: min(next - now, .seconds(1)))
                continue
            }
            let known = ready.compactMap { later in later.reading.map { ReadJob(job: later.job, reading: $0) } }
            let asked = ready.filter { $0.reading == nil }.map { later in
                var job = later.job
                job.age = now - job.claimedTick
                return job
            }
            let read = try await known + readings(of: asked)
            for start in stride(from: 0, to: read.count, by: self.batch) {
                let batch = Array(read[start..<min(start + self.batch, read.count)])
                let dryRun = try await performDryRun(batch, epoch: epoch)
                for (key, answer) in dryRun.answers {
                    findings[key] = answer
                    left[key] = nil
                }
                for (key, retry) in dryRun.retries {
                    left[key]?.job.attempt = retry.attempt
                    left[key]?.job.lastError = retry.error
                    left[key]?.reading = nil
                    left[key]?.due = clock.now + retry.after
                }
                for item in batch where dryRun.postponed.contains(item.job.userKey) {
                    guard var later = left[item.job.userKey] else { continue }
                    later.reading = item.reading
                    later.postponements += 1
                    later.due = clock.now + min(.milliseconds(20) * (1 << min(later.postponements, 6)), .seconds(1))
                    left[item.job.userKey] = later
                }
            }
            for (key, later) in left where later.postponements > Self.mostPostponements {
                findings[key] = .init(DryRunResult(error: ReadFailure.Code.locked.rawValue))
                left[key] = nil
            }
        }
        return findings
    }

    /// Decides on a batch, and finds those by halves whose data spoils it: nothing is said of them.
    private func performDryRun(_ batch: [ReadJob], epoch: Int32) async throws -> Apply.BatchDryRun {
        do {
            return try await apply.performDryRun(batch, epoch: epoch)
        } catch let error where spoilsBatch(error) || isTimeout(error) || lacksWordOfHost(error) {
            guard batch.count > 1 else {
                logger.error("a user's data is refused by the database in a dry run", metadata: errorMetadata(error))
                let refused = Apply.BatchDryRun.Answer(DryRunResult(error: ReadFailure.Code.refused.rawValue))
                return .init(answers: Dictionary(batch.map { ($0.job.userKey, refused) }) { first, _ in first })
            }
            let middle = batch.count / 2
            var dryRun = try await performDryRun(Array(batch[..<middle]), epoch: epoch)
            let rest = try await performDryRun(Array(batch[middle...]), epoch: epoch)
            dryRun.answers.merge(rest.answers) { first, _ in first }
            dryRun.retries.merge(rest.retries) { first, _ in first }
            dryRun.postponed.formUnion(rest.postponed)
            return dryRun
        }
    }

    /// Asks the stores about users, a bounded number at a time: fewer while restores run.
    private func readings(of jobs: [ClaimedJob]) async throws -> [ReadJob] {
        let read = await withTaskGroup(of: ReadJob.self) { group in
            var read: [ReadJob] = []
            read.reserveCapacity(jobs.count)
            var next = jobs.startIndex
            var running = 0
            while next < jobs.endIndex || running > 0 {
                // Those who are let go now do not wait at the limiter yet; one at a time goes on whatever others do.
                var allowed = limiter().map { max(running == 0 ? 1 : 0, ($0.most - $0.waiting) / 2) } ?? jobs.count
                while next < jobs.endIndex, running < max(1, slots() / 2), allowed > 0, !Task.isCancelled {
                    allowed -= 1
                    let job = jobs[next]
                    group.addTask { ReadJob(job: job, reading: await reader.read(job)) }
                    next += 1
                    running += 1
                    inFlight.countRunReads(1)
                }
                guard running > 0, let item = await group.next() else { break }
                running -= 1
                inFlight.countRunReads(-1)
                read.append(item)
            }
            return read
        }
        try Task.checkCancellation()
        return read
    }
}
