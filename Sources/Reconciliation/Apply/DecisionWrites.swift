import Entitlements
import FoundationEssentials
import Ledger
import Outbox
import Postgres
import Queue

extension DecidedJob {
    mutating func note(_ progress: AssetProgress) {
        assetsChanged = progress.changed
        assetsPending = progress.more
        assetCursor = progress.cursor
    }
}

/// The set-based writes of verdicts.
enum DecisionWrites {
    /// Sets the types of locked users.
    static func setTypes(_ effects: [DecidedJob]) -> [PostgresRequest<Void>] {
        UserType.allCases.compactMap { type in
            let ids = effects.filter { $0.newType == type }.compactMap(\.user?.id)
            guard !ids.isEmpty else { return nil }
            return PostgresRequest(
                "SELECT t FROM entitlement_sync_host.set_type(\(ids), \(type.rawValue)) AS t",
                read: { changed in
                    guard changed.count == ids.count else {
                        throw PostgresError(.protocolViolation, message: "the host adapter did not set every type")
                    }
                }
            )
        }
    }

    /// Changes the first batch of assets of each user, in the order of the user's effect.
    ///
    /// Answers by user id with how many changed, where the next batch begins, and whether there is one.
    static func changeAssets(
        _ direction: AssetDirection,
        of userIDs: [String],
        after cursors: [String?],
        batch: Int
    ) -> PostgresRequest<[ExactText: AssetProgress]> {
        PostgresRequest(
            """
            SELECT a.user_id, a.changed, a.cursor, a.more
              FROM entitlement_sync_host.\(rawSQL: direction.function)(\(userIDs), \(cursors), \(Int32(batch))) AS a
            """
        ) { rows in
            var progress: [ExactText: AssetProgress] = [:]
            progress.reserveCapacity(rows.count)
            for row in rows {
                let (userID, changed): (String?, Int64?) = try (row["user_id"], row["changed"])
                let (cursor, more): (String?, Bool?) = try (row["cursor"], row["more"])
                guard let userID, let changed, let more else {
                    let field = userID == nil ? "user_id" : changed == nil ? "changed" : "more"
                    throw AdapterFault(direction.function, field)
                }
                progress[ExactText(userID)] = AssetProgress(changed: Int(changed), cursor: cursor, more: more)
            }
            return progress
        }
    }

    /// More changes of type than that within a day are an alarm: two witnesses, or a store that takes its word back.
    private static let flipsADay = 4

