import Foundation
import Reconciliation
import Runs

/// What became of a user, as `reconcile` prints it.
struct ReconcileLine: Encodable {
    var userID: String?
    /// `nil`, printed as null: a dry run is no job.
    var jobID: UUID?
    var outcome: String?
    var rule: String?
    var explanation: String?
    /// What else a dry run says; left out where it is none.
    var predicted: DryRunResult?

    private enum CodingKeys: String, CodingKey {
        case outcome, rule, explanation, assets, error, paused
        case userID = "user_id"
        case jobID = "job_id"
        case dryRun = "dry_run"
        case typeBefore = "type_before"
        case typeAfter = "type_after"
    }

    func encode(to encoder: any Encoder) throws {
        var row = encoder.container(keyedBy: CodingKeys.self)
        try row.encode(userID, forKey: .userID)
        try row.encode(jobID?.uuidString.lowercased(), forKey: .jobID)
        try row.encode(outcome, forKey: .outcome)
        try row.encode(rule, forKey: .rule)
        try row.encode(explanation, forKey: .explanation)
        guard let predicted else { return }
        try row.encode(true, forKey: .dryRun)
        try row.encode(predicted.typeBefore, forKey: .typeBefore)
        try row.encode(predicted.typeAfter, forKey: .typeAfter)
        try row.encode(predicted.assets, forKey: .assets)
        try row.encodeIfPresent(predicted.error, forKey: .error)
        try row.encode(predicted.isPaused, forKey: .paused)
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
