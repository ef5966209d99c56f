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
        package var id: String
        package var kind: String
        package var occurredAt: Instant?
        /// It speaks of access that begins or goes on.
        package var announcesAccess: Bool
        /// Ids that may be users'; those with line breaks are none.
        package var users: [String]
        /// What else shows which users it may concern, as `drain_inbox` reads it: a JSON object; `nil`: nothing.
        package var about: String?
        /// The ids as they travel: most events name one user, and JSON for each costs more than the rest.
        var names: String? {
            let lines = users.filter { !$0.utf8.contains(UInt8(ascii: "\n")) }
            return lines.isEmpty ? nil : lines.joined(separator: "\n")
        }

        /// Its words.
        package var body: [UInt8]

        package init(
            id: String,
            kind: String,
            occurredAt: Instant?,
            announcesAccess: Bool,
            users: [String] = [],
            about: String? = nil,
            body: [UInt8]
        ) {
            self.users = users
            self.id = id
            self.kind = kind
            self.occurredAt = occurredAt
            self.announcesAccess = announcesAccess
            self.about = about
            self.body = body
        }
    }

    /// Keeps events; those that were kept before stay as they are.
    ///
    /// - Parameters:
    ///   - events: of one sender.
    ///   - source: the sender.
    /// - Returns: how many are new.
    /// - Throws: `PostgresError`; nothing is kept then.
    @discardableResult
    package func accept(_ events: [Event], from source: Store) async throws(PostgresError) -> Int64 {
        let rows = try await pool.query(
            """
            SELECT entitlement_sync.accept_events(
                       \(source.rawValue), \(events.map(\.id)), \(events.map(\.kind)),
                       \(events.map { $0.occurredAt?.timestamp }), \(events.map(\.announcesAccess)), \(events.map(\.names)),
                       \(events.map(\.about)),
                       \(events.map { PostgresBytes($0.body) }))
            """
        )
        return try rows.first?.decode(Int64.self, at: 0) ?? 0
    }

    /// What became of events that were due.
    package struct Drained: Sendable, Hashable {
        /// Events that were examined.
        package var examined: Int64
        /// Users who will be read again.
        package var queued: Int64
    }

    /// Examines events that are due.
    ///
    /// - Parameter most: how many at a time.
    /// - Returns: how many there were.
    /// - Throws: `PostgresError`.
    package func drain(upTo most: Int = 500) async throws -> Drained {
        try await pool.retrying { connection in
            try await connection.query("SELECT entitlement_sync.spell_inbox(\(Int32(clamping: most)))")
            let rows = try await connection.query(
                "SELECT d.examined, d.queued FROM entitlement_sync.drain_inbox(\(Int32(clamping: most))) AS d"
            )
            guard let row = rows.first else { return Drained(examined: 0, queued: 0) }
            let (examined, queued) = try row.decode(Int64.self, Int64.self)
            return Drained(examined: examined, queued: queued)
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

    /// Takes events whose stores are to be asked about them; one that is not answered is handed out again.
    ///
    /// - Parameter most: how many at a time.
    /// - Returns: the events, those that have waited longest first.
    /// - Throws: `PostgresError`.
    package func takeAsks(upTo most: Int) async throws -> [Ask] {
        try await pool.query(
            "SELECT t.id, t.attempt, t.is_backfilled, t.about FROM entitlement_sync.take_asks(\(Int32(clamping: most))) AS t"
        ).map { row in
            let (id, attempt, isListed, about) = try row.decode(Int64.self, Int32.self, Bool.self, String.self)
            return Ask(id: id, attempt: attempt, isListed: isListed, about: about)
        }
    }

    /// Keeps what stores said; what is new is examined at once.
    ///
    /// - Throws: `PostgresError`.
    package func keep(_ answers: [Answer]) async throws {
        try await pool.query(
            """
            SELECT entitlement_sync.keep_answers(
                       \(answers.map(\.ask.id)), \(answers.map(\.ask.attempt)), \(answers.map(\.users)),
                       \(answers.map(\.purchases)), \(answers.map(\.failed)))
            """
        )
    }

    /// Whether events wait that are due to be examined.
    ///
    /// - Parameter asks: whether those count too that stores are to be asked about, now or in a moment.
    /// - Returns: whether there is one.
    /// - Throws: `PostgresError`.
    package func hasNew(orAsks asks: Bool = false) async throws -> Bool {
        let rows = try await pool.query(
            """
            SELECT EXISTS (SELECT 1 FROM entitlement_sync.inbox AS i
                            WHERE i.state IN ('received', 'waiting') AND i.due <= now())
                OR \(asks) AND EXISTS (SELECT 1 FROM entitlement_sync.inbox AS i
                                         WHERE i.ask_due IS NOT NULL AND i.state = 'waiting')
            """
        )
        return try rows.first?.decode(Bool.self, at: 0) ?? false
    }

    /// Forgets old events.
    ///
    /// - Parameters:
    ///   - bodiesDays: after how many days their words go.
    ///   - eventsDays: after how many days they go altogether.
    /// - Returns: whether there is more to forget.
    /// - Throws: `PostgresError`.
    package func forget(bodiesAfter bodiesDays: Int, eventsAfter eventsDays: Int) async throws -> Bool {
        let rows = try await pool.query(
            "SELECT entitlement_sync.forget_events(\(Int32(clamping: bodiesDays)), \(Int32(clamping: eventsDays)))"
        )
        return try rows.first?.decode(Bool.self, at: 0) ?? false
    }
}
