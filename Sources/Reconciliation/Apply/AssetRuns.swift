package import Entitlements
import Ledger
package import Logging
import Outbox
package import Postgres
package import Queue

/// Carries big asset sets on in batches, under the epoch of the user's last change of type.
///
/// Each batch is a transaction of its own: the user is locked, the epoch compared, and a run of an older epoch ends
/// without touching anything, so that a lapse in the middle of an unfreeze wins.
package struct AssetRuns: Sendable {
    private let pool: PostgresPool
    private let mode: Mode
    private let publishes: Bool
    private let logger: Logger

    /// `publishes`: whether changes are published in the outbox.
    package init(pool: PostgresPool, mode: Mode, publishes: Bool = false, logger: Logger) {
        self.pool = pool
        self.publishes = publishes
        self.mode = mode
        self.logger = logger
    }

    /// Freezes and unfreezes assets that were too many for the transaction that decided on them; `signal` is raised when runs
    /// begin.
    package func service(wokenBy signal: Signal) -> PeriodicService {
        PeriodicService("asset runner", every: .milliseconds(250), wokenBy: signal, logger: logger) {
            try await step() ? .again : .idle
        }
    }

    private struct Run {
        var userKey: Int64
        var userID: String
        var epoch: Int64
        var decisionID: Int64
        var direction: AssetDirection
        var cursor: String?
        var batch: Int
        var attempt: Int
        var hasFailed: Bool
        var isParked: Bool
    }

    /// Does one batch of one due run; returns whether there was anything to do, and then there may be more.
    package func step() async throws -> Bool {
        guard mode != .observe else { return false }
        var failure: (run: Run, error: PostgresError)?
        let worked = try await pool.withTransaction { connection -> Bool in
            guard var run = try await take(on: connection) else { return false }
            var locked = try await connection.send(LedgerReads.lockUsers([run.userID]))
            if locked[ExactText(run.userID)] == nil {
                let spellings = try await LedgerReads.spellings([run.userID], on: connection)
                guard let spelling = spellings[ExactText(run.userID)] else {
                    try await end(run, on: connection)
                    return true
                }
                run.userID = spelling
                locked = try await connection.send(LedgerReads.lockUsers([spelling]))
            }
            guard let user = locked[ExactText(run.userID)] else {
                try await delay(run, on: connection)
                return true
            }
            let epoch = try await connection.query(
                "SELECT u.epoch FROM entitlement_sync.user_sync AS u WHERE u.user_key = \(run.userKey) FOR NO KEY UPDATE"
            ).first?.decode(Int64.self, at: 0)
            let stillHolds =
                switch run.direction {
                case .unfreeze: user.type == .subscriber && user.status.isEligible
                case .freeze: user.type == .free
                }
            guard epoch == run.epoch, stillHolds else {
                try await end(run, on: connection)
                return true
            }
            do {
                try await connection.withSavepoint { connection in try await change(run, on: connection) }
            } catch let error as PostgresError where error.code == .serverError && !error.isRetryable {
                failure = (run, error)
                try await narrow(run, after: error, on: connection)
            } catch let error as PostgresError where error.sqlState == SQLState.lockNotAvailable {
                // A host's own lock timeout: other users' runs go first meanwhile.
                try await delay(run, by: 1000, on: connection)
            }
            return true
        }
        if let failure {
            logger.warning(
                "an asset was refused by the host's database",
                metadata: [
                    "error.sqlstate": "\(failure.error.sqlState ?? "")", "assets.batch": "\(failure.run.batch)",
                    "decision.id": "\(failure.run.decisionID)",
                ]
            )
        }
        return worked
    }

    private func take(on connection: PostgresConnection) async throws -> Run? {
        let rows = try await connection.query(
            """
            SELECT r.user_key, u.user_id, r.epoch, r.decision_id, r.direction, r.cursor, r.batch, r.attempt,
                   r.last_error IS NOT NULL AS has_failed, r.parked
              FROM entitlement_sync.asset_run AS r
              JOIN entitlement_sync.user_sync AS u ON u.user_key = r.user_key
             WHERE r.due <= now()
               AND NOT EXISTS (SELECT 1 FROM entitlement_sync.control AS c WHERE c.name = 'all' AND c.paused)
               -- Batch upon batch would lock the user's row, and a job that decides on the user again would never get it.
               AND NOT EXISTS (SELECT 1 FROM entitlement_sync.queue AS q
                                WHERE q.user_key = r.user_key AND q.owner IS NOT NULL)
             ORDER BY r.due
             LIMIT 1
               FOR UPDATE OF r SKIP LOCKED
            """
        )
        guard let row = rows.first else { return nil }
        let (userID, direction): (String?, String) = try (row["user_id"], row["direction"])
        let (batch, attempt): (Int32, Int32) = try (row["batch"], row["attempt"])
        return try Run(
            userKey: row["user_key"],
            userID: userID ?? "",
            epoch: row["epoch"],
            decisionID: row["decision_id"],
            direction: AssetDirection(rawValue: direction) ?? .unfreeze,
            cursor: row["cursor"],
            batch: Int(batch),
            attempt: Int(attempt),
            hasFailed: row["has_failed"],
            isParked: row["parked"]
        )
    }

    private func change(_ run: Run, on connection: PostgresConnection) async throws {
        // One user was asked about: whatever comes back is that user's.
        let found = try await connection.send(
            DecisionWrites.changeAssets(run.direction, of: [run.userID], after: [run.cursor], batch: run.batch)
        )
        let progress = try await AssetProgress.respelled(found, as: [run.userID], on: connection)[ExactText(run.userID)]
        if let progress, progress.changed > 0 {
            try await connection.query(
                """
                INSERT INTO entitlement_sync.asset_batch (decision_id, changed)
                VALUES (\(run.decisionID), \(Int32(clamping: progress.changed)))
                """
            )
            if publishes {
                let message = OutboxMessage.assetsChanged(
                    of: run.userKey,
                    topic: run.direction.topic,
                    count: progress.changed,
                    more: progress.more
                )
                try await connection.send(OutboxWrites.insert([message]))
            }
        }
        let isOver = progress?.more != true
        // What the host refused was stepped over.
        guard !isOver || run.hasFailed && run.cursor != nil else {
            try await end(run, on: connection)
            return
        }
        let changed = progress?.changed ?? 0
        // Nothing changed although something is left: another transaction has locked the rest, or the host refused it before.
        let isStuck = isOver || changed == 0
        // What is locked comes right after the cursor; what was refused lies before it.
        let cursor = isStuck && (isOver || run.hasFailed) ? nil : progress?.cursor
        try await connection.query(
            """
            UPDATE entitlement_sync.asset_run AS r
               SET cursor = \(cursor), changed = r.changed + \(Int64(changed)),
                   batch = least(1000, greatest(r.batch, 1) * 2),
                   attempt = CASE WHEN \(isStuck) THEN r.attempt + 1 ELSE 0 END,
                   parked = n.parked,
                   -- Each pass finds out for itself what is refused: what is merely held does not wait for an hour.
                   last_error = CASE WHEN \(isStuck) AND NOT n.parked THEN NULL ELSE r.last_error END,
                   due = clock_timestamp() + CASE WHEN n.parked THEN interval '1 hour'
                                                  WHEN \(isStuck)
                                                  THEN least(5, 0.1 * power(2, least(r.attempt, 10))) * interval '1 second'
                                                  ELSE interval '0' END
              FROM (SELECT \(isStuck && run.hasFailed && run.attempt >= Self.passesOverRefused) AS parked) AS n
             WHERE r.user_key = \(run.userKey)
            """
        )
    }

    /// How often what the host refuses is tried again at once; after that it is tried every hour, until it is mended.
    private static let passesOverRefused = 6

    /// Halves the batch until one asset is left, then steps over it and says so.
    private func narrow(_ run: Run, after error: PostgresError, on connection: PostgresConnection) async throws {
        if run.batch > 1 {
            try await connection.query(
                """
                UPDATE entitlement_sync.asset_run AS r
                   SET batch = greatest(1, r.batch / 2), last_error = \(error.sqlState), due = clock_timestamp()
                 WHERE r.user_key = \(run.userKey)
                """
            )
            return
        }
        // Logged once: a run that is tried every hour for the same refusal has nothing new to say.
        if !run.isParked {
            try await connection.query(
                """
                INSERT INTO entitlement_sync.asset_batch (decision_id, changed, failed)
                VALUES (\(run.decisionID), 0, \(error.sqlState ?? "error"))
                """
            )
        }
        let advice = "The host's database refuses to change an asset: see asset_batch.failed, and mend it."
        try await connection.send(Alarms.statements(raising: ["asset_refused": advice]))
        // Others have their turn before the next one. Where no asset is left to step over twice in a row, it was none that was
        // refused, but the change as such: that is for an operator to mend.
        try await connection.query(
            """
            UPDATE entitlement_sync.asset_run AS r
               SET last_error = \(error.sqlState), batch = 2, cursor = n.cursor,
                   attempt = CASE WHEN n.cursor IS NULL THEN r.attempt + 1 ELSE r.attempt END,
                   parked = r.parked OR n.cursor IS NULL AND r.attempt > 0,
                   due = clock_timestamp() + CASE WHEN n.cursor IS NOT NULL THEN interval '50 milliseconds'
                                                  WHEN r.attempt > 0 THEN interval '1 hour' ELSE interval '2 seconds' END
              FROM (SELECT entitlement_sync_host.next_asset(\(run.userID), \(run.cursor),
                                                            \(run.direction == .unfreeze)) AS cursor) AS n
             WHERE r.user_key = \(run.userKey)
            """
        )
    }

    private func delay(_ run: Run, by milliseconds: Int = 100, on connection: PostgresConnection) async throws {
        try await connection.query(
            """
            UPDATE entitlement_sync.asset_run AS r
               SET due = clock_timestamp() + \(Int64(milliseconds)) * interval '1 millisecond'
             WHERE r.user_key = \(run.userKey)
            """
        )
    }

    private func end(_ run: Run, on connection: PostgresConnection) async throws {
        try await connection.query("DELETE FROM entitlement_sync.asset_run AS r WHERE r.user_key = \(run.userKey)")
    }
}
