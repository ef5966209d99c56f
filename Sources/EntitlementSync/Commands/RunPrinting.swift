import Composition
import Foundation
import Reports
import Runs

/// Prints the users that a run changes.
struct RunChanges {
    let runs: RunRecords
    private static let shownInTable: Int32 = 200

    /// Prints a run with its changes: as a table with the first of them, or as JSON lines with all.
    func print(_ run: RunRecord, as format: OutputFormat) async throws {
        switch format {
        case .json:
            let counts = try await runs.changeCounts(of: run.id)
            try await runs.eachChange(of: run.id) { changes in for change in changes { try Output.json(change.json) } }
            let unread = try await unread(of: run)
            let named = unread.map { ["user_id": $0.userID, "error": $0.error] as JSONObject }
            try Output.json(["summary": run.summary(counts).adding("unread", named.isEmpty ? nil : named)])
        case .text:
            let changes = try await runs.changes(of: run.id, limit: Self.shownInTable)
            if !changes.isEmpty {
                Output.table(
                    ["user", "outcome", "rule", "state", "type", "assets", "why"],
                    changes.map {
                        [
                            $0.userID ?? "(erased)", $0.outcome, $0.rule, $0.word(in: run),
                            "\($0.typeBefore ?? "-") -> \($0.typeAfter ?? "-")", "\($0.assets)", $0.explanation,
                        ]
                    }
                )
                if changes.count == Int(Self.shownInTable) { Output.line("...: --csv or --output json has all") }
                Output.line("")
            }
            let report = try await RunReporting(runs: runs).report(of: run)
            for line in report.summary() + run.listings { Output.line(line) }
            let unread = try await unread(of: run)
            guard !unread.isEmpty else { return }
            Output.line("")
            Output.table(["not read", "error"], unread.map { [$0.userID ?? "(erased)", $0.error ?? "-"] })
        }
    }

    private func unread(of run: RunRecord) async throws -> [(userID: String?, error: String?)] {
        guard run.outcomes["store_unavailable"] ?? 0 > 0 else { return [] }
        return try await runs.unread(of: run.id, limit: Self.shownInTable)
    }
}

extension RunRecords.Change {
    /// The state to show: `announced` for a demotion that a store announced (nothing holds it back), else the state on record.
    func word(in run: RunRecord) -> String { run.word(of: state, isAnnounced: isAnnounced) }

    fileprivate var json: JSONObject {
        [
            "user_id": userID, "outcome": outcome, "rule": rule, "state": state, "announced": isAnnounced,
            "type_before": typeBefore, "type_after": typeAfter, "assets": assets, "explanation": explanation,
        ]
    }
}

extension RunRecord {
    /// A change's state, as it is shown.
    func word(of state: String, isAnnounced: Bool) -> String {
        let isOnlyObserved = state == "predicted" && !isDry && scope != .diff
        return isAnnounced && state != "void" && !isOnlyObserved ? "announced" : state
    }
}

extension RunRecord {
    /// The run as it is printed for programs.
    func summary(_ changes: [RunRecords.ChangeCount] = []) -> JSONObject {
        func text(_ date: Date?) -> String? {
            date?.formatted(Date.ISO8601FormatStyle(includingFractionalSeconds: true))
        }
        let summary: JSONObject = [
            "run": id, "scope": scopeName, "state": state.rawValue, "dry_run": isDry, "asked_by": askedBy,
            "asked_at": text(askedAt), "started_at": text(startedAt), "ended_at": text(endedAt),
            "predicted_end": text(predictedEnd), "users": ended, "total": total, "skipped": skipped,
            "outcomes": outcomes, "rules": rules, "errors": errors,
            "listed": listed.mapValues { list in
                let object: JSONObject = [
                    "from": text(list.from), "until": text(list.until), "listed": list.listed, "new": list.new,
                    "complete": list.complete,
                ]
                return object.adding("unknown", list.unknown).adding("refused", list.refused)
                    .adding("error", list.error)
            },
            "held_demotions": held,
            "demotion_limit": demotionLimit,
            "hash": hash,
        ]
        var counts: [String: [String: Int64]] = [:]
        for change in changes {
            let word = word(of: change.state, isAnnounced: change.isAnnounced)
            counts[change.outcome, default: [:]][word, default: 0] += change.users
        }
        let stopped: JSONObject = state == .stopped ? ["releasable_until": text(releasableUntil)] : [:]
        return (summary + stopped).adding("of_run", ofRun).adding("schedule", schedule)
            .adding("confirmed_by", confirmedBy).adding("since", text(since))
            .adding("changes", changes.isEmpty ? nil : counts)
    }

    /// What stores listed beside the reading of users, in sentences.
    var listings: [String] {
        guard !isDry else {
            return scope == .since ? ["no store was asked to list what it sent: that would be written"] : []
        }
        if scope == .since, listed.isEmpty, !state.isOpen {
            return [
                listsOnly
                    ? "no store listed what it sent: no worker can have one list"
                    : "no store listed what it sent: users were read, and that is all"
            ]
        }
        return listed.sorted { $0.key < $1.key }.map { name, list in
            var line =
                "\(name): \(list.listed) listed from \(list.from.formatted(.iso8601)) on, \(list.new) of them new"
            if let unknown = list.unknown { line += ", \(unknown) about purchases that no user is known to own" }
            if let refused = list.refused { line += ", \(refused) refused: they do not show that they are the store's" }
            if list.complete { return line }
            let until = list.until.formatted(.iso8601)
            return line + "; not to its end, only up to \(until)" + (list.error.map { " (\($0))" } ?? "")
        }
    }
}
