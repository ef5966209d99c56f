import Entitlements
import Postgres

/// The demotion brake across all workers.
enum BrakeStore {
    /// How many more unannounced demotions the rolling day allows.
    ///
    /// Locks the brake's row until the transaction ends, so that two workers never spend the same allowance.
    static func allowance(_ brake: DemotionBrake, on connection: PostgresConnection) async throws -> Int {
        let rows = try await connection.query(
            """
            SELECT b.subscribers, b.counted_at IS NULL OR b.counted_at < now() - interval '1 hour'
              FROM entitlement_sync.brake AS b FOR UPDATE
            """
        )
        guard let row = rows.first else { return 0 }
        let (known, isStale) = try row.decode(Int64.self, Bool.self)
        var subscribers = known
        if isStale {
            // Housekeeping counts them long before; here only where it could not.
            let counted = try await connection.query(
                """
                UPDATE entitlement_sync.brake AS b
                   SET subscribers = entitlement_sync_host.count_subscribers(), counted_at = now()
                RETURNING b.subscribers
                """
            )
            subscribers = try counted.first?.decode(Int64.self, at: 0) ?? subscribers
        }
        let spent = try await connection.query(
            """
            SELECT count(*) FROM entitlement_sync.decision AS d
             WHERE d.braked AND d.at > clock_timestamp() - interval '24 hours'
            """
        )
        let used = try spent.first?.decode(Int64.self, at: 0) ?? 0
        return max(0, brake.limit(subscribers: subscribers) - Int(used))
    }

    /// Turns the demotions beyond the allowance into deferrals.
    static func hold(_ effects: inout [Effect], beyond allowance: Int) {
        var left = allowance
        for index in effects.indices where effects[index].verdict.action == .demote {
            guard !effects[index].verdict.wasAnnounced else { continue }
            if left > 0 {
                left -= 1
                continue
            }
            effects[index].verdict.rule = .brake
            effects[index].verdict.action = .none
            effects[index].verdict.outcome = .deferred
            effects[index].verdict.absence = .keep
            effects[index].verdict.explanation +=
                " More users than usual would be demoted today, so this one waits for a person (demotion brake)."
        }
    }
}
