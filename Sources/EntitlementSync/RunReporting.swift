import Foundation
import Reports
import Storage

/// Makes a run's report.
struct RunReporting {
    let runs: Runs
    /// Changes that a page or a JSON document holds; a file with all of them is CSV.
    private static let shown: Int32 = 5000

    /// Gathers what is known of a run.
    ///
    /// - Parameter run: as it stands.
    /// - Returns: the report, with the first of the changes.
    /// - Throws: `PostgresError`.
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
        let counts = try await runs.changeCounts(of: run.id)
        report.promotions = counts["promoted"]?.values.reduce(0, +) ?? 0
        let demotions = counts["demoted"] ?? [:]
        // What came to something else when it was read anew is no demotion.
        report.demotions = demotions.reduce(0) { $1.key == "void" ? $0 : $0 + $1.value }
        report.announcedDemotions = demotions["announced"] ?? 0
        report.applied = counts.values.reduce(0) { $0 + ($1["applied"] ?? 0) }
        report.changesTotal = counts.values.flatMap(\.values).reduce(0, +)
        report.drift = RunReport.Drift(
            looked: run.ended - (run.outcomes["store_unavailable"] ?? 0) - (run.outcomes["not_eligible"] ?? 0),
            // Whose change waits agrees as well: no store has said yet that it is due.
            agreeing: ["unchanged", "already_subscriber", "deferred"].reduce(0) { $0 + (run.outcomes[$1] ?? 0) }
        )
        // What is known of all records is of this moment: it says nothing of a run of last month.
        if run.endedAt.map({ $0.timeIntervalSinceNow > -3600 }) ?? true,
            let drift = try await LawWatch(pool: runs.pool).drift()
        {
            report.drift?.oldestEvidenceSeconds = Double(drift.oldestEvidenceSeconds)
            report.drift?.convergenceSeconds = .init(p50: drift.convergence?.half, p95: drift.convergence?.most)
        }
        report.changes = try await runs.changes(of: run.id, limit: Self.shown).map(\.reported)
        return report
    }

    /// Writes every change as CSV, as they are read.
    ///
    /// - Parameters:
    ///   - run: its number.
    ///   - write: gets the lines with their ends.
    /// - Throws: `PostgresError`, and what `write` does.
    func csv(of run: Int64, to write: (String) throws -> Void) async throws {
        try write(RunReport.csvHeader)
        try await runs.eachChange(of: run) { changes in
            try write(changes.map { RunReport.csvRow($0.reported) }.joined())
        }
    }
}

extension Runs.Change {
    fileprivate var reported: RunReport.Change {
        .init(
            userID: userID ?? "(erased)",
            outcome: outcome,
            rule: rule,
            explanation: explanation,
            typeBefore: typeBefore,
            typeAfter: typeAfter,
            assets: assets,
            state: isAnnounced ? "announced" : state
        )
    }
}
