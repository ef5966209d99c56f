import Entitlements
import Logging
import Metrics
import Queue
import RateLimits
import Reconciliation
import StoreEvents

extension Worker {
    /// Fills free places with due jobs and starts their reads.
    func claimDuty(_ readers: inout DiscardingTaskGroup) async {
        let clock = ContinuousClock()
        var sweepRounds = 0
        var pause = Duration.milliseconds(50)
        var nextQuarantine = clock.now
        var ranAlone = false
        var patience = Self.leastPatience
        var hasStrays = false
        while !shared.isStopping, !Task.isCancelled {
            guard let epoch = shared.epoch else {
                await shared.wake.wait(upTo: .milliseconds(100))
                continue
            }
            let held = shared.flight.placesTaken
            let free = settings.concurrency - held
            if free < max(1, settings.concurrency / 4), held > 0 {
                await shared.flight.room.wait(upTo: .milliseconds(100))
                continue
            }
            do {
                if hasStrays {
                    try await queue.releaseAll(except: shared.flight.heldKeys, for: epoch)
                    hasStrays = false
                }
                if clock.now >= nextQuarantine {
                    let began = clock.now
                    nextQuarantine = began + .seconds(2)
                    let turn = try await quarantine(epoch, patience: patience)
                    ranAlone = turn == .ran
                    patience = turn == .busy ? min(patience * 2, Self.mostPatience) : Self.leastPatience
                    switch turn {
                    case .none: break
                    // As long as one ran alone, all others now have their turn.
                    case .ran: nextQuarantine = clock.now + (clock.now - began)
                    // Others waited in vain, so their turn is longer.
                    case .busy: nextQuarantine = clock.now + (clock.now - began) * 4
                    }
                }
                let began = clock.now
                let limit = min(free, settings.batch)
                let (wishes, isHeldBack) = self.wishes(limit, round: sweepRounds)
                shared.lacksRoom = wishes.count == 1 && !isHeldBack
                let jobs = try await queue.claim(wishes, upTo: limit, for: epoch)
                if wishes.count > 1 { sweepRounds += 1 }
                WorkerMetrics.shared.claim(jobs)
                guard !jobs.isEmpty else {
                    // What is announced next has it: who finds nothing keeps nobody waiting.
                    if wishes.count > 1 { shared.sweepTurn.giveBack() }
                    // The inbox first: what leaves it stands in the queue with the same commit.
                    if settings.untilIdle, shared.flight.count == 0,
                        try await !inbox.hasNew(orAsks: reader.resolve != nil),
                        try await queue.isIdle(), try await acknowledger?.records.hasOpen() != true
                    {
                        shared.stop()
                        return
                    }
                    if ranAlone, held == 0 {
                        // There are no others, so the next one need not wait for them.
                        nextQuarantine = clock.now
                        continue
                    }
                    // Their next turn is soon, and nobody tells of it.
                    await shared.wake.wait(upTo: isHeldBack ? min(pause, WorkerShared.sweepInterval) : pause)
                    guard !isHeldBack else { continue }
                    // A quiet queue is asked less often; a notification ends the pause at once.
                    pause = min(pause * 2, settings.untilIdle ? .milliseconds(100) : .seconds(1))
                    continue
                }
                pause = .milliseconds(50)
                shared.flight.beginReading(jobs)
                for job in jobs {
                    readers.addTask {
                        let reading = await reader.read(job)
                        shared.flight.endReading(ReadJob(job: job, reading: reading), epoch: epoch)
                    }
                }
                // A steady stream of single restores is claimed a few at a time.
                if jobs.count < 4, shared.flight.placesTaken >= Flight.stream {
                    try? await Task.sleep(until: began + .milliseconds(4), tolerance: .zero, clock: .continuous)
                }
                // Whatever was due has been had, and what comes is announced.
                if !JobQueue.mayHaveMore(jobs, of: wishes, upTo: limit) { await shared.wake.wait(upTo: pause) }
            } catch {
                // The claim may have been committed although its answer was lost: its jobs would be nobody's.
                hasStrays = true
                logger.warning("jobs could not be claimed; trying again", metadata: describe(error))
                try? await Task.sleep(for: .milliseconds(250))
            }
        }
    }

    /// Restores first; sweeps leave a quarter of the places free, more while people wait, and every eighth of their rounds goes
    /// the other way round so that nothing starves.
    ///
    /// `isHeldBack`: others than restores have their turn a moment later.
    ///
    /// - SeeAlso: ``BackgroundConcurrencyLimit``
    private func wishes(_ limit: Int, round: Int) -> (wishes: [JobQueue.Wish], isHeldBack: Bool) {
        let sweeps = shared.flight.sweeps
        let places = shared.backgroundLimit.places(
            of: settings.concurrency,
            someoneWaits: shared.flight.placesTaken > sweeps,
            at: .now
        )
        var rest = min(limit, places - sweeps)
        let restores = JobQueue.Wish(lane: .restore, limit: limit)
        if rest > 0, let turns = turns() {
            // Evidence and dry runs are at the gate as well, and must not shut out those who came by the queue.
            rest = min(rest, max(turns.room(besides: shared.readingForRuns), (turns.most + 1) / 2 - sweeps))
            if rest > 0, !shared.sweepTurn.isDue() { return ([restores], true) }
        }
        guard rest > 0 else { return ([restores], false) }
        let wishes: [JobQueue.Wish] = [
            restores, .init(lane: .event, limit: rest), .init(lane: .sweep, limit: rest),
        ]
        return (round % 8 == 7 ? wishes.reversed() : wishes, false)
    }

    /// What came of a try to run a job alone.
    private enum QuarantineTurn { case none, ran, busy }

    /// How long dequeuing stops at first so that a quarantined job can run alone; doubled each time that was too short.
    private static let leastPatience = Duration.seconds(5)
    /// The longest such stop: every read ends within it, whatever the stores do.
    private static let mostPatience = Duration.seconds(60)

    /// Runs a job whose workers kept dying, with nothing beside it that could die with it.
    ///
    /// Jobs that wait for a row of the host's may stay: their wait has no end that this process knows.
    private func quarantine(_ epoch: Int32, patience: Duration) async throws -> QuarantineTurn {
        guard try await queue.hasQuarantined() else { return .none }
        guard await quiet(within: patience, { shared.flight.busy == 0 }) else {
            return shared.isStopping ? .none : .busy
        }
        guard !shared.isStopping else { return .none }
        guard let job = try await queue.claim([.init(lane: .quarantine, limit: 1)], upTo: 1, for: epoch).first else {
            return .none
        }
        WorkerMetrics.shared.claim([job])
        shared.flight.beginReading([job])
        let reading =
            job.crashes >= Self.crashLimit
            ? Reading(coverage: .none, askedAt: job.claimedAt, failure: ReadFailure(.crashed))
            : await reader.read(job)
        shared.flight.endReading(ReadJob(job: job, reading: reading), epoch: epoch)
        // Its own user's row may be the one that is held.
        _ = await quiet(within: Self.leastPatience) { !shared.flight.holds(job) }
        return .ran
    }

    /// Waits until a condition holds, at most for a time, or until a shutdown.
    ///
    /// - Returns: whether it holds.
    private func quiet(within limit: Duration, _ holds: () -> Bool) async -> Bool {
        let deadline = ContinuousClock.now + limit
        while !holds() {
            guard !shared.isStopping, !Task.isCancelled, ContinuousClock.now < deadline else { return false }
            await shared.flight.room.wait(upTo: .milliseconds(100))
        }
        return true
    }

    /// Three crashes among others and ten alone.
    private static let crashLimit = 13
}
