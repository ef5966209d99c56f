import Foundation
import Runs

/// A run as it is printed for programs.
struct RunSummary: Encodable {
    private let run: RunRecord
    private let changes: [RunRecords.ChangeCount]

    /// Describes a run.
    ///
    /// - Parameters:
    ///   - run: as it stands.
    ///   - changes: the users that it changes.
    init(_ run: RunRecord, changes: [RunRecords.ChangeCount] = []) {
        self.run = run
        self.changes = changes
    }

    private enum CodingKeys: String, CodingKey {
        case run, scope, state, schedule, hash, users, total, skipped, outcomes, rules, errors, changes, listed
        case isDry = "dry_run"
        case ofRun = "of_run"
        case askedBy = "asked_by"
        case confirmedBy = "confirmed_by"
        case askedAt = "asked_at"
        case startedAt = "started_at"
        case endedAt = "ended_at"
        case predictedEnd = "predicted_end"
        case since
        case heldDemotions = "held_demotions"
        case demotionLimit = "demotion_limit"
        case releasableUntil = "releasable_until"
    }

    private static func text(_ date: Date) -> String {
        date.formatted(Date.ISO8601FormatStyle(includingFractionalSeconds: true))
    }

    /// What a store has listed, as it is printed.
    private struct Listed: Encodable {
        var from: String
        var until: String
        var listed: Int64
        var new: Int64
        var unknown: Int64?
        var refused: Int64?
        var complete: Bool
        var error: String?

        init(_ listed: RunRecord.Listed) {
            from = RunSummary.text(listed.from)
            until = RunSummary.text(listed.until)
            self.listed = listed.listed
            new = listed.new
            unknown = listed.unknown
            refused = listed.refused
            complete = listed.complete
            error = listed.error
        }
    }

    func encode(to encoder: any Encoder) throws {
        func text(_ date: Date?) -> String? { date.map(Self.text) }
        var row = encoder.container(keyedBy: CodingKeys.self)
        try row.encode(run.id, forKey: .run)
        try row.encode(run.scopeName, forKey: .scope)
        try row.encode(run.state.rawValue, forKey: .state)
        try row.encode(run.isDry, forKey: .isDry)
        try row.encodeIfPresent(run.ofRun, forKey: .ofRun)
        try row.encodeIfPresent(run.schedule, forKey: .schedule)
        try row.encode(run.askedBy, forKey: .askedBy)
        try row.encodeIfPresent(run.confirmedBy, forKey: .confirmedBy)
        try row.encodeIfPresent(text(run.since), forKey: .since)
        try row.encode(text(run.askedAt), forKey: .askedAt)
        try row.encode(text(run.startedAt), forKey: .startedAt)
        try row.encode(text(run.endedAt), forKey: .endedAt)
        try row.encode(text(run.predictedEnd), forKey: .predictedEnd)
        try row.encode(run.ended, forKey: .users)
        try row.encode(run.total, forKey: .total)
        try row.encode(run.skipped, forKey: .skipped)
        try row.encode(run.outcomes, forKey: .outcomes)
        try row.encode(run.rules, forKey: .rules)
        try row.encode(run.errors, forKey: .errors)
        try row.encode(run.listed.mapValues(Listed.init), forKey: .listed)
        try row.encode(run.held, forKey: .heldDemotions)
        try row.encode(run.demotionLimit, forKey: .demotionLimit)
        if run.state == .stopped { try row.encode(text(run.releasableUntil), forKey: .releasableUntil) }
        try row.encode(run.hash, forKey: .hash)
        guard !changes.isEmpty else { return }
        var counts: [String: [String: Int64]] = [:]
        for change in changes {
            let word = run.word(of: change.state, isAnnounced: change.isAnnounced)
            counts[change.outcome, default: [:]][word, default: 0] += change.users
        }
        try row.encode(counts, forKey: .changes)
    }
}
