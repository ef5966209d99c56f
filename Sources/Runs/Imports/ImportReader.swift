package import Entitlements
package import Logging
import Postgres
package import Queue
package import Reconciliation
import ServiceLifecycle

/// Asks the stores about the lines of imports, and writes those that an operator has approved.
///
/// Before the approval and after it, the stores are asked and the line is judged in the same way.
package struct ImportReader: Service {
    package typealias Read = @Sendable (NamedPurchase, ClaimedJob) async throws(ReadFailure) -> Reading

    /// Lines of one transaction, at most.
    private static let batch = 50
    /// How often a user's rows may be locked by another transaction before the line ends.
    private static let mostPostponements = 30
    private static let locked = ReadFailure.Code.locked.rawValue
    private static let refused = ReadFailure.Code.refused.rawValue

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
                try await lines.giveBack(taken, epoch: epoch)
                return .idle
            }
        } catch {
            // A task of its own, because this one may be cancelled.
            try? await Task { try await lines.giveBack(taken, epoch: epoch) }.value
            guard !(error is CancellationError) else { return .idle }
            throw error
        }
        return .again
    }

    /// Works on lines for as long as one of them is ours.
    ///
    /// - Returns: `false`: what is left was not written, for everything is paused or the lease is over.
    private func work(_ taken: [ImportLines.Taken], epoch: Int32) async throws -> Bool {
        try await withThrowingTaskGroup(of: Bool.self) { group in
            group.addTask { try await finish(taken, epoch: epoch) }
            group.addTask {
                while !Task.isCancelled {
                    try await Task.sleep(for: .seconds(60))
                    guard try await lines.prolong(taken, epoch: epoch) else { break }
                }
                throw CancellationError()
            }
            defer { group.cancelAll() }
            return try await group.next() ?? false
        }
    }

    private func finish(_ taken: [ImportLines.Taken], epoch: Int32) async throws -> Bool {
        let answers = try await answers(to: taken)
        var kept: [ImportLines.Kept] = []
        var found: [Found] = []
        for (line, answer) in zip(taken, answers) {
            switch answer {
            case .ended(let result, let detail): kept.append(ImportLines.Kept(line, result, detail: detail))
            case .failed(let failure): kept.append(self.kept(line, after: failure))
            case .held: kept.append(postponed(line))
            case .read(let job): found.append(Found(line: line, job: job))
            }
        }
        try await lines.keep(kept, epoch: epoch)
        var postponements = 0
        while !found.isEmpty {
            guard let locked = try await write(found, epoch: epoch) else { return false }
            found = locked
            postponements += 1
            if postponements > Self.mostPostponements {
                try await lines.keep(
                    found.map { ImportLines.Kept($0.line, .unread, detail: Self.locked) },
                    epoch: epoch
                )
                break
            }
            guard !found.isEmpty else { break }
            try await Task.sleep(for: min(.milliseconds(20) * (1 << min(postponements, 6)), .seconds(1)))
        }
        return true
    }

    /// A line whose store has answered.
    private struct Found: Sendable {
        var line: ImportLines.Taken
        var job: ReadJob
    }

    /// Judges lines of one import and records what they get; by halves, which line the database refuses.
    ///
    /// - Returns: the lines whose users' rows are locked; `nil`: nothing was written.
    private func write(_ batch: [Found], epoch: Int32) async throws -> [Found]? {
        let taken = batch.map(\.line)
        do {
            return try await apply.importLines(
                batch.map(\.job),
                writes: taken.contains(where: \.isPlanned),
                epoch: epoch,
                hold: { try await ImportLines.hold(taken, epoch: epoch, on: $0) },
                keep: { connection, judged in
                    let answered = zip(batch, judged).filter { !$1.isLocked }
                    try await ImportLines.keep(answered.map { kept($0, $1) }, epoch: epoch, on: connection)
                    return zip(batch, judged).filter { $1.isLocked }.map(\.0)
                }
            )
        } catch let error where spoilsBatch(error) || isTimeout(error) {
            guard batch.count > 1 else {
                logger.error("a line of an import is refused by the database", metadata: errorMetadata(error))
                try await lines.keep(taken.map { ImportLines.Kept($0, .unread, detail: Self.refused) }, epoch: epoch)
                return []
            }
            let middle = batch.count / 2
            guard let first = try await write(Array(batch[..<middle]), epoch: epoch),
                let second = try await write(Array(batch[middle...]), epoch: epoch)
            else { return nil }
            return first + second
        }
    }

    /// What asking about a line came to.
    private enum Answer: Sendable {
        case ended(ImportResult, detail: String? = nil)
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
        guard !line.isRefused else { return .ended(.unread, detail: Self.refused) }
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

    /// What a line gets whose store gave no answer.
    private func kept(_ line: ImportLines.Taken, after failure: ReadFailure) -> ImportLines.Kept {
        let code = failure.code.rawValue
        // Lines of stores that another worker asks were left to that one.
        guard failure.code != .storeOff else { return ImportLines.Kept(line, .storeOff) }
        // No age ends a line: it may wait for days behind a million others.
        let next = retry.next(
            after: failure,
            attempt: line.lastError == Self.locked ? 0 : line.attempt,
            age: .zero,
            jitter: .random(in: 0...1),
            isRepeated: ReadFailure.isImmediateRetry(line.lastError)
        )
        guard case .again(let wait, let attempt) = next else { return ImportLines.Kept(line, .unread, detail: code) }
        var kept = ImportLines.Kept(line, nil, detail: code)
        kept.wait = wait
        kept.attempt = attempt
        return kept
    }

    /// Another transaction has locked the user's row: no store is to blame, and the failures of stores do not count.
    private func postponed(_ line: ImportLines.Taken) -> ImportLines.Kept {
        let postponements = line.lastError == Self.locked ? line.attempt : 0
        guard postponements < Self.mostPostponements else {
            return ImportLines.Kept(line, .unread, detail: Self.locked)
        }
        var kept = ImportLines.Kept(line, nil, detail: Self.locked)
        kept.wait = .milliseconds(500)
        kept.attempt = postponements + 1
        return kept
    }

    private func kept(_ found: Found, _ answer: Apply.LineAnswer) -> ImportLines.Kept {
        guard let result = answer.result else {
            // The records moved on while the store was asked: it is asked again.
            var kept = ImportLines.Kept(found.line, nil, detail: found.line.lastError)
            kept.wait = .milliseconds(500)
            return kept
        }
        var kept = ImportLines.Kept(found.line, result)
        kept.givesAccess = answer.givesAccess
        kept.identifiers = found.job.reading.observations.flatMap(\.identifiers)
        return kept
    }
}
