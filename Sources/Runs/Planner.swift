import FoundationEssentials
package import Logging
package import Queue
import ServiceLifecycle

/// Plans runs, a stretch at a time, and takes them on to their ends.
///
/// Any number of processes may have one: the one that leads does it, and another one goes on where it stops.
package struct Planner: Service {
    /// How much is planned ahead.
    package struct Limits: Sendable {
        /// Sweeps' jobs in the queue, those that wait for another try included.
        package var jobs = 4000
        /// Users a stretch.
        package var batch = 500
        /// Parts of dry runs that wait or are being read.
        package var parts = 8

        package init() {}
    }

    private let lead: Leadership
    private let planning: RunPlanning
    private let forecast: RunForecast
    private let limits: Limits
    private let onFed: @Sendable () -> Void
    private let pace = RunPace()
    private let logger: Logger

    /// `onFed` is called once there is something to do for workers; the logger gets the ends of runs.
    package init(
        lead: Leadership,
        planning: RunPlanning,
        forecast: RunForecast,
        limits: Limits = Limits(),
        onFed: @escaping @Sendable () -> Void = {},
        logger: Logger
    ) {
        self.lead = lead
        self.planning = planning
        self.forecast = forecast
        self.limits = limits
        self.onFed = onFed
        self.logger = logger
    }

    package func run() async {
        await cancelWhenGracefulShutdown {
            await lead.whileLeading("runs can't be planned; trying again", logger: logger) { try await step($0) }
        }
    }

    /// Does what can be done now, and returns how long to wait before the next step.
    func step(_ fence: Int64) async throws -> Duration {
        var isBusy = try await planning.closeParts(fence: fence) > 0
        let runs = try await planning.open().sorted { ($0.urgency, $0.id) < ($1.urgency, $1.id) }
        pace.keep(runs.map(\.id))
        guard !runs.isEmpty else { return isBusy ? .milliseconds(20) : .seconds(1) }
        var room = try await planning.room(most: limits.jobs, parts: limits.parts)
        var failure: (any Error)?
        for run in runs {
            // One that can't go on keeps no other one back.
            do { isBusy = try await go(on: run, fence: fence, room: &room) || isBusy } catch { failure = error }
        }
        if let failure { throw failure }
        return isBusy ? .milliseconds(20) : .milliseconds(250)
    }

    private func go(on run: RunRecord, fence: Int64, room: inout (jobs: Int, parts: Int)) async throws -> Bool {
        var isBusy = false
        if run.total == nil, run.state == .reading {
            isBusy = try await planning.count(run.id, fence: fence)
            if !isBusy { try await planning.countSubscribers() }
        }
        let isListing = run.scope == .since && !run.isDry && run.state == .reading
        let mayEnd = isListing ? try await !planning.planListings(of: run.id, fence: fence) : true
        if run.isFed {
            if mayEnd, let state = try await planning.settle(run.id, fence: fence) {
                log(state, of: run)
                isBusy = true
            }
        } else if try await feed(run, fence: fence, room: &room) {
            isBusy = true
        }
        guard pace.isDue(run.id, at: .now) else { return isBusy }
        // A forecast that fails does not keep the run from its end.
        do { try await predictEnd(run, fence) } catch {
            logger.warning(
                "a run's end can't be foretold",
                metadata: ["run.id": "\(run.id)", "error.code": "\(type(of: error))"]
            )
        }
        return isBusy
    }

    /// Notes when a run should end, where that has changed.
    private func predictEnd(_ run: RunRecord, _ fence: Int64) async throws {
        let read = run.ended + (run.isDry ? 0 : try await planning.underway(run.id))
        let now = Date.now
        pace.note(run.id, users: read, at: now)
        let seconds = forecast.secondsLeft(of: run, read: read, pace.curve(of: run.id))
        let end = seconds.map { now.addingTimeInterval($0) }
        let isNews =
            end.map { abs($0.timeIntervalSince(run.predictedEnd ?? .distantPast)) > 2 } ?? (run.predictedEnd != nil)
        if isNews { try await planning.predict(run.id, fence: fence, endIn: seconds) }
    }

    /// Fills what room there is.
    private func feed(_ run: RunRecord, fence: Int64, room: inout (jobs: Int, parts: Int)) async throws -> Bool {
        var hasFed = false
        while run.isDry ? room.parts > 0 : room.jobs >= min(limits.batch, limits.jobs / 2) {
            guard let examined = try await planning.feed(run.id, fence: fence, batch: batch(of: run)), examined > 0
            else { break }
            hasFed = true
            if run.isDry { room.parts -= 1 } else { room.jobs -= examined }
            guard examined == batch(of: run) else { break }
        }
        if hasFed { onFed() }
        return hasFed
    }

    /// Users a stretch: of dry runs no more than are read within a minute or so.
    private func batch(of run: RunRecord) -> Int {
        run.isDry ? min(limits.batch, max(20, forecast.usersPerMinute ?? limits.batch)) : limits.batch
    }

    private func log(_ state: RunRecord.State, of run: RunRecord) {
        let metadata: Logger.Metadata = [
            "run.id": "\(run.id)", "run.scope": "\(run.scopeName)", "run.state": "\(state.rawValue)",
            "run.users": "\(run.ended)",
        ]
        if state == .stopped {
            logger.error("a run would demote more users than its limit: none of them was demoted", metadata: metadata)
        } else {
            logger.notice("a run goes on or has ended", metadata: metadata)
        }
    }
}

extension RunRecord {
    /// Which runs are fed first: what a person has confirmed, who is due, and the longest ones last.
    fileprivate var urgency: Int {
        if state == .applying { return 0 }
        switch scope {
        case .diff: return 0
        case .due: return 1
        case .since: return 2
        case .all: return 3
        }
    }
}
