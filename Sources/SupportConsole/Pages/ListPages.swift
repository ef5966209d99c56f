import Foundation
import HTTPServing
import Hummingbird
import Runs
import SupportDesk

/// Dead jobs, with a second chance; runs over many users; and the operators' log.
struct ListPages: Sendable {
    let desk: Desk

    func add(to routes: RouterGroup<AdminContext>) {
        desk.get("dead", on: routes) { visit, request, _ in try await dead(visit, Form(queryOf: request)) }
        desk.post("dead/retry", on: routes) { visit, form, _ in
            guard let error = form["error"], !error.isEmpty else { throw ConsoleFault.notFound }
            let retried = try await visit.users.retryAll(error: error, kind: Self.jobKind(form))
            return .going(to: "/console/dead", unless: retried == 0 ? "gone" : nil, did: "retry-all")
        }
        desk.post("dead/:job/retry", on: routes) { visit, _, context in
            guard let job = context.parameters.get("job").flatMap({ UUID(uuidString: $0) }) else {
                throw ConsoleFault.notFound
            }
            return .going(to: "/console/dead", unless: try await visit.users.retry(job), did: "retry")
        }
        desk.get("runs", on: routes) { visit, _, _ in
            let (runs, lag) = try await visit.report { pool in
                try await DeskConsole(pool: pool, session: visit.digest).runs()
            }
            let values = shown(["rows": runs.map(Self.run), "empty": runs.isEmpty, "lag": lag])
            return desk.pages.page("runs", "Runs", values, visit)
        }
        desk.get("log", on: routes) { visit, request, _ in
            let before = try Form(queryOf: request)["before"].flatMap { Int64($0) }
            let (rows, lag) = try await visit.report("audit") { pool in
                try await DeskUsers(pool: pool, session: visit.digest).log(before: before)
            }
            let last = rows.count == 100 ? rows.last : nil
            let values = shown([
                "rows": rows.map(Self.logged), "empty": rows.isEmpty,
                "more": last.map { "/console/log?before=\($0.id)" }, "lag": lag,
            ])
            return desk.pages.page("log", "The operators' log", values, visit)
        }
    }

    private func dead(_ visit: Visit, _ query: Form) async throws -> Response {
        let kind = Self.jobKind(query)
        let errors = try await visit.users.deadErrors(kind: kind)
        // Also where no job is left of it: another operator may have queued them again.
        let error = query["error"].flatMap { $0.isEmpty ? nil : $0 }
        let rows = try await visit.users.dead(error: error, kind: kind).map(Self.dead)
        let found = errors.first { $0.error == error }
        let values = shown([
            "rows": rows, "empty": rows.isEmpty, "may-retry": visit.may("retry"),
            "errors": errors.map {
                let label = "\(TicketWords.plain($0.error)) (\($0.jobs))"
                return ["value": $0.error, "label": label, "chosen": $0.error == error] as [String: Any]
            },
            "kinds": ["restore", "reconcile"].map {
                ["value": $0, "label": TicketWords.plain($0), "chosen": $0 == kind] as [String: Any]
            },
            "all": found.map { found in
                shown([
                    "error": found.error, "kind": kind,
                    "words": "\(found.jobs > 1000 ? "1,000 of \(found.jobs)" : "all \(found.jobs)")"
                        + " \(kind.map { "\($0)s" } ?? "jobs") that ended with “\(TicketWords.plain(found.error))”",
                ])
            },
        ])
        return desk.pages.page("dead", "Dead jobs", values, visit)
    }

    private static func jobKind(_ form: Form) -> String? {
        form["kind"].flatMap { ["restore", "reconcile"].contains($0) ? $0 : nil }
    }

    private static func dead(_ row: DeskUsers.Dead) -> [String: Any] {
        [
            "job": row.id, "reference": row.reference, "kind": TicketWords.plain(row.kind),
            "user": row.userID ?? "erased", "href": "/console/users/\(row.userKey)", "attempts": row.attempt,
            "at": Moments.shown(row.finishedAt), "error": row.lastError.map(TicketWords.plain) ?? "–",
        ]
    }

    // MARK: Runs

    private static func run(_ run: RunRecord) -> [String: Any] {
        // Users who were shut out were not read.
        let done = run.ended
        let isStopped = run.state == .stopped
        var pace: String?
        if run.state.isOpen, let start = run.startedAt, case let seconds = -start.timeIntervalSinceNow, seconds > 1 {
            pace = "\(Int((Double(done) / seconds * 60).rounded())) users a minute"
        }
        return shown([
            "id": run.id, "what": (run.isDry ? "Dry run, " : "") + scope(run), "state": state(run.state),
            "by": run.schedule.map { "schedule \($0)" } ?? run.askedBy, "asked": Moments.shown(run.askedAt),
            "done": done, "stopped": isStopped,
            "sums": run.outcomes.sorted { $0.key < $1.key }.map {
                ["name": TicketWords.plain($0.key), "users": $0.value] as [String: Any]
            },
            "skipped": run.skipped > 0 ? run.skipped : nil,
            "total": run.total.flatMap { $0 > 0 ? ["all": $0, "done": min(done, $0)] : nil },
            "held": isStopped ? run.held : nil, "limit": isStopped ? run.demotionLimit ?? 0 : nil,
            "ended": run.state.isOpen ? nil : run.endedAt.map { Moments.shown($0) }, "pace": pace,
            "end": run.state.isOpen ? run.predictedEnd.map { Moments.shown($0) } : nil,
        ])
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

    // MARK: The log

    private static func logged(_ row: DeskUsers.LogRow) -> [String: Any] {
        shown([
            "at": Moments.shown(row.at), "who": row.name ?? "–", "what": TicketWords.plain(row.kind),
            "about": row.about, "detail": row.detail.map(words),
        ])
    }

    /// What stands beside an event, as people read it; in the records it is a JSON object.
    private static func words(_ json: String) -> String {
        guard let values = try? JSONDecoder().decode([String: Scalar].self, from: Data(json.utf8)) else { return json }
        return values.sorted { $0.key < $1.key }.map { "\(TicketWords.plain($0).lowercased()): \($1.words)" }
            .joined(separator: ", ")
    }

    private struct Scalar: Decodable {
        var words: String

        init(from decoder: any Decoder) throws {
            let value = try decoder.singleValueContainer()
            if let truth = try? value.decode(Bool.self) {
                words = truth ? "yes" : "no"
            } else if let number = try? value.decode(Int64.self) {
                words = "\(number)"
            } else {
                words = try value.decode(String?.self)?.replacing("_", with: " ") ?? "none"
            }
        }
    }
}
