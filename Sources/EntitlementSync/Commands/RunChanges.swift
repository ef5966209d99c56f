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
            try Output.json(["summary": run.summary(counts)])
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
        }
    }

}

extension RunRecords.Change {
    /// The state to show: `announced` for a demotion that a store announced (nothing holds it back), else the state on record.
    func word(in run: RunRecord) -> String { run.word(of: state, isAnnounced: isAnnounced) }

    fileprivate var json: JSONObject {
        [
            "user_id": userID,
            "outcome": outcome,
            "rule": rule,
            "state": state,
            "announced": isAnnounced,
            "type_before": typeBefore,
            "type_after": typeAfter,
            "assets": assets,
            "explanation": explanation,
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
