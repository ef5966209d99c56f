import ArgumentParser
import Composition
import Entitlements
import Foundation
import Postgres
import Reconciliation
import Reports
import Runs
import UserRequests

struct Reconcile: Command {
    static let configuration = CommandConfiguration(
        abstract: "Re-reads users and makes their records true: some, everybody who is due, or everybody.",
        json:
            "a line for each user: user_id, job_id, outcome, rule, explanation; a dry run adds dry_run, type_before, type_after, assets, paused; then {\"summary\": {outcome: users}}, or of a run what runs list prints",
        examples: ["reconcile uid-1 uid-2", "reconcile --all --dry-run"]
    )

    @Argument(help: "The users' ids.")
    var users: [String] = []

    @Flag(help: "Every user whose next check is due.")
    var due = false

    @Flag(help: "Every user of the application.")
    var all = false

    @Option(
        help: """
            Every known user who was not read since an instant, such as 2027-01-31T12:00:00Z, and those that stores' lists \
            of what they sent since lead to.
            """
    )
    var since: String?

    @Flag(help: "With --since: read only those that stores' lists lead to.")
    var listedOnly = false

    @Option(
        help: "Write no demotion of a run where there would be more than this; ends that were announced do not count."
    )
    var maxDemotions: Int32?

    @Option(help: "Seconds to wait for the outcomes (by default an hour, for a run a week).")
    var wait: Int?

    @Flag(help: "Only say what would be decided: stores are read, and nothing is changed.")
    var dryRun = false

    @OptionGroup var options: OutputOptions

    func validate() throws {
        let runs = [due, all, since != nil].count { $0 }
        guard !listedOnly || since != nil else { throw ValidationError("--listed-only: with --since") }
        guard runs <= 1, (runs == 0) != users.isEmpty else {
            throw ValidationError("name at least one user, or one of --due, --all and --since, and nothing besides")
        }
        guard maxDemotions == nil || runs == 1 else {
            throw ValidationError("--max-demotions: of a run; name --due, --all or --since")
        }
        guard maxDemotions.map({ $0 >= 0 }) ?? true else { throw ValidationError("--max-demotions: give 0 or more") }
        guard !listedOnly || since != nil && !dryRun && maxDemotions == nil else {
            throw ValidationError("--listed-only: with --since, and without --dry-run and --max-demotions")
        }
        guard wait.map({ (0...604_800).contains($0) }) ?? true else {
            throw ValidationError("--wait: give seconds from 0 to 604800")
        }
    }

    func prepare() throws -> PostgresTimestamp? {
        try since.map { try Moment(argument: $0, name: "--since").timestamp }
    }

    func answer(_ since: PostgresTimestamp?, _ database: Database) async throws -> Answer {
        if users.isEmpty {
            let command = RunFollowing(runs: RunRecords(pool: database.pool), output: options.output)
            let status = try await command.ask(
                due ? .due : all ? .all : .since,
                isDry: dryRun,
                since: since,
                listsOnly: listedOnly,
                maxDemotions: maxDemotions,
                waiting: .seconds(wait ?? 604_800)
            )
            return .printed(status)
        }
        let (lines, ended) = dryRun ? try await predicted(database.pool) : try await reconciled(database.pool)
        try print(lines)
        let isUnavailable = lines.contains { $0.outcome == Outcome.storeUnavailable.rawValue }
        return .printed(!ended ? .elapsed : isUnavailable ? .unavailable : .done)
    }

    /// Has a worker reconcile the users.
    private func reconciled(_ pool: PostgresPool) async throws -> (lines: [ReconcileLine], ended: Bool) {
        let requests = Requests(pool: pool)
        let ids = try await queued(requests)
        let ended = try await Waiting(requests: requests).untilEnded(ids, within: .seconds(wait ?? 3600)) {
            Output.progress($0, of: ids.count)
        }
        let statuses = Dictionary(try await requests.status(ids).map { ($0.id, $0) }) { first, _ in first }
        let decisions = try await requests.decisions(ids)
        let lines = zip(users, ids).map { user, id in
            ReconcileLine(
                userID: user,
                jobID: id,
                outcome: statuses[id]?.outcome ?? statuses[id]?.state,
                rule: decisions[id]?.rule,
                explanation: decisions[id]?.explanation ?? statuses[id]?.lastError
            )
        }
        return (lines, ended)
    }

