import Foundation
import Reconciliation
import Reports
import Runs

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
            "user_id": userID,
            "job_id": jobID?.uuidString.lowercased(),
            "outcome": outcome,
            "rule": rule,
            "explanation": explanation,
        ]
        guard let predicted else { return line }
        let dryRun: JSONObject = [
            "dry_run": true,
            "type_before": predicted.typeBefore,
            "type_after": predicted.typeAfter,
            "assets": predicted.assets,
            "paused": predicted.isPaused,
        ]
        return (line + dryRun).adding("error", predicted.error)
    }
}

extension ReconcileLine {
    /// A line of a run.
    ///
    /// - Parameters:
    ///   - line: what became of the user.
    ///   - isDry: whether nothing was written.
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
