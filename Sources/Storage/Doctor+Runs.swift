import Postgres

extension Doctor {
    /// Runs that wait for people, and schedules that nobody follows.
    func runs() async throws -> [Check] {
        let figures = try await Runs(pool: pool).figures()
        let stopped = figures.runs[.stopped] ?? 0
        let row = try await pool.query(
            """
            SELECT (SELECT count(*) FROM entitlement_sync.schedule),
                   EXISTS (SELECT 1 FROM entitlement_sync.leader AS l
                            WHERE l.name = 'scheduler' AND l.expires_at > clock_timestamp())
            """
        ).first
        let (schedules, isLed) = try row?.decode(Int64.self, Bool.self) ?? (Int64(0), false)
        let late = figures.lateSeconds.filter { $0.value > 3600 }.keys.sorted()
        return [
            Check(
                name: "runs",
                ok: stopped == 0,
                detail: stopped == 0
                    ? "no run waits for a person"
                    : "\(stopped) would demote more users than allowed, and demoted nobody",
                fix: "entitlement-sync runs lists them; look with runs show ID, then runs release or runs cancel."
            ),
            Check(
                name: "schedules",
                ok: (schedules == 0 || isLed) && late.isEmpty,
                detail: schedules > 0 && !isLed
                    ? "\(schedules) schedules, and no process follows them"
                    : late.isEmpty
                        ? "\(schedules) schedules, none of them late" : "late: \(late.joined(separator: ", "))",
                fix: "Start entitlement-sync schedule (or run), and see entitlement-sync runs for what is in the way."
            ),
        ]
    }
}
