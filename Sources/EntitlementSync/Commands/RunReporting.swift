import Foundation
import Diagnostics
import Entitlements
import Reports
import Runs

/// Makes a run's report.
struct RunReporting {
    let runs: RunRecords
    /// Changes that a page or a JSON document holds; a file with all of them is CSV.
    private static let shown: Int32 = 5000

    /// Gathers what is known of a run, with the first of its changes.
    func report(of run: RunRecord) async throws -> RunReport {
        var report = RunReport(
            run: run.id,
            scope: run.scopeName,
            isDryRun: run.isDry,
            state: run.state.rawValue,
            askedBy: run.askedBy,
            askedAt: run.askedAt
        )
        report.schedule = run.schedule
        report.lists = run.listings
        report.since = run.since
        report.startedAt = run.startedAt
        report.endedAt = run.endedAt
        report.predictedEnd = run.predictedEnd
        report.users = run.ended + run.skipped
        if run.skipped > 0 { report.skipped = run.skipped }
        report.total = run.total
        report.outcomes = run.outcomes
        // Of a run since an instant they had been read since.
        if run.skipped > 0, run.scope != .since { report.outcomes["not_eligible", default: 0] += run.skipped }
        report.rules = run.rules
        report.errors = run.errors
        report.held = run.state == .stopped ? run.held : 0
        report.demotionLimit = run.demotionLimit
        report.subscribers = run.subscribers
        report.hash = run.hash
        report.progress = run.progress.map { .init(at: $0.at, users: $0.users) }
        if let started = run.startedAt, let last = run.progress.last,
            case let seconds = last.at.timeIntervalSince(started),
            seconds > 0
        {
            report.usersPerSecond = Double(last.users) / seconds
        }
        count(try await runs.changeCounts(of: run.id), of: run, into: &report)
        report.drift = RunReport.Drift(
            compared: run.ended - (run.outcomes["store_unavailable"] ?? 0) - (run.outcomes["not_eligible"] ?? 0),
            agreeing: agreeing(run)
        )
        // What is known of all records is of this moment: it says nothing of a run of last month.
        if run.endedAt.map({ $0.timeIntervalSinceNow > -3600 }) ?? true,
            let drift = try await InvariantMonitor(pool: runs.pool).drift()
        {
            report.drift?.oldestEvidenceSeconds = Double(drift.oldestEvidenceSeconds)
            report.drift?.convergenceSeconds = (drift.convergence?.half, drift.convergence?.most)
        }
        report.changes = try await runs.changes(of: run.id, limit: Self.shown).map { $0.reported(in: run) }
        return report
    }

    /// Counts what is written, held, or would be written.
    private func count(_ changes: [RunRecords.ChangeCount], of run: RunRecord, into report: inout RunReport) {
        let types = changes.filter { $0.outcome == "promoted" || $0.outcome == "demoted" }
        // What was confirmed came to nothing where it is still predicted.
        report.isObserved = !run.isDry && run.scope != .diff && types.contains { $0.state == "predicted" }
        let standing = types.filter { change in
            switch change.state {
            case "applied": true
            case "held": run.state != .canceled
            case "predicted": run.isDry || report.isObserved
            default: false
            }
        }
        func users(_ changes: [RunRecords.ChangeCount]) -> Int64 { changes.reduce(0) { $0 + $1.users } }
        report.promotions = users(standing.filter { $0.outcome == "promoted" })
        let demotions = standing.filter { $0.outcome == "demoted" }
        report.demotions = users(demotions)
        // Where it is only observed the brake is not asked.
        report.announcedDemotions = users(demotions.filter { $0.isAnnounced && (run.isDry || $0.state == "applied") })
        report.applied = users(changes.filter { $0.state == "applied" })
        report.changesTotal = users(changes)
    }

    /// Users whose record agrees with the stores, by what the run found.
    ///
    /// Whose change waits agrees as well, where no store has said yet that it is due.
    private func agreeing(_ run: RunRecord) -> Int64 {
        let agreed = ["unchanged", "already_subscriber", "deferred"].reduce(0) { $0 + (run.outcomes[$1] ?? 0) }
        let held = Rule.allCases.filter(\.holdsDemotion)
        return max(0, agreed - held.reduce(0) { $0 + (run.rules[$1.rawValue] ?? 0) })
    }

    /// Writes every change as CSV, as they are read.
    func csv(of run: RunRecord, to write: (String) throws -> Void) async throws {
        try write(RunReport.csvHeader)
        try await runs.eachChange(of: run.id) { changes in
            try write(changes.map { RunReport.csvRow($0.reported(in: run)) }.joined())
        }
    }
}

extension RunRecords.Change {
    fileprivate func reported(in run: RunRecord) -> RunReport.Change {
        .init(
            userID: userID ?? "(erased)",
            outcome: outcome,
            rule: rule,
            explanation: explanation,
            typeBefore: typeBefore,
            typeAfter: typeAfter,
            assets: assets,
            state: word(in: run)
        )
    }
}
