package import Entitlements
package import Postgres
import Queue

/// The stores' events: each is kept once, and the users it concerns are read again.
package struct Inbox: Sendable {
    private let pool: PostgresPool

    package init(pool: PostgresPool) { self.pool = pool }

    /// An event as it is kept.
    package struct Event: Sendable, Hashable {
        /// The sender's own.
        var id: String
        var kind: String
        var occurredAt: Instant?
        /// It speaks of access that begins or goes on.
        var announcesAccess: Bool
        /// Ids that may be users'; those with line breaks are none.
        var users: [String] = []
        /// What else shows which users it may concern, as `drain_inbox` reads it: a JSON object; `nil`: nothing.
        var about: String?
        /// The message as it came.
        package var body: [UInt8]

        /// The ids as they travel: most events name one user, and JSON for each costs more than the rest.
        var names: String? {
            let lines = users.filter { !$0.utf8.contains(UInt8(ascii: "\n")) }
            return lines.isEmpty ? nil : lines.joined(separator: "\n")
        }
    }

    /// Keeps a sender's events, all or none, and returns how many are new; those on record stay as they are.
    @discardableResult
    package func accept(_ events: [Event], from source: Store) async throws(PostgresError) -> Int64 {
        try await pool.query(
            """
            SELECT entitlement_sync.accept_events(
                       \(source.rawValue), \(events.map(\.id)), \(events.map(\.kind)),
                       \(events.map { $0.occurredAt?.timestamp }), \(events.map(\.announcesAccess)), \(events.map(\.names)),
                       \(events.map(\.about)),
                       \(events.map { PostgresBytes($0.body) }))
            """
        ).first?.decode(Int64.self, at: 0) ?? 0
    }

    /// What became of events that were due.
    package struct Drained: Sendable, Hashable {
        /// Events that were examined.
        package var examined: Int64
        /// Users who will be read again.
        package var queued: Int64
    }

    /// Examines events that are due, `most` at a time.
    package func drain(upTo most: Int = 500) async throws -> Drained {
        try await pool.retrying { connection in
            try await connection.query("SELECT entitlement_sync.spell_inbox(\(Int32(clamping: most)))")
            return try await connection.query(
                "SELECT d.examined, d.queued FROM entitlement_sync.drain_inbox(\(Int32(clamping: most))) AS d"
            ).first?.decode(into: Drained.init(examined:queued:)) ?? Drained(examined: 0, queued: 0)
        }
    }

    /// An event that leads to no user yet, and may lead to one by its stores' words.
    package struct Ask: Sendable, Hashable {
        package var id: Int64
        /// How often it was examined; handed back with the answer.
        package var attempt: Int32
        /// It was found in a store's list; no one waits for it.
        package var isListed: Bool
        /// What is known of it: the JSON object of `Event.about`, with `users`.
        package var about: String
    }

    /// What stores said about who an event is about.
    package struct Answer: Sendable, Hashable {
        package var ask: Ask
        /// Names that may be users', as a JSON array of texts.
        package var users: String
        /// Further identifiers, as a JSON array of `StoreEvent.Purchase`.
        package var purchases: String
        /// A store could not be asked.
        package var failed: Bool

        package init(_ ask: Ask, users: String, purchases: String, failed: Bool) {
            self.ask = ask
            self.users = users
            self.purchases = purchases
            self.failed = failed
        }
    }

    /// Takes events whose stores are to be asked about them, those that have waited longest first; one that is not
    /// answered is handed out again.
    package func takeAsks(upTo most: Int) async throws -> [Ask] {
        try await pool.query(
            "SELECT t.id, t.attempt, t.is_backfilled, t.about FROM entitlement_sync.take_asks(\(Int32(clamping: most))) AS t"
        ).map { try $0.decode(into: Ask.init(id:attempt:isListed:about:)) }
    }

    /// Keeps what stores said; what is new is examined at once.
    package func keep(_ answers: [Answer]) async throws {
        try await pool.query(
            """
            SELECT entitlement_sync.keep_answers(
                       \(answers.map(\.ask.id)), \(answers.map(\.ask.attempt)), \(answers.map(\.users)),
                       \(answers.map(\.purchases)), \(answers.map(\.failed)))
            """
        )
    }

    /// Whether events are due to be examined; `asks`: or stores are to be asked about some, now or in a moment.
    package func hasNew(orAsks asks: Bool = false) async throws -> Bool {
        try await pool.query(
            """
            SELECT EXISTS (SELECT 1 FROM entitlement_sync.inbox AS i
                            WHERE i.state IN ('received', 'waiting') AND i.due <= now())
                OR \(asks) AND EXISTS (SELECT 1 FROM entitlement_sync.inbox AS i
                                         WHERE i.ask_due IS NOT NULL AND i.state = 'waiting')
            """
        ).first?.decode(Bool.self, at: 0) ?? false
    }

    /// Forgets events' bodies and whole events after so many days; returns whether there is more to forget.
    package func forget(bodiesAfter bodiesDays: Int, eventsAfter eventsDays: Int) async throws -> Bool {
        try await pool.query(
            "SELECT entitlement_sync.forget_events(\(Int32(clamping: bodiesDays)), \(Int32(clamping: eventsDays)))"
        ).first?.decode(Bool.self, at: 0) ?? false
    }
}

extension Inbox.Event {
    /// A store's event with the message that it came in.
    package init(keeping event: StoreEvent, body: [UInt8]) {
        self.init(
            id: event.id,
            kind: event.kind,
            occurredAt: event.occurredAt,
            announcesAccess: event.announcesAccess,
            users: event.users,
            about: event.about,
            body: body
        )
    }
}
