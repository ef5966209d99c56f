package import Entitlements
package import Postgres
import Queue

/// Stores' lists that runs read, as workers take them up.
///
/// What a list holds comes into the inbox as if it had been delivered; each step checks that the list is still its
/// reader's.
package struct Listings: Sendable {
    /// How long a list is a worker's without a sign of life.
    private static let lease = Duration.seconds(60)

    private let pool: PostgresPool

    package init(pool: PostgresPool) { self.pool = pool }

    /// A list that was taken up.
    package struct Taken: Sendable {
        package var run: Int64
        package var list: String
        /// How often it was taken up; a later turn shuts this one out.
        package var turn: Int32
        /// How often it has failed in a row.
        package var failures: Int32
        /// Everything before this was listed.
        package var reached: Instant
        package var until: Instant
    }

    /// Takes up a list that goes back as far as `reach`; `nil`: no run has it waiting.
    ///
    /// Other workers take it up after a minute in which its reader has kept nothing.
    package func take(_ list: String, reach: Duration) async throws(PostgresError) -> Taken? {
        let row = try await pool.query(
            """
            SELECT t.run_id, t.turn, t.failures, t.reached, t.until
              FROM entitlement_sync.take_backfill(
                       \(list), \(reach.microseconds) * interval '1 microsecond',
                       \(Self.lease.microseconds) * interval '1 microsecond') AS t
            """
        ).first
        guard let row else { return nil }
        return Taken(
            run: try row.decode(Int64.self, at: 0),
            list: list,
            turn: try row.decode(Int32.self, at: 1),
            failures: try row.decode(Int32.self, at: 2),
            reached: try row.decode(Instant.self, at: 3),
            until: try row.decode(Instant.self, at: 4)
        )
    }

    /// What stood on a page of a list.
    package struct Page: Sendable {
        package var events: [Inbox.Event]
        /// Texts that did not show that they are the store's: nothing of them is kept.
        var refused = 0
    }

    /// Keeps the events of a store's page, all or none; those that were kept before stay as they are.
    ///
    /// `isOwned`: events about purchases without a known owner are counted, and not kept. Returns `false` where another
    /// worker goes on with the list, or the run does not.
    package func keep(
        _ page: Page,
        from source: Store,
        isOwned: Bool,
        of taken: Taken
    ) async throws(PostgresError) -> Bool {
        let events = page.events
        let stood = #"{"listed":\#(events.count + page.refused),"refused":\#(page.refused)}"#
        return try await pool.query(
            """
            SELECT entitlement_sync.keep_backfill(
                       \(taken.run), \(taken.list), \(taken.turn), \(Self.lease.microseconds) * interval '1 microsecond',
                       \(PostgresJSON(stood)), \(isOwned), \(source.rawValue),
                       \(events.map(\.id)), \(events.map(\.kind)), \(events.map { $0.occurredAt?.timestamp }),
                       \(events.map(\.announcesAccess)), \(events.map(\.names)), \(events.map(\.about)),
                       \(events.map { PostgresBytes($0.body) }))
            """
        ).first?.decode(Bool.self, at: 0) ?? false
    }

    /// Notes that a list was read up to an instant; `false`: another worker goes on with it, or the run does not.
    package func move(_ taken: Taken, to instant: Instant) async throws(PostgresError) -> Bool {
        try await pool.query(
            """
            SELECT entitlement_sync.move_backfill(
                       \(taken.run), \(taken.list), \(taken.turn), \(Self.lease.microseconds) * interval '1 microsecond',
                       \(instant.timestamp))
            """
        ).first?.decode(Bool.self, at: 0) ?? false
    }

    /// Notes for the operator that a store refuses our credentials.
    package func noteRefusal(by store: Store) async throws {
        try await Alarms.raise(CredentialAlarm.name(of: store), CredentialAlarm.advice(on: store), in: pool)
    }

    /// Postpones a list that has failed so often in a row by now.
    ///
    /// `code`: why it can't be read; `nil`: its reader stops, and others may go on.
    package func postpone(
        _ taken: Taken,
        for pause: Duration,
        code: String?,
        failures: Int32
    ) async throws(PostgresError) {
        try await pool.query(
            """
            SELECT entitlement_sync.postpone_backfill(
                       \(taken.run), \(taken.list), \(taken.turn), \(pause.microseconds) * interval '1 microsecond',
                       \(code), \(failures))
            """
        )
    }
}
