package import Postgres
import Queue

/// Transfers on their way: each step is on record before the next begins.
package struct Transfers: Sendable {
    let pool: PostgresPool

    package init(pool: PostgresPool) { self.pool = pool }

    package enum Step: String, Sendable, PostgresDecodable {
        case begun
        /// RevenueCat's call was begun: only a reading tells what came of it.
        case calling
        /// The purchases are the claimant's, or there was nothing to call for.
        case confirmed
        case done, stopped
    }

    /// A transfer that is due.
    package struct Due: Sendable {
        package var id: Int64
        package var ticketID: Int64
        package var step: Step
        /// How many calls were begun.
        package var calls: Int
        /// How often it was taken up; a process that takes it up later shuts this turn out.
        package var tries: Int
        /// RevenueCat's ids of all that the last call moves.
        package var moves: [String]
        /// Why it may not go on now: `paused`, or `unsettled` while the last call may still do its work.
        package var waits: String?
    }

    /// Takes due ones for this process, for two minutes, longer than all requests of one step may take: a process that dies
    /// meanwhile has its share taken by others.
    package func take(upTo limit: Int) async throws -> [Due] {
        try await pool.query(
            """
            WITH due AS MATERIALIZED (
                SELECT x.id FROM entitlement_sync.transfer AS x
                 WHERE x.due <= now() AND x.step NOT IN ('done', 'stopped')
                 ORDER BY x.due LIMIT \(Int64(limit)) FOR NO KEY UPDATE SKIP LOCKED
            )
            UPDATE entitlement_sync.transfer AS x
               SET due = now() + interval '2 minutes', tries = x.tries + 1
              FROM due AS d WHERE x.id = d.id
            RETURNING x.id, x.ticket_id, x.step, x.calls, x.tries, x.moves,
                      CASE WHEN EXISTS (SELECT 1 FROM entitlement_sync.control AS c
                                         WHERE c.name IN ('transfers', 'all') AND c.paused) THEN 'paused'
                           WHEN x.called_at > now() - interval '10 minutes' THEN 'unsettled' END
            """
        ).map { row in
            try row.decode(into: Due.init)
        }
    }

    /// What became of the question whether a transfer may go on.
    package enum Leave: Sendable, Hashable {
        case given
        /// Not now.
        case later(String)
        /// It has been stopped, and the ticket is open again.
        case stopped(String)
    }

    /// Asks whether a transfer may go on with evidence that was just collected, and goes on with it in the same
    /// transaction.
    ///
    /// `moves`: RevenueCat's ids of all that its call will move; empty: there is nothing to call for. Where it throws,
    /// the next step may be on record all the same.
    package func goOn(_ due: Due, on evidence: Int64, moving moves: [String]) async throws -> Leave {
        let rows = try await pool.query(
            "SELECT entitlement_sync.allow_transfer(\(due.id), \(Int32(clamping: due.tries)), \(evidence), \(moves))"
        )
        switch try rows.first?.decode(String?.self, at: 0) {
        case nil: return .given
        case let reason? where ["paused", "step", "unsettled"].contains(reason): return .later(reason)
        case let reason?: return .stopped(reason)
        }
    }

    /// Records what a reading showed after a call was begun: the purchases have moved, or nothing came of it so far.
    ///
    /// `isRefused`: RevenueCat said that it did nothing, so that nothing is on its way.
    ///
    /// - Returns: where the transfer stands now.
    package func settleCall(_ due: Due, hasMoved: Bool, isRefused: Bool) async throws -> Step {
        let rows = try await pool.query(
            "SELECT entitlement_sync.settle_call(\(due.id), \(Int32(clamping: due.tries)), \(hasMoved), \(isRefused))"
        )
        guard let step = try rows.first?.decode(Step.self, at: 0) else {
            throw PostgresError(.decoding, message: "a transfer's step is not known")
        }
        return step
    }

    /// Carries a confirmed transfer into our own records, and ends it.
    package func settle(_ due: Due) async throws -> Settled {
        try await pool.retrying { connection in
            let rows = try await connection.query("SELECT entitlement_sync.settle_transfer(\(due.id))")
            switch try rows.first?.decode(Int32?.self, at: 0) {
            case let count? where count >= 0: return .done(Int(count))
            case .some: return .tooLate
            case nil: return .ownerChanged
            }
        }
    }

    /// What came of carrying a transfer into our records.
    package enum Settled: Sendable, Hashable {
        /// So many purchases are the claimant's now.
        case done(Int)
        /// What it was allowed on is too old: it has to be allowed again.
        case tooLate
        /// Our records give the purchase to another user by now.
        case ownerChanged
    }

    /// Postpones one, to the millisecond; `error`: why, a code.
    package func putOff(_ due: Due, for wait: Duration, error: String) async throws {
        try await pool.query(
            """
            UPDATE entitlement_sync.transfer AS x
               SET due = now() + \(Double(wait.microseconds) / 1_000_000) * interval '1 second', last_error = \(error)
             WHERE x.id = \(due.id) AND x.step NOT IN ('done', 'stopped')
            """
        )
    }
}