    /// Brings our own rows of the users up to date.
    ///
    /// `isObserving`: nothing of the decisions is written to the host, so that its types are not ours.
    static func updateUsers(_ effects: [DecidedJob], isObserving: Bool) -> [PostgresRequest<Void>] {
        guard !effects.isEmpty else { return [] }
        let query: PostgresQuery = """
            UPDATE entitlement_sync.user_sync AS u
               SET epoch = u.epoch + n.changes,
                   flips = CASE WHEN n.changes = 0 THEN u.flips
                                WHEN u.flips_since > now() - interval '1 day' THEN least(u.flips, 1000) + 1
                                ELSE 1 END,
                   flips_since = CASE WHEN n.changes = 0 OR u.flips_since > now() - interval '1 day' THEN u.flips_since
                                      ELSE now() END,
                   read_at = CASE WHEN n.coverage = 'none' THEN u.read_at ELSE greatest(u.read_at, n.asked_at) END,
                   full_read_at = CASE WHEN n.coverage = 'full' THEN greatest(u.full_read_at, n.asked_at)
                                       ELSE u.full_read_at END,
                   absent_since = CASE n.absence WHEN 'clear' THEN NULL WHEN 'begin' THEN n.asked_at
                                                 ELSE u.absent_since END,
                   moved_away_at = CASE n.absence WHEN 'clear' THEN NULL ELSE u.moved_away_at END,
                   next_check_at = CASE n.plan WHEN 'keep' THEN u.next_check_at
                                           WHEN 'await_eligibility' THEN NULL
                                           -- One that is far enough away will do, and leaves the index as it is.
                                           WHEN 'background'
                                           THEN CASE WHEN u.next_check_at <= n.next_check_at
                                                      AND u.next_check_at >= n.asked_at + (n.next_check_at - n.asked_at) / 2
                                                     THEN u.next_check_at ELSE n.next_check_at END
                                           ELSE n.next_check_at END,
                   awaits_eligibility = CASE n.plan WHEN 'keep' THEN u.awaits_eligibility ELSE n.plan = 'await_eligibility' END,
                   ever_observed = u.ever_observed OR n.observed,
                   decided_subscriber = coalesce(n.decided, u.decided_subscriber),
                   entitlements = CASE WHEN n.entitlements IS NULL THEN u.entitlements
                                       ELSE nullif(n.entitlements, '[]')::json END,
                   fingerprint = n.fingerprint,
                   recorded_at = CASE WHEN n.coverage = 'full' AND n.confirms IS NULL
                                      THEN greatest(u.recorded_at, n.asked_at) ELSE u.recorded_at END,
                   decision_id = n.confirms,
                   confirmed = CASE WHEN n.confirms IS NULL THEN 0 ELSE u.confirmed + 1 END,
                   confirmed_id = coalesce(n.confirmed_id, 0),
                   confirmed_first_at = CASE WHEN n.confirms IS NULL THEN 'epoch'
                                             WHEN u.confirmed = 0 THEN now() ELSE u.confirmed_first_at END,
                   confirmed_at = CASE WHEN n.confirms IS NULL THEN 'epoch' ELSE now() END,
                   confirmed_asked_at = CASE WHEN n.confirms IS NULL THEN 'epoch' ELSE n.asked_at END
              FROM unnest(\(effects.column(\.job.userKey)), \(effects.column { Int64(isObserving || $0.newType == nil ? 0 : 1) }),
                          \(effects.column(\.coverage.rawValue)), \(effects.column(\.askedAt.timestamp)),
                          \(effects.column { name(of: isObserving ? $0.decision.verdict.observedAbsence : $0.decision.verdict.absence) }), \(effects.column(\.isExplained)),
                          \(effects.column { plan(of: $0.decision.nextCheck) }), \(effects.column { $0.decision.nextCheck?.at?.timestamp }),
                          \(effects.column { effect in effect.decidedType(isObserving: isObserving).map { $0 == .subscriber } }),
                          \(effects.column(\.fingerprint)), \(effects.column { $0.confirmation?.decision }),
                          \(effects.column { $0.confirmation?.id }), \(effects.column { $0.entitlements?.record }))
                   AS n(user_key, changes, coverage, asked_at, absence, observed, plan, next_check_at, decided, fingerprint,
                        confirms, confirmed_id, entitlements)
             \(rawSQL: LedgerWrites.row(of: "user_sync", where: "user_key"))
             WHERE u.ctid = found.place
            """
        return [PostgresRequest(query)]
    }

    /// What an operator has to know of these effects.
    static func alarms(_ effects: [DecidedJob]) -> [String: String] {
        guard effects.contains(where: { $0.newType != nil && ($0.facts?.flips ?? 0) >= flipsADay }) else { return [:] }
        return [
            "flapping":
                "A user's type changed more than \(flipsADay) times within a day: see decision_log for who and why."
        ]
    }

    private static func plan(of check: ScheduledCheck?) -> String {
        guard let check else { return "keep" }
        if check.awaitsEligibility { return "await_eligibility" }
        return check.isBackground ? "background" : "at"
    }

    private static func name(of note: AbsenceNote) -> String {
        switch note {
        case .keep: "keep"
        case .clear: "clear"
        case .begin: "begin"
        }
    }

