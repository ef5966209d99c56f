import Diagnostics
import Entitlements
import Foundation
import Postgres
import Queue
import TestSupport
import Testing
import UserRequests

extension HistoryTests {
    /// Retention takes the jobs, and with them each single check that confirmed what was on record.
    @Test(.timeLimit(.minutes(30)))
    func `After the jobs' retention the records answer as before`() async throws {
        let confirmed = Sum()
        let seeds = Seeds.isWhole ? Array(0..<(Profile.isFull ? 2000 : 20)) : Seeds.all
        try await Histories.liveThrough(seeds) { history, lane in
            confirmed.add(Int(try await Self.compareAcrossRetention(history, on: lane)))
        }
        print("folded: \(confirmed.value) checks that confirmed what was on record")
        #expect(!Seeds.isWhole || confirmed.value > 20)
    }

    /// Deletes keys and jobs, and compares what the records answer before and after.
    ///
    /// - Returns: how many checks had confirmed what was on record.
    private static func compareAcrossRetention(_ history: History, on lane: Lane) async throws -> Int64 {
        // Keys are remembered for seven days, jobs for ninety.
        try await lane.host.query("DELETE FROM entitlement_sync.idempotency")
        let moments = try await lane.moments()
        let before = try await lane.answers(at: moments, history.setup.decision)
        let single = try await lane.lines { $0.hasSuffix("and it was confirmed.") }.count
        try await lane.host.query("DELETE FROM entitlement_sync.job_history")
        let after = try await lane.answers(at: moments, history.setup.decision)
        let differences = zip(before, after).filter { $0 != $1 }.map { "\($0)\n      \($1)" }
        #expect(before.count == after.count && differences == [], "seed \(history.seed): \(differences.prefix(3))")
        let counted = try await lane.number(
            "SELECT coalesce(sum(c.confirmed), 0)::bigint FROM entitlement_sync.confirmation AS c"
        )
        #expect(counted == Int64(single), "seed \(history.seed): each check is counted")
        let lines = try await lane.lines { $0.contains(" was confirmed ") }.count
        let stretches = try await lane.number("SELECT count(*) FROM entitlement_sync.confirmation")
        #expect(stretches == Int64(lines), "seed \(history.seed): one line a stretch")
        return counted
    }
}

extension Lane {
    private func users() async throws -> [String] {
        try await host.query(
            "SELECT u.user_id FROM entitlement_sync.user_sync AS u WHERE u.user_id IS NOT NULL ORDER BY 1"
        ).map { try $0.decode(String.self) }
    }

    /// Times of decisions, confirmed ones among them, and between.
    fileprivate func moments() async throws -> [Instant] {
        let times = try await host.query(
            "SELECT d.at FROM entitlement_sync.past_decision AS d ORDER BY d.at"
        ).map { Instant(try $0.decode(PostgresTimestamp.self)) }
        let step = max(times.count / 8, 1)
        return stride(from: 0, to: times.count, by: step).flatMap { [times[$0], times[$0] + .microseconds(1)] }
    }

    /// What is rebuilt and judged from records.
    fileprivate func answers(at moments: [Instant], _ settings: DecisionSettings) async throws -> [String] {
        var answers: [String] = []
        let histories = Diagnostics.Histories(pool: host)
        for user in try await users() {
            for moment in moments {
                var state = try await histories.state(of: user, at: moment)
                state.unknowns.removeAll { $0 == .jobsForgotten }
                answers.append("\(user) \(state)")
            }
        }
        var differences: [String] = []
        let (totals, _) = try await Replay(pool: host, settings: settings)(of: nil, since: .negativeInfinity) {
            differences.append("\($0.then.id) \($0.now)")
        }
        answers.append(
            "replayed \(totals.decisions) \(totals.agreeing) \(totals.held) \(totals.unreplayable) \(differences)"
        )
        try await host.query("DELETE FROM entitlement_sync.invariant_check")
        let watch = InvariantMonitor(pool: host)
        while try await watch.step() {}
        answers += try await watch.found().map { "\($0.name) \($0.broken)" }.sorted()
        let drift = try await watch.drift()
        answers.append("drift \(drift?.checked ?? -1) \(drift?.users.description(by: \.rawValue) ?? "")")
        answers += try await lines { !$0.contains("confirmed") && !$0.hasPrefix("Job ") }
        return answers
    }

    /// The lines of all explanations.
    fileprivate func lines(where isWanted: (String) -> Bool) async throws -> [String] {
        var lines: [String] = []
        let timeline = Timeline(pool: host)
        for user in try await users() {
            let events = try await timeline.events(of: user, until: nil) ?? []
            lines += events.filter { $0.kind != "now" }.map(\.text).filter(isWanted).map { "\(user): \($0)" }
        }
        return lines
    }
}

extension Dictionary where Value == Int64 {
    fileprivate func description(by name: (Key) -> String) -> String {
        map { "\(name($0)) \($1)" }.sorted().joined(separator: ", ")
    }
}
