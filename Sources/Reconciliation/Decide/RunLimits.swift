import Entitlements
import FoundationEssentials
import Postgres
import Queue

/// What runs say of the demotions that they bring about; `limit` in `Decision.swift` applies it.
enum RunLimits {
    /// Asks which demotions of a batch wait for their run, and which an operator has approved.
    ///
    /// A user that an event names waits for no run. Returns the limits by the decision's place in the batch.
    static func of(_ decided: [DecidedJob], _ connection: PostgresConnection) async throws -> [Int: RunLimit] {
        let jobs = decided.filter(\.countsTowardBrake).map(\.job)
        guard !jobs.isEmpty else { return [:] }
        let rows = try await connection.query(
            "SELECT r.job, r.run_id, r.is_held, r.is_confirmed FROM entitlement_sync.runs_of(\(jobs.map(\.id)), \(jobs.map(\.userKey))) AS r"
        )
        var found: [UUID: (run: Int64, isHeld: Bool, isConfirmed: Bool)] = [:]
        for row in rows {
            let (job, run, isHeld, isConfirmed) = try row.decode(UUID.self, Int64.self, Bool.self, Bool.self)
            // Two runs may have the user: an approval outranks what another run holds, and a hold outranks the rest.
            if let known = found[job], known.isHeld || known.isConfirmed, !isConfirmed || isHeld { continue }
            found[job] = (run, isHeld, isConfirmed)
        }
        var holds: [Int: RunLimit] = [:]
        for (place, item) in decided.enumerated() {
            guard let run = found[item.job.id] else { continue }
            if run.isHeld {
                if item.job.lane != .event { holds[place] = .held(run: run.run) }
            } else if run.isConfirmed {
                holds[place] = .approved
            }
        }
        return holds
    }
}
