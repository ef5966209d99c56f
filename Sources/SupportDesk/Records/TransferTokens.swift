package import Postgres
import Queue

/// Account tokens that are still to be written at the App Store for purchases that were moved.
package struct TransferTokens: Sendable {
    let pool: PostgresPool

    package init(pool: PostgresPool) { self.pool = pool }

    /// One purchase whose token is to be written.
    package struct Due: Sendable {
        package var id: Int64
        package var transferID: Int64
        /// How often it was taken up since it was requested.
        package var tries: Int
        /// A process that takes it up later shuts this turn out.
        package var turn: Int64
        /// The claimant's id; `nil`: the account is gone.
        package var userID: String?
        /// Whether our records still say that it is the claimant's.
        package var isOurs: Bool
        /// `production` or `sandbox`.
        package var environment: String
        /// The original transaction, as the store itself gave it; `nil`: only RevenueCat spoke of the purchase.
        package var originalID: String?
        /// Any of its transactions that a ticket names.
        package var transactionID: String?
        /// The app that it was sold in; `nil`: not known.
        package var bundleID: String?
    }

    /// How the writing of a token at the App Store ends.
    package struct End: Sendable, Hashable {
        var state: String
        var reason: String?

        static let set = End(state: "set")
        /// There is nothing to write.
        static func skipped(_ skip: Skip) -> End { End(state: "skipped", reason: skip.rawValue) }
        /// The App Store does not take it; a code.
        static func refused(_ code: String) -> End { End(state: "refused", reason: code) }
        /// No answer in so many tries; the last failure's code.
        static func givenUp(_ code: String) -> End { End(state: "given_up", reason: code) }

        /// For the log: no ids, and no tokens.
        var word: String { reason.map { "\(state)_\($0)" } ?? state }
    }

    /// Why there is nothing to write.
    package enum Skip: String, Sendable, CaseIterable {
        /// We have no key for it.
        case appStoreOff = "app_store_off"
        /// It is unknown which token the claimant's app would give.
        case tokenUnknown = "token_unknown"
        /// The claimant's account is gone.
        case claimantGone = "claimant_gone"
        /// The purchase is another user's by now.
        case movedOn = "moved_on"
        /// None of the App Store's ids of the purchase is known.
        case purchaseUnknown = "purchase_unknown"
    }

    /// Takes due ones for this process, for two minutes, longer than all requests for one may take.
    ///
    /// Of a purchase that was moved several times, the earlier move comes first.
    package func take(upTo limit: Int) async throws -> [Due] {
        try await pool.query(
            """
            WITH due AS MATERIALIZED (
                SELECT k.id FROM entitlement_sync.transfer_token AS k
                 WHERE k.state = 'due' AND k.due <= now()
                   AND NOT EXISTS (SELECT 1 FROM entitlement_sync.control AS c
                                    WHERE c.name IN ('transfers', 'all') AND c.paused)
                   AND NOT EXISTS (SELECT 1 FROM entitlement_sync.transfer_token AS e
                                    WHERE e.state = 'due' AND e.id < k.id
                                      AND entitlement_sync.surviving_purchase(e.purchase_id) = entitlement_sync.surviving_purchase(k.purchase_id))
                 ORDER BY k.due LIMIT \(Int64(limit)) FOR NO KEY UPDATE SKIP LOCKED
            ), taken AS (
                UPDATE entitlement_sync.transfer_token AS k
                   SET due = now() + interval '2 minutes', tries = k.tries + 1, turn = k.turn + 1
                  FROM due AS d WHERE k.id = d.id
                RETURNING k.*
            )
            SELECT k.id, k.transfer_id, k.tries, k.turn, u.user_id, coalesce(p.owner_key = x.to_key, false), p.environment, p.lookup_id,
                   (SELECT min(i.value) FROM entitlement_sync.purchase_identifier AS i
                     WHERE i.purchase_id = p.id AND i.store = 'app_store' AND i.kind = 'store_id' AND i.value ~ '^[0-9]+$'),
                   p.store_app
              FROM taken AS k
              JOIN entitlement_sync.transfer AS x ON x.id = k.transfer_id
              JOIN entitlement_sync.purchase AS p ON p.id = entitlement_sync.surviving_purchase(k.purchase_id)
              LEFT JOIN entitlement_sync.user_sync AS u ON u.user_key = x.to_key
            """
        ).map { row in
            try row.decode(into: Due.init)
        }
    }

    /// Records how it ended; it is taken up again where that fails.
    package func end(_ due: Due, _ end: End) async throws {
        try await pool.query(
            """
            UPDATE entitlement_sync.transfer_token AS k
               SET state = \(end.state), reason = \(end.reason), ended_at = clock_timestamp()
             WHERE k.id = \(due.id) AND k.state = 'due' AND k.turn = \(due.turn)
            """
        )
    }

    /// Postpones one, to the millisecond; `error`: why, a code.
    package func putOff(_ due: Due, for wait: Duration, error: String) async throws {
        try await pool.query(
            """
            UPDATE entitlement_sync.transfer_token AS k
               SET due = now() + \(Double(wait.microseconds) / 1_000_000) * interval '1 second', reason = \(error)
             WHERE k.id = \(due.id) AND k.state = 'due' AND k.turn = \(due.turn)
            """
        )
    }

    /// Gives one back, as if it had not been taken up.
    package func release(_ due: Due) async throws {
        try await pool.query(
            """
            UPDATE entitlement_sync.transfer_token AS k SET due = now(), tries = k.tries - 1
             WHERE k.id = \(due.id) AND k.state = 'due' AND k.turn = \(due.turn)
            """
        )
    }
}
