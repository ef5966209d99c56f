import Entitlements
import FoundationEssentials
import Postgres
import Queue

/// How demotions of runs wait for their run's limit.
enum HeldDemotions {
    /// Holds demotions that a run has yet to count, and marks those that an operator has confirmed.
    ///
    /// A user that an event names waits for no run.
    ///
    /// - Parameters:
    ///   - effects: a batch's.
    ///   - connection: the batch's.
    /// - Throws: `PostgresError`.
    static func hold(_ effects: inout [Effect], on connection: PostgresConnection) async throws {
        let jobs = effects.filter(\.isBraked).map(\.job)
        guard !jobs.isEmpty else { return }
        let rows = try await connection.query(
            "SELECT r.job, r.run_id, r.is_held, r.is_confirmed FROM entitlement_sync.runs_of(\(jobs.map(\.id)), \(jobs.map(\.userKey))) AS r"
        )
        guard !rows.isEmpty else { return }
        var found: [UUID: (run: Int64, isHeld: Bool, isConfirmed: Bool)] = [:]
        for row in rows {
            let (job, run, isHeld, isConfirmed) = try row.decode(UUID.self, Int64.self, Bool.self, Bool.self)
            // Two runs may speak of a user: whatever a person has confirmed outranks what another run holds, and that the rest.
            if let known = found[job], known.isHeld || known.isConfirmed, !isConfirmed || isHeld { continue }
            found[job] = (run, isHeld, isConfirmed)
        }
        for index in effects.indices where effects[index].isBraked {
            guard let held = found[effects[index].job.id] else { continue }
            guard held.isHeld else {
                effects[index].isConfirmed = held.isConfirmed
                continue
            }
            guard effects[index].job.lane != .event else { continue }
            effects[index].putOff(
                by: .proposed,
                "Run \(held.run) writes its demotions together, once everybody was read, or none of them."
            )
        }
    }
}
