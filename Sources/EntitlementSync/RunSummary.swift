import Foundation
import Storage

/// A run as it is printed.
struct RunSummary: Encodable {
    private let run: RunRecord
    private let changes: [String: [String: Int64]]

    /// Describes a run.
    ///
    /// - Parameters:
    ///   - run: as it stands.
    ///   - changes: whom it changes, by outcome and state.
    init(_ run: RunRecord, changes: [String: [String: Int64]] = [:]) {
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
        try row.encode(run.scope.rawValue, forKey: .scope)
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
        try row.encode(run.hash, forKey: .hash)
        if !changes.isEmpty { try row.encode(changes, forKey: .changes) }
    }

    /// What happened and what comes next, in sentences.
    var sentences: [String] {
        let sums = run.outcomes.sorted { $0.key < $1.key }.map { "\($0.value) \($0.key)" }.joined(separator: ", ")
        let head =
            (run.isDry ? "dry run \(run.id), nothing was changed: " : "run \(run.id): ")
            + (sums.isEmpty ? "nobody" : sums)
        var lines = [head]
        let rules = run.rules.sorted { $0.key < $1.key }.map { "\($0.value) \($0.key)" }.joined(separator: ", ")
        if !rules.isEmpty { lines.append("by rule: " + rules) }
        if run.skipped > 0 {
            lines.append("\(run.skipped) users were left out: their accounts' status decides nothing")
        }
        for (error, count) in run.errors.sorted(by: { $0.key < $1.key }) where !RunRecord.isOfList(error) {
            lines.append("\(count) without an answer: \(error)")
        }
        lines += listings
        if let next { lines.append(next) }
        return lines
    }

    /// What was listed besides.
    private var listings: [String] {
        guard !run.isDry else {
            return run.scope == .since ? ["no store was asked to list what it sent: that would be written"] : []
        }
        if run.scope == .since, run.listed.isEmpty, !run.state.isOpen {
            return ["no store listed what it sent: users were read, and that is all"]
        }
        return run.listed.sorted { $0.key < $1.key }.map { name, list in
            var line =
                "\(name): \(list.listed) listed from \(list.from.formatted(.iso8601)) on, \(list.new) of them new"
            if let unknown = list.unknown { line += ", \(unknown) about purchases that nobody is known to own" }
            if let refused = list.refused { line += ", \(refused) refused: they do not show that they are the store's" }
            if list.complete { return line }
            let until = list.until.formatted(.iso8601)
            return line + "; not to its end, only up to \(until)" + (list.error.map { " (\($0))" } ?? "")
        }
    }

    private var next: String? {
        switch run.state {
        case .stopped:
            """
            \(run.held) demotions exceed the limit of \(run.demotionLimit ?? 0): nobody was demoted. Look at them, and if they are \
            right: entitlement-sync runs release \(run.id) --hash \(run.hash ?? "")
            """
        case .done where run.isDry && (run.outcomes["demoted"] ?? 0) + (run.outcomes["promoted"] ?? 0) > 0:
            "to have just these changes written: entitlement-sync runs release \(run.id) --hash \(run.hash ?? "")"
        case .canceled: "it was canceled before its end"
        case .reading, .applying:
            "it goes on" + (run.predictedEnd.map { ", until about \($0.formatted(.iso8601))" } ?? "")
        case .done: nil
        }
    }
}

/// Prints whom a run changes.
struct RunChanges {
    let runs: Runs
    private static let shownInTable: Int32 = 200

    /// Prints a run with its changes: as a table with the first of them, or as JSON lines with all.
    func print(_ run: RunRecord, as format: OutputFormat) async throws {
        let counts = try await runs.changeCounts(of: run.id)
        switch format {
        case .json:
            try await each(of: run.id) { change in try Output.json(Line(change)) }
            try Output.json(["summary": RunSummary(run, changes: counts)])
        case .text:
            let changes = try await runs.changes(of: run.id, limit: Self.shownInTable)
            if !changes.isEmpty {
                Output.table(
                    ["user", "outcome", "rule", "state", "type", "assets", "why"],
                    changes.map {
                        [
                            $0.userID ?? "(erased)", $0.outcome, $0.rule, $0.isAnnounced ? "announced" : $0.state,
                            "\($0.typeBefore ?? "-") -> \($0.typeAfter ?? "-")", "\($0.assets)", $0.explanation,
                        ]
                    }
                )
                let all = counts.values.flatMap(\.values).reduce(0, +)
                if all > changes.count {
                    Output.line("and \(all - Int64(changes.count)) more: --csv or --output json has all")
                }
            }
            for line in RunSummary(run, changes: counts).sentences { Output.line(line) }
        }
    }

    private func each(of run: Int64, _ body: (Runs.Change) throws -> Void) async throws {
        var last: Int64 = 0
        while true {
            let changes = try await runs.changes(of: run, after: last)
            for change in changes { try body(change) }
            guard changes.count == 1000, let key = changes.last?.userKey else { return }
            last = key
        }
    }

    private struct Line: Encodable {
        var change: Runs.Change

        init(_ change: Runs.Change) { self.change = change }

        enum CodingKeys: String, CodingKey {
            case outcome, rule, state, assets, announced, explanation
            case userID = "user_id"
            case typeBefore = "type_before"
            case typeAfter = "type_after"
        }

        func encode(to encoder: any Encoder) throws {
            var row = encoder.container(keyedBy: CodingKeys.self)
            try row.encode(change.userID, forKey: .userID)
            try row.encode(change.outcome, forKey: .outcome)
            try row.encode(change.rule, forKey: .rule)
            try row.encode(change.state, forKey: .state)
            try row.encode(change.isAnnounced, forKey: .announced)
            try row.encode(change.typeBefore, forKey: .typeBefore)
            try row.encode(change.typeAfter, forKey: .typeAfter)
            try row.encode(change.assets, forKey: .assets)
            try row.encode(change.explanation, forKey: .explanation)
        }
    }
}
