package import Entitlements
import FoundationEssentials
package import Postgres
import Queue
package import Reconciliation

/// Parts of dry runs, as workers take them up.
package struct RunParts: Sendable {
    private let pool: PostgresPool

    package init(pool: PostgresPool) { self.pool = pool }

    /// A part that was taken up, with its users as jobs that they would be claimed as.
    package struct Taken: Sendable {
        package var run: Int64
        package var number: Int32
        /// How often it was taken up; a later turn shuts this one out.
        package var turn: Int32
        package var keys: [Int64]
        package var jobs: [ClaimedJob]
    }

    /// Takes up a part, which is this worker's for as long as `lease`; `nil`: none waits.
    package func take(lease: Duration) async throws -> Taken? {
        let tick = ContinuousClock.now
        let row = try await pool.query(
            """
            SELECT t.run_id, t.number, t.tries, t.keys, clock_timestamp()
              FROM entitlement_sync.take_part(\(lease.microseconds) * interval '1 microsecond') AS t
            """
        ).first
        guard let row else { return nil }
        let (run, part, turn, keys, at) = try row.decode(Int64.self, Int32.self, Int32.self, [Int64].self, Instant.self)
        let jobs = try await pool.query(
            """
            SELECT k.key, u.user_id, entitlement_sync.new_id(),
                   EXISTS (SELECT 1 FROM entitlement_sync.sandbox_access AS s
                            WHERE s.user_id = u.user_id AND s.until > now())
              FROM unnest(\(keys)) AS k(key)
             CROSS JOIN LATERAL (SELECT x.user_id FROM entitlement_sync.user_sync AS x
                                  WHERE x.user_key = k.key OFFSET 0) AS u
            """
        ).map { row in
            let (key, user, id, sandbox) = try row.decode(Int64.self, String?.self, UUID.self, Bool.self)
            return ClaimedJob(
                id: id,
                kind: .reconcile,
                lane: .sweep,
                due: at,
                userKey: key,
                userID: user,
                sandboxAllowed: sandbox,
                claimedAt: at,
                claimedTick: tick
            )
        }
        return Taken(run: run, number: part, turn: turn, keys: keys, jobs: jobs)
    }

    /// Keeps a part for longer; `false`: another worker has it, or the run does not go on.
    package func prolong(_ part: Taken, lease: Duration) async throws(PostgresError) -> Bool {
        try await pool.query(
            """
            UPDATE entitlement_sync.run_part AS p
               SET due = clock_timestamp() + \(lease.microseconds) * interval '1 microsecond'
             WHERE p.run_id = \(part.run) AND p.number = \(part.number) AND p.tries = \(part.turn) AND p.ended_at IS NULL
               AND EXISTS (SELECT 1 FROM entitlement_sync.run AS r WHERE r.id = p.run_id AND r.state = 'reading')
            """
        ).affected == 1
    }

    /// Gives a part back at once.
    package func release(_ part: Taken) async throws(PostgresError) {
        try await pool.query(
            """
            UPDATE entitlement_sync.run_part AS p SET due = clock_timestamp()
             WHERE p.run_id = \(part.run) AND p.number = \(part.number) AND p.tries = \(part.turn) AND p.ended_at IS NULL
            """
        )
    }

    /// Keeps what was found out about each of a part's users, by their keys, which ends the part.
    ///
    /// - Returns: `false`: another worker has taken it up, or the run was ended.
    /// - Throws: `PostgresError`.
    package func keep(_ findings: [Int64: Apply.BatchDryRun.Answer], of part: Taken) async throws -> Bool {
        let all = part.keys.map { findings[$0]?.predicted }
        let outcomes = all.map { $0?.outcome ?? Outcome.storeUnavailable.rawValue }
        let rules = all.map { $0?.rule }
        let errors = all.compactMap { $0?.error }
        let changes = part.keys.compactMap { key in findings[key].map { (key, $0.epoch, $0.predicted) } }
            .filter { Self.isChange($0.2) }
        return try await pool.query(
            """
            SELECT entitlement_sync.keep_part(
                       \(part.run), \(part.number), \(part.turn), \(outcomes), \(rules), \(errors),
                       \(changes.map(\.0)), \(changes.map(\.1)), \(changes.map { $0.2.outcome ?? "" }),
                       \(changes.map { $0.2.rule ?? "" }), \(changes.map(\.2.isAnnounced)),
                       \(changes.map(\.2.typeBefore)), \(changes.map(\.2.typeAfter)),
                       \(changes.map { Int64($0.2.assets) }), \(changes.map { $0.2.explanation ?? "" }))
            """
        ).first?.decode(Bool.self, at: 0) ?? false
    }

    /// Whether a user stands among a run's changes: their type would change, now or once a margin is over.
    private static func isChange(_ predicted: DryRunResult) -> Bool {
        predicted.typeBefore != predicted.typeAfter
            || predicted.outcome == Outcome.deferred.rawValue && predicted.rule.map(threats.contains) == true
    }

    /// Rules that postpone a demotion until a margin is over: their users stand among the changes, as deferred.
    private static let threats: Set<String> = [Rule.firstAbsence.rawValue, Rule.absenceMargin.rawValue]
}
