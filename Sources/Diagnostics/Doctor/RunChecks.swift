import Postgres
import Runs

/// Runs, drift and alarms, and what observe mode finds.
struct RunChecks {
    let pool: PostgresPool

    /// Runs that wait for operators, and schedules that no process follows.
    func runs() async throws -> [Check] {
        let figures = try await RunRecords(pool: pool).figures()
        let stopped = figures.runs[.stopped] ?? 0
        let row = try await pool.query(
            """
            SELECT (SELECT count(*) FROM entitlement_sync.schedule),
                   EXISTS (SELECT 1 FROM entitlement_sync.leader AS l
                            WHERE l.name = 'scheduler' AND l.expires_at > clock_timestamp()),
                   EXISTS (SELECT 1 FROM entitlement_sync.worker AS w
                            WHERE w.expires_at > clock_timestamp() AND w.backfills <> '{}')
                   AND NOT EXISTS (SELECT 1 FROM entitlement_sync.schedule AS s WHERE s.scope = 'since'),
                   (SELECT count(*) FROM entitlement_sync.run AS r
                     WHERE r.state = 'stopped' AND r.settled_at < clock_timestamp() - interval '72 hours')
            """
        ).first
        let (schedules, isLed, lacksLists, stale) =
            try row?.decode(Int64.self, Bool.self, Bool.self, Int64.self) ?? (Int64(0), false, false, Int64(0))
        let left = stale > 0 ? "; \(stale) of them hold no demotion any more: cancel them (runs cancel)" : ""
        // What a store's list alone knows, such as who charged back, is not read then.
        let lists = lacksLists ? "; none has stores list what they sent (schedule set NAME --scope listed)" : ""
        let drift = try await InvariantMonitor(pool: pool).drift()
        let late = figures.lateSeconds.filter { $0.value > 3600 }.keys.sorted()
        return [
            Self.drift(drift),
            Check(
                name: "runs",
                ok: stopped == 0,
                detail: stopped == 0
                    ? "no run waits for a person"
                    : "\(stopped) would demote more users than allowed, and demoted none of them\(left)",
                fix: "entitlement-sync runs lists them; read one with runs show ID, then runs release or runs cancel."
            ),
            Check(
                name: "schedules",
                ok: (schedules == 0 || isLed) && late.isEmpty,
                detail: schedules > 0 && !isLed
                    ? "\(schedules) schedules, and no process follows them"
                    : late.isEmpty
                        ? "\(schedules) schedules, none of them late\(lists)" : "late: \(late.joined(separator: ", "))",
                fix: "Start entitlement-sync schedule (or run), and see entitlement-sync runs for what is in the way."
            ),
        ]
    }

    /// How far the newest decisions that were only observed agree with the host; nothing where there are none in a day.
    func shadow() async throws -> Check? {
        // The newest decisions by their key: what is asked for stays as quick with many millions of them.
        let keys = try await pool.query(
            """
            SELECT DISTINCT n.user_key
              FROM (SELECT d.user_key, d.at, d.observed FROM entitlement_sync.decision AS d ORDER BY d.id DESC LIMIT 5000) AS n
             WHERE n.observed AND n.at > now() - interval '1 day'
             UNION
            -- Where the host's type agrees with the decision, the check confirms it and writes no new one.
            SELECT h.user_key
              FROM (SELECT x.user_key FROM entitlement_sync.job_history AS x
                     WHERE x.confirms IS NOT NULL AND x.id >= entitlement_sync.first_id_at(now() - interval '1 day')
                     ORDER BY x.id DESC LIMIT 5000) AS h
            """
        ).map { try $0.decode(Int64.self, at: 0) }
        guard !keys.isEmpty else { return nil }
        var counts: [Shadow.Kind: Int] = [:]
        for line in try await Shadow(pool: pool).lines(of: keys, since: nil) { counts[line.kind, default: 0] += 1 }
        let judged = counts.reduce(0) { $0 + ($1.key.isJudged ? $1.value : 0) }
        let agreeing = counts[.agrees] ?? 0
        let apart = counts.values.reduce(0, +) - judged
        let share = judged == 0 ? "no user to compare" : "\(agreeing) of \(judged) users agree with the host"
        return Check(
            "shadow",
            fine: "of the newest decisions that were only observed, \(share), \(apart) apart; entitlement-sync shadow"
                + " lists the rest"
        )
    }

    /// The alarms of a day.
    func alarms() async throws -> [Check] {
        let rows = try await pool.query(
            """
            SELECT a.name, a.detail, a.count FROM entitlement_sync.alarm AS a
             WHERE a.last_at > now() - interval '24 hours' ORDER BY a.name
            """
        )
        guard !rows.isEmpty else { return [Check("alarms", fine: "none in 24 hours")] }
        return try rows.map { row in
            let (name, detail, count) = try row.decode(String.self, String.self, Int64.self)
            return Check(name: "alarm." + name, ok: false, detail: "\(count) times since it was raised", fix: detail)
        }
    }

    /// Records that disagree with the ledger for longer than a full run takes need an operator.
    static func drift(_ drift: Drift?) -> Check {
        var detail = "no worker has checked yet"
        if let drift, let agreement = drift.agreement {
            // Never rounded up to all.
            let share = agreement == 1 ? "100" : "\((agreement * 10_000).rounded(.down) / 100)"
            detail =
                "\(share) % of \(drift.checked) users' records agree with the ledger; the oldest evidence is "
                + "\(drift.oldestEvidenceSeconds / 86_400) days old"
            if let (half, most) = drift.convergence {
                detail += "; changes took \(shown(half)) (half of them), \(shown(most)) (95 of 100)"
            }
        }
        return Check(
            name: "drift",
            // A few are the host's own doing, or a purchase of this minute.
            ok: drift.map { $0.astray < 5 || ($0.agreement ?? 1) >= 0.99 } ?? true,
            detail: detail,
            fix:
                "entitlement-sync reconcile --all --dry-run shows which users it is about; without --dry-run it mends them."
        )
    }

    private static func shown(_ seconds: Double) -> String { "\((seconds * 10).rounded() / 10) s" }
}
