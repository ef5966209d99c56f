import Entitlements
import Logging
import Queue
import RateLimits
import Reconciliation
import Runs

extension Worker {
    /// How long a part of a dry run is this worker's without a sign of life.
    private static let partLease = Duration.seconds(60)
    /// How often somebody else may hold a user's rows before nothing is said of them.
    private static let mostPostponements = 30

    /// Reads parts of dry runs.
    func runPartDuty() async {
        guard let runParts else { return }
        await repeatedly("a part of a dry run could not be read; trying again") {
            // Planning asks for the lease; until there is one others may read.
            guard let epoch = shared.epoch, let part = try await runParts.take(lease: Self.partLease) else { return 0 }
            do {
                try await read(part, from: runParts, epoch: epoch)
            } catch {
                // A task of its own, because this one may be cancelled.
                try? await Task { try await runParts.release(part) }.value
                guard !(error is CancellationError) else { return 0 }
                throw error
            }
            return 1
        }
    }

    /// Reads a part for as long as it is ours.
    private func read(_ part: RunParts.Taken, from parts: RunParts, epoch: Int32) async throws {
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
            for start in stride(from: 0, to: read.count, by: settings.batch) {
                let batch = Array(read[start..<min(start + settings.batch, read.count)])
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
        } catch let error where spoilsBatch(error) || isTimeout(error) {
            guard batch.count > 1 else {
                logger.error("a user's data is refused by the database in a dry run", metadata: describe(error))
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

    /// Asks the stores about users, a bounded number at a time: fewer while somebody waits for an answer.
    private func readings(of jobs: [ClaimedJob]) async throws -> [ReadJob] {
        let read = await withTaskGroup(of: ReadJob.self) { group in
            var read: [ReadJob] = []
            read.reserveCapacity(jobs.count)
            var next = jobs.startIndex
            var running = 0
            while next < jobs.endIndex || running > 0 {
                // Those who are let go now are not at the gate yet; one at a time goes on whatever others do.
                var allowed = turns().map { max(running == 0 ? 1 : 0, ($0.most - $0.waiting) / 2) } ?? jobs.count
                while next < jobs.endIndex, running < runPlaces, allowed > 0, !Task.isCancelled {
                    allowed -= 1
                    let job = jobs[next]
                    group.addTask { ReadJob(job: job, reading: await reader.read(job)) }
                    next += 1
                    running += 1
                    shared.read(forRuns: 1)
                }
                guard running > 0, let item = await group.next() else { break }
                running -= 1
                shared.read(forRuns: -1)
                read.append(item)
            }
            return read
        }
        try Task.checkCancellation()
        return read
    }

    private var runPlaces: Int {
        let places = shared.backgroundLimit.places(
            of: settings.concurrency,
            someoneWaits: shared.flight.placesTaken > shared.flight.sweeps,
            at: .now
        )
        return max(1, places / 2)
    }
}
