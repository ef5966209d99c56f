import Postgres

extension Doctor {
    /// How far the newest decisions that were only observed agree with the host; nothing where there are none in a day.
    func shadow() async throws -> [Check] {
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
        guard !keys.isEmpty else { return [] }
        var counts: [Shadow.Kind: Int] = [:]
        for line in try await Shadow(pool: pool).lines(of: keys, since: nil) { counts[line.kind, default: 0] += 1 }
        let judged = counts.reduce(0) { $0 + ($1.key.isJudged ? $1.value : 0) }
        let agreeing = counts[.agrees] ?? 0
        let apart = counts.values.reduce(0, +) - judged
        let share = judged == 0 ? "nobody to compare" : "\(agreeing) of \(judged) users agree with the host"
        return [
            Check(
                name: "shadow",
                ok: true,
                detail:
                    "of the newest decisions that were only observed, \(share), \(apart) apart; entitlement-sync score"
                    + " lists the rest",
                fix: ""
            )
        ]
    }
}
