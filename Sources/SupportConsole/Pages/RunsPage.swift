import Foundation
import HTTPServing
import Hummingbird
import Runs
import SupportDesk

/// Runs over many users: how far they are, when they end, and which of them wait for a person.
struct RunsPage: Sendable {
    let desk: Desk

    func add(to routes: RouterGroup<AdminContext>) {
        desk.get("runs", on: routes) { visit, _, _ in
            let rows = try await visit.console.runs()
            return desk.pages.page("runs", "Runs", ["rows": rows.map { Self.row($0) }, "empty": rows.isEmpty], visit)
        }
    }

    static func row(_ run: RunRecord, now: Date = Date()) -> [String: Any] {
        // Users who were shut out were not read.
        let done = run.ended
        var values: [String: Any] = [
            "id": run.id, "what": (run.isDry ? "Dry run, " : "") + scope(run), "state": state(run.state),
            "by": run.schedule.map { "schedule \($0)" } ?? run.askedBy, "asked": Moments.shown(run.askedAt),
            "done": done, "stopped": run.state == .stopped,
            "sums": run.outcomes.sorted { $0.key < $1.key }.map {
                ["name": TicketWords.plain($0.key), "users": $0.value] as [String: Any]
            },
        ]
        if run.skipped > 0 { values["skipped"] = run.skipped }
        if let total = run.total, total > 0 { values["total"] = ["all": total, "done": min(done, total)] }
        if run.state == .stopped {
            values["held"] = run.held
            values["limit"] = run.demotionLimit ?? 0
        }
        guard run.state.isOpen else {
            if let end = run.endedAt { values["ended"] = Moments.shown(end) }
            return values
        }
        if let start = run.startedAt, case let seconds = now.timeIntervalSince(start), seconds > 1 {
            values["pace"] = "\(Int((Double(run.ended) / seconds * 60).rounded())) users a minute"
        }
        if let end = run.predictedEnd { values["end"] = Moments.shown(end) }
        return values
    }

    private static func scope(_ run: RunRecord) -> String {
        switch run.scope {
        case .due: "users who are due"
        case .all: "all users"
        case .since where run.listsOnly:
            "what stores list since " + (run.since?.formatted(.iso8601) ?? "then")
        case .since: "users who were not read since " + (run.since?.formatted(.iso8601) ?? "then")
        case .diff: "what run \(run.ofRun.map { "\($0)" } ?? "?") would change"
        }
    }

    private static func state(_ state: RunRecord.State) -> String {
        switch state {
        case .reading: "Reading"
        case .stopped: "Waits for a person"
        case .applying: "Applying"
        case .done: "Done"
        case .canceled: "Canceled"
        }
    }
}
