package import FoundationEssentials
package import Postgres
import Queue

/// Messages that are not delivered yet.
package struct OutboxQueue: Sendable {
    private let pool: PostgresPool

    package init(pool: PostgresPool) { self.pool = pool }

    /// A message that is to be delivered now.
    package struct Message: Sendable, Hashable {
        package var number: Int64
        /// The message's own id, the same at every try.
        package var id: UUID
        /// `nil` once the user is erased.
        package var userID: String?
        package var topic: String
        /// A JSON object.
        package var data: String
        package var createdAt: PostgresTimestamp
        /// Which try this is, from 1.
        package var attempt: Int16
        /// Since it was written.
        package var ageSeconds: Double
    }

    /// Takes the next message of each user, one a user, for this process; others take them once `lease` has passed.
    package func take(upTo limit: Int, for lease: Duration) async throws -> [Message] {
        try await pool.query(
            """
            SELECT t.id, t.uid, t.user_id, t.topic, t.data, t.created_at, t.attempt, t.age
              FROM entitlement_sync.take_outbox(\(Int32(clamping: limit)), \(Int32(clamping: lease.components.seconds))) AS t
            """
        ).map { try $0.decode(into: Message.init(number:id:userID:topic:data:createdAt:attempt:ageSeconds:)) }
    }

    /// Forgets delivered messages; what was postponed behind them is due.
    package func end(_ numbers: [Int64]) async throws(PostgresError) {
        guard !numbers.isEmpty else { return }
        try await pool.query(
            """
            WITH ended AS (
                DELETE FROM entitlement_sync.outbox AS o WHERE o.id = ANY (\(numbers)) RETURNING o.user_key
            )
            UPDATE entitlement_sync.outbox AS o SET due = clock_timestamp()
             WHERE o.user_key IN (SELECT e.user_key FROM ended AS e) AND o.id <> ALL (\(numbers))
               AND NOT o.is_dead AND o.due > clock_timestamp()
            """
        )
    }

    /// Postpones a message, and those of its user behind it.
    ///
    /// `wait`: for how long; `nil`: it is given up, and the user's next one is due. `error`: why; a code.
    package func postpone(_ number: Int64, for wait: Duration?, error: String) async throws(PostgresError) {
        let seconds = wait.map { Double($0.components.seconds) } ?? 0
        // Later messages of the user move with it, so that none is taken before this one can go.
        try await pool.query(
            """
            WITH failed AS (
                UPDATE entitlement_sync.outbox AS o
                   SET due = clock_timestamp() + \(seconds) * interval '1 second', is_dead = \(wait == nil),
                       last_error = \(error)
                 WHERE o.id = \(number)
                RETURNING o.user_key, o.due
            )
            UPDATE entitlement_sync.outbox AS o SET due = f.due
              FROM failed AS f
             WHERE o.user_key = f.user_key AND o.id <> \(number) AND NOT o.is_dead
            """
        )
    }

    /// Notes for the operator that messages were given up.
    func alarm() async throws(PostgresError) {
        try await Alarms.raise(
            "outbox_dead",
            "Messages could not be delivered for three days and were given up: see outbox.last_error.",
            in: pool
        )
    }
}