    /// Records the decisions; answers with each decision's id by user key.
    ///
    /// How often checks confirmed the decision before stands in the user's row until `updateUsers`, and in the new one from then
    /// on.
    static func insertDecisions(_ effects: [DecidedJob], mode: Mode) -> PostgresRequest<[Int64: Int64]> {
        let braked = effects.column { mode != .observe && $0.countsTowardBrake }
        let hasConfirmed = effects.contains { $0.facts?.confirmed ?? 0 > 0 }
        let (confirmed, before) =
            hasConfirmed
            ? (
                ", previous_id, confirmed, confirmed_id, confirmed_first_at, confirmed_at, confirmed_asked_at",
                ", u.decision_id, u.confirmed, u.confirmed_id, u.confirmed_first_at, u.confirmed_at, u.confirmed_asked_at"
            ) : ("", "")
        let users =
            hasConfirmed ? "LEFT JOIN entitlement_sync.user_sync AS u ON u.user_key = n.key AND u.confirmed > 0" : ""
        return PostgresRequest(
            """
            INSERT INTO entitlement_sync.decision
                   (user_key, job_id, assets_changed, observed, braked, kind, rule, outcome, type_before, type_after,
                    explanation, entitlements\(rawSQL: confirmed))
            SELECT n.key, n.job_id, n.assets, n.observed, n.braked, n.kind, n.rule, n.outcome, n.type_before, n.type_after,
                   n.explanation, n.entitlements::json\(rawSQL: before)
              FROM unnest(\(effects.column(\.job.userKey)), \(effects.column(\.job.id)),
                                   \(effects.column { Int32(clamping: $0.assetsChanged) }),
                                   \(effects.column { _ in mode == .observe }), \(braked),
                                   \(effects.column(\.job.kind.rawValue)), \(effects.column(\.verdict.rule.rawValue)),
                                   \(effects.column(\.verdict.outcome.rawValue)), \(effects.column { $0.user?.type.rawValue }),
                                   \(effects.column { ($0.newType ?? $0.user?.type)?.rawValue }),
                                   \(effects.column(\.verdict.explanation)),
                                   \(effects.column { $0.entitlements.flatMap { $0.isNews ? $0.record : nil } }))
                   AS n(key, job_id, assets, observed, braked, kind, rule, outcome, type_before, type_after, explanation,
                        entitlements)
              \(rawSQL: users)
            RETURNING user_key, id
            """
        ) { rows in
            Dictionary(try rows.map { try $0.decode(Int64.self, Int64.self) }) { $1 }
        }
    }

    /// Replaces the users' asset runs: a new verdict voids what an older one left unfinished.
    static func replaceRuns(_ runs: [NewAssetRun]) -> [PostgresRequest<Void>] {
        guard !runs.isEmpty else { return [] }
        let query: PostgresQuery = """
            INSERT INTO entitlement_sync.asset_run AS r (user_key, epoch, decision_id, direction, cursor, changed)
            SELECT n.user_key, u.epoch, n.decision_id, n.direction, n.cursor, n.changed
              FROM unnest(\(runs.map(\.effect.job.userKey)), \(runs.map(\.decisionID)), \(runs.map(\.direction.rawValue)),
                          \(runs.map(\.effect.assetCursor)), \(runs.map { Int64($0.effect.assetsChanged) }))
                   AS n(user_key, decision_id, direction, cursor, changed)
              JOIN entitlement_sync.user_sync AS u ON u.user_key = n.user_key
            ON CONFLICT (user_key) DO UPDATE
               SET epoch = excluded.epoch, decision_id = excluded.decision_id, direction = excluded.direction,
                   cursor = excluded.cursor, changed = excluded.changed, attempt = 0, due = now(), batch = 1000,
                   parked = false, last_error = NULL
            """
        return [PostgresRequest(query)]
    }
}

/// Which way assets go.
enum AssetDirection: String, Sendable {
    case freeze
    case unfreeze

    /// What is published of a change.
    var topic: OutboxTopic { self == .freeze ? .assetsFrozen : .assetsUnfrozen }

    /// The adapter's function.
    var function: String { "\(rawValue)_assets" }
}

struct AssetProgress {
    var changed: Int
    var cursor: String?
    var more: Bool

    /// Names what a host that compares ids by other rules than bytes returned by the ids that were asked for.
    ///
    /// What assets of one user that spell it in two ways came to is gone through again from the first.
    static func respelled(
        _ progress: [ExactText: AssetProgress],
        as ids: [String],
        on connection: PostgresConnection
    ) async throws -> [ExactText: AssetProgress] {
        let asked = Set(ids.map(ExactText.init))
        let others = progress.keys.filter { !asked.contains($0) }
        guard !others.isEmpty else { return progress }
        let spellings = try await LedgerReads.spellings(others.map(\.text), on: connection)
        return Dictionary(progress.map { (spellings[$0].map(ExactText.init) ?? $0, $1) }) {
            AssetProgress(changed: $0.changed + $1.changed, cursor: nil, more: $0.more || $1.more)
        }
    }
}

/// What a verdict's assets are carried on by, beyond its first batch.
typealias NewAssetRun = (effect: DecidedJob, decisionID: Int64, direction: AssetDirection)

extension [DecidedJob] {
    /// One value of each, for an array parameter.
    ///
    /// Unlike `map` it copies no decided job, and those are large.
    @inline(__always) fileprivate func column<Value>(_ value: (DecidedJob) -> Value) -> [Value] {
        withUnsafeBufferPointer { jobs in jobs.indices.map { value(jobs[$0]) } }
    }
}
