package import Entitlements
package import Logging
import Postgres
package import Queue
package import Reconciliation
import ServiceLifecycle

/// Asks the stores about the lines of imports, and writes those that an operator has approved.
///
/// Both ask and judge alike: what was planned is judged again by the stores and the records of that moment.
package struct ImportReader: Service {
    package typealias Read = @Sendable (NamedPurchase, ClaimedJob) async throws(ReadFailure) -> Reading

    /// Lines of one transaction, at most.
    private static let batch = 50

    private let lines: ImportLines
    private let read: Read
    private let apply: Apply
    private let retry: RetryPolicy
    /// This process's; without one others read.
    private let lease: WorkerLease
    /// How many slots background jobs may use now; half of them are for these reads.
    private let slots: @Sendable () -> Int
    private let logger: Logger

    package init(
        _ lines: ImportLines,
        read: @escaping Read,
        apply: Apply,
        retry: RetryPolicy,
        lease: WorkerLease,
        slots: @escaping @Sendable () -> Int,
        logger: Logger
    ) {
        self.lines = lines
        self.read = read
        self.apply = apply
        self.retry = retry
        self.lease = lease
        self.slots = slots
        self.logger = logger
    }

    package func run() async {
        await withDiscardingTaskGroup { group in
            // Two, so that one reads the stores while the other one writes.
            for _ in 0..<2 {
                group.addTask {
                    await PeriodicService("import reader", every: .seconds(1), logger: logger) {
                        try await step()
                    }.run()
                }
            }
        }
    }

    package func step() async throws -> PeriodicService.Next {
        guard let epoch = lease.epoch else { return .idle }
        let taken = try await lines.take(upTo: Self.batch, epoch: epoch)
        guard !taken.isEmpty else { return .again(ifAny: try await lines.settle()) }
        do {
            guard try await work(taken, epoch: epoch) else {
                try await lines.release(taken, epoch: epoch)
                return .idle
            }
        } catch {
            // A task of its own, because this one may be cancelled.
            try? await Task { try await lines.release(taken, epoch: epoch) }.value
            guard !(error is CancellationError) else { return .idle }
            throw error
        }
        return .again
    }

    /// Lines that are not this worker's any more: nothing of them is written.
    private struct LinesLost: Error {}

    /// - Returns: `false`: nothing was written, for everything is paused or the lease is over.
    private func work(_ taken: [ImportLines.Taken], epoch: Int32) async throws -> Bool {
        let answers = try await answers(to: taken)
        var kept: [ImportLines.Kept] = []
        var found: [(line: ImportLines.Taken, job: ReadJob)] = []
        for (line, answer) in zip(taken, answers) {
            switch answer {
            case .ended(let result): kept.append(ImportLines.Kept(line, result))
            case .failed(let failure): kept.append(self.kept(line, after: failure))
            case .held: kept.append(self.waiting(line))
            case .read(let job): found.append((line, job))
            }
        }
        guard !found.isEmpty else {
            try await lines.keep(kept, epoch: epoch)
            return true
        }
        return try await apply.importLines(found.map(\.job), writes: found[0].line.isPlanned, epoch: epoch) {
            connection,
            judged in
            let all = kept + zip(found, judged).map { self.kept($0.line, $0.job, $1) }
            guard try await ImportLines.keep(all, epoch: epoch, on: connection) == all.count else { throw LinesLost() }
        }
    }

    /// What asking about a line came to.
    private enum Answer: Sendable {
        case ended(ImportResult)
        case failed(ReadFailure)
        /// Another transaction has locked the user's row.
        case held
        case read(ReadJob)
    }

    /// Asks the stores, a bounded number of lines at a time: fewer while restores run.
    private func answers(to taken: [ImportLines.Taken]) async throws -> [Answer] {
        let answers = await withTaskGroup(of: (Int, Answer).self) { group in
            var answers = [Answer](repeating: .failed(ReadFailure(.interrupted)), count: taken.count)
            var next = 0
            var running = 0
            while next < taken.count || running > 0 {
                while next < taken.count, running < max(1, slots() / 2), !Task.isCancelled {
                    let (place, line) = (next, taken[next])
                    group.addTask { (place, await answer(to: line)) }
                    next += 1
                    running += 1
                }
                guard running > 0, let (place, answer) = await group.next() else { break }
                running -= 1
                answers[place] = answer
            }
            return answers
        }
        try Task.checkCancellation()
        return answers
    }

    private func answer(to line: ImportLines.Taken) async -> Answer {
        guard !line.isHeld else { return .held }
        guard let name = line.name else { return .ended(.malformed) }
        guard let job = line.job else { return .ended(.unknownUser) }
        do throws(ReadFailure) {
            let reading = try await read(name, job)
            return reading.observations.isEmpty ? .ended(.notFound) : .read(ReadJob(job: job, reading: reading))
        } catch {
            return .failed(error)
        }
    }

    private func kept(_ line: ImportLines.Taken, after failure: ReadFailure) -> ImportLines.Kept {
        if failure.code == .storeOff { return ImportLines.Kept(line, .storeOff) }
        // No age ends a line: it may wait for days behind a million others.
        let next = retry.next(after: failure, attempt: line.attempt, age: .zero, jitter: .random(in: 0...1))
        guard case .again(let wait, let attempt) = next else {
            return ImportLines.Kept(line, .unread, detail: failure.code.rawValue)
        }
        var kept = ImportLines.Kept(line, nil, detail: failure.code.rawValue)
        kept.wait = wait
        kept.attempt = attempt
        return kept
    }

    /// The user's rows are in use, or have moved on: no store is to blame, and no attempt counts.
    private func waiting(_ line: ImportLines.Taken) -> ImportLines.Kept {
        var kept = ImportLines.Kept(line, nil, detail: ReadFailure.Code.locked.rawValue)
        kept.wait = .milliseconds(500)
        kept.attempt = line.attempt
        return kept
    }

    private func kept(_ line: ImportLines.Taken, _ job: ReadJob, _ answer: Apply.LineAnswer) -> ImportLines.Kept {
        guard let result = answer.result else { return waiting(line) }
        var kept = ImportLines.Kept(line, result)
        kept.givesAccess = answer.givesAccess
        kept.identifiers = job.reading.observations.flatMap(\.identifiers)
        return kept
    }
}
