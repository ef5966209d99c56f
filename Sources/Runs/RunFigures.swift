import Postgres

/// The state of runs, schedules and checks, for metrics and `doctor`.
package struct RunFigures: Sendable, Hashable {
    /// Users counted at most: beyond them it is enough to know that there are many.
    package static let mostCounted: Int64 = 100_000

    package struct Open: Sendable, Hashable {
        package var id: Int64
        package var left: Int64?
        /// Until the predicted end.
        package var seconds: Double?
    }

    /// Users whose next check is due, and for how long the first of them has been.
    package var dueUsers: Int64 = 0
    package var dueOldestSeconds: Double = 0
    /// Open runs by state; a state without any counts as 0.
    package var runs: [RunRecord.State: Int64] = [:]
    package var open: [Open] = []
    /// Slots that wait, in seconds, by schedule; 0 where none does.
    package var lateSeconds: [String: Double] = [:]
    /// When each alarm was raised last, in seconds since 1970.
    package var alarms: [String: Double] = [:]
}

extension RunRecords {
    /// The state of runs, schedules and checks.
    package func figures() async throws -> RunFigures {
        let limit = RunFigures.mostCounted
        let answers = try await pool.pipeline([
            """
            SELECT count(*), coalesce(extract(epoch FROM clock_timestamp() - min(d.next_check_at)), 0)::double precision
              FROM (SELECT u.next_check_at FROM entitlement_sync.user_sync AS u
                     WHERE u.next_check_at <= now() ORDER BY u.next_check_at LIMIT \(limit)) AS d
            """,
            """
            SELECT r.id, r.state, r.total - r.ended - r.skipped,
                   extract(epoch FROM r.predicted_end - clock_timestamp())::double precision
              FROM entitlement_sync.run AS r WHERE r.state IN ('reading', 'applying', 'stopped') ORDER BY r.id
            """,
            """
            SELECT s.name, coalesce(extract(epoch FROM clock_timestamp() - s.late_since), 0)::double precision
              FROM entitlement_sync.schedule AS s ORDER BY s.name
            """,
            "SELECT a.name, extract(epoch FROM a.last_at)::double precision FROM entitlement_sync.alarm AS a",
        ])
        guard answers.count == 4 else { return RunFigures() }
        var figures = RunFigures()
        if let row = answers[0].first {
            (figures.dueUsers, figures.dueOldestSeconds) = try row.decode(Int64.self, Double.self)
        }
        for row in answers[1] {
            let (id, state, left, seconds) = try row.decode(Int64.self, String.self, Int64?.self, Double?.self)
            guard let state = RunRecord.State(rawValue: state) else { continue }
            figures.runs[state, default: 0] += 1
            guard state.isOpen else { continue }
            figures.open.append(.init(id: id, left: left.map { max($0, 0) }, seconds: seconds.map { max($0, 0) }))
        }
        let late = try answers[2].map { try $0.decode(String.self, Double.self) }
        figures.lateSeconds = Dictionary(late) { $1 }.mapValues { max($0, 0) }
        figures.alarms = Dictionary(try answers[3].map { try $0.decode(String.self, Double.self) }) { $1 }
        return figures
    }
}
