import Entitlements
import FoundationEssentials
package import Logging
package import Postgres
package import Queue

/// What the demotion brake counts, across all workers; `limit` in `Decision.swift` holds demotions back.
package enum BrakeStore {
    /// How many more unannounced demotions the rolling day allows.
    ///
    /// Locks the brake's row until the transaction ends, so that two workers never spend the same allowance.
    ///
    /// `wanted`: how many the batch would demote; if the known count allows them, the host's users are not counted. `limit`: how
    /// long a count may take, to the millisecond. Returns how many of them may be written, and how many the whole day allows.
    static func allowance(
        _ brake: DemotionBrake,
        wanted: Int,
        countingFor limit: Duration,
        on connection: PostgresConnection
    ) async throws -> (left: Int, limit: Int) {
        let rows = try await connection.query(
            """
            SELECT b.subscribers, coalesce(b.counted_at < clock_timestamp() - interval '100 milliseconds', true)
              FROM entitlement_sync.brake AS b FOR UPDATE
            """
        )
        guard let row = rows.first else { return (0, 0) }
        let (known, mayCount) = try row.decode(Int64.self, Bool.self)
        let used = try await connection.query(spent).first?.decode(Int64.self, at: 0) ?? 0
        let allowed = brake.limit(subscribers: known)
        let left = max(0, allowed - Int(used))
        guard left < wanted, mayCount, let now = try await count(for: limit, on: connection) else {
            return (left, allowed)
        }
        try await note(now + used, on: connection)
        let fresh = brake.limit(subscribers: now + used)
        return (max(0, fresh - Int(used)), fresh)
    }

    /// Counts the host's subscribers, unless that takes long: then housekeeping's count has to do.
    private static func count(for limit: Duration, on connection: PostgresConnection) async throws -> Int64? {
        do {
            return try await connection.withSavepoint { connection in
                try await connection.withSetting("statement_timeout", "\(limit.microseconds / 1000)ms") { connection in
                    let rows = try await connection.withPlansOfServer {
                        try await $0.query("SELECT entitlement_sync_host.count_subscribers()")
                    }
                    return try rows.first?.decode(Int64.self, at: 0)
                }
            }
        } catch let error as PostgresError where error.sqlState == SQLState.queryCanceled && !Task.isCancelled {
            return nil
        }
    }

    /// Demotions of the last 24 hours that count toward the limit, to the minute: the one in which the day began counts whole.
    package static let spent = PostgresQuery(rawSQL: spentSQL)

    package static let spentSQL = """
        SELECT coalesce(sum(b.demotions), 0)::bigint FROM entitlement_sync.brake_minute AS b
         WHERE b.minute > statement_timestamp() - interval '1441 minutes'
        """

    package static func spent(in pool: PostgresPool) async throws -> Int64 {
        try await pool.query(spent).first?.decode(Int64.self, at: 0) ?? 0
    }

    /// Counts demotions that the batch writes; the brake's row is locked.
    static func spend(_ demotions: Int) -> [PostgresRequest<Void>] {
        guard demotions > 0 else { return [] }
        return [
            PostgresRequest(
                """
                INSERT INTO entitlement_sync.brake_minute AS b (minute, demotions)
                VALUES (date_trunc('minute', statement_timestamp()), \(Int32(clamping: demotions)))
                ON CONFLICT (minute) DO UPDATE SET demotions = b.demotions + excluded.demotions
                """
            )
        ]
    }

    /// Counts the host's subscribers: the demotion brake allows a share of them to be demoted.
    package static func subscriberCounter(_ pool: PostgresPool, logger: Logger) -> PeriodicService {
        PeriodicService("subscriber counter", .upkeep, every: .seconds(60), logger: logger) {
            try await countSubscribers(in: pool)
            return .idle
        }
    }

    /// Counts them, unless a worker did within `age`.
    ///
    /// Outside of every other transaction: on a large host it takes a while.
    package static func countSubscribers(in pool: PostgresPool, notWithin age: Duration = .seconds(300)) async throws {
        // Marked first, so that many workers do not count together.
        let due = try await pool.query(
            """
            UPDATE entitlement_sync.brake AS b SET counted_at = now()
             WHERE b.counted_at IS NULL OR b.counted_at < now() - \(age.microseconds) * interval '1 microsecond'
            """
        )
        guard due.affected > 0 else { return }
        let now = try await pool.query("SELECT entitlement_sync_host.count_subscribers()").first
        let subscribers = try await (now?.decode(Int64.self, at: 0) ?? 0) + spent(in: pool)
        try await pool.withConnection { connection in try await note(subscribers, on: connection) }
    }

    /// Forgets minutes that no day counts any more, also by a clock that is days ahead.
    package static func forget(in pool: PostgresPool) async throws(PostgresError) {
        try await pool.query(
            "DELETE FROM entitlement_sync.brake_minute AS b WHERE b.minute < now() - interval '8 days'"
        )
    }

    /// Writes down of how many subscribers the limit is a part: those of now, and those who were demoted since the
    /// rolling day began, so that the limit does not shrink as it is used.
    package static func note(_ subscribers: Int64, on connection: PostgresConnection) async throws {
        try await connection.query(
            "UPDATE entitlement_sync.brake AS b SET subscribers = \(subscribers), counted_at = now()"
        )
    }
}