    /// - Throws: `CommandFailure` that names the users which the application does not have: one of many is hard to find.
    private func queued(_ requests: Requests) async throws -> [UUID] {
        do { return try await requests.reconcile(users, reason: "manual") } catch let error as PostgresError
            where error.sqlState == "ES001"
        {
            guard let unknown = try? await requests.unknown(among: users), !unknown.isEmpty else { throw error }
            let named = unknown.prefix(20).joined(separator: ", ") + (unknown.count > 20 ? ", …" : "")
            throw CommandFailure(.data, "user_id: no such user: \(named). No user was queued; leave them out.")
        }
    }

    /// Has a worker say what it would decide.
    private func predicted(_ pool: PostgresPool) async throws -> (lines: [ReconcileLine], ended: Bool) {
        let dryRuns = DryRuns(pool: pool)
        let ids = try await dryRuns.ask(users)
        let deadline = ContinuousClock.now + .seconds(wait ?? 3600)
        var answers = try await dryRuns.answers(ids)
        while answers.count < Set(ids).count, ContinuousClock.now < deadline {
            Output.progress(answers.count, of: ids.count)
            try await Task.sleep(for: .milliseconds(250))
            answers = try await dryRuns.answers(ids)
        }
        let lines = zip(users, ids).map { user, id in
            let answer = answers[id]
            return ReconcileLine(
                userID: user,
                outcome: answer?.outcome ?? "queued",
                rule: answer?.rule,
                explanation: answer?.explanation ?? answer?.error,
                predicted: answer ?? DryRunResult()
            )
        }
        return (lines, answers.count == Set(ids).count)
    }

    private func print(_ lines: [ReconcileLine]) throws {
        let counts = Dictionary(grouping: lines) { $0.outcome ?? "unknown" }.mapValues(\.count)
        switch options.output {
        case .json:
            for line in lines { try Output.json(line.json) }
            try Output.json(["summary": counts])
        case .text:
            Output.table(
                ["user", "outcome", "rule", "why"] + (dryRun ? ["type", "assets"] : []),
                lines.map {
                    [$0.userID ?? "-", $0.outcome ?? "-", $0.rule ?? "-", $0.explanation ?? "-"]
                        + ($0.predicted.map { [Self.change($0), "\($0.assets)"] } ?? [])
                }
            )
            let sums = counts.sorted { $0.key < $1.key }.map { "\($0.value) \($0.key)" }.joined(separator: ", ")
            Output.line(dryRun ? "dry run, nothing was changed: \(sums)" : sums)
            if lines.contains(where: { $0.predicted?.isPaused == true }) {
                Output.line("everything is paused: a reconcile itself would wait until entitlement-sync resume")
            }
        }
    }

    private static func change(_ answer: DryRunResult) -> String {
        guard let before = answer.typeBefore, let after = answer.typeAfter else { return "-" }
        return before == after ? before : "\(before) -> \(after)"
    }
}

/// What became of a user, as `reconcile` prints it.
struct ReconcileLine {
    var userID: String?
    /// `nil`, printed as null: a dry run is no job.
    var jobID: UUID?
    var outcome: String?
    var rule: String?
    var explanation: String?
    /// What else a dry run says; left out where it is none.
    var predicted: DryRunResult?

    var json: JSONObject {
        let line: JSONObject = [
            "user_id": userID, "job_id": jobID?.uuidString.lowercased(), "outcome": outcome, "rule": rule,
            "explanation": explanation,
        ]
        guard let predicted else { return line }
        let dryRun: JSONObject = [
            "dry_run": true, "type_before": predicted.typeBefore, "type_after": predicted.typeAfter,
            "assets": predicted.assets, "paused": predicted.isPaused,
        ]
        return (line + dryRun).adding("error", predicted.error)
    }
}

extension ReconcileLine {
    /// A line of a run.
    init(_ line: RunRecords.Line, isDry: Bool) {
        self.init(
            userID: line.userID,
            jobID: line.jobID,
            outcome: line.outcome,
            rule: line.rule,
            explanation: line.explanation
        )
        guard isDry else { return }
        var predicted = DryRunResult()
        predicted.typeBefore = line.typeBefore
        predicted.typeAfter = line.typeAfter
        predicted.assets = Int(line.assets ?? 0)
        self.predicted = predicted
    }
}
