package import FoundationEssentials
import Postgres

/// A reconciliation of many users, real or dry, and how far it is.
package struct RunRecord: Sendable, Hashable {
    package enum Scope: String, Sendable, CaseIterable {
        /// Users whose next check is due.
        case due
        /// Every user of the host's.
        case all
        /// Every known user who was not read since an instant.
        case since
        /// Users that a dry run would change; an operator has confirmed it.
        case diff
    }

    package enum State: String, Sendable, CaseIterable {
        /// Users are read; of a real run promotions are written, demotions are held.
        case reading
        /// More would be demoted than the limit allows: no user was, and an operator has to decide.
        case stopped
        /// What was held is written, each user read again.
        case applying
        case done, canceled

        package var isOpen: Bool { self == .reading || self == .applying }
    }

    /// How many had been read at a moment.
    package struct Point: Sendable, Hashable {
        package var at: Date
        package var users: Int64
    }

    /// What was found in a store's list of what it sent.
    package struct Listed: Sendable, Hashable, Decodable {
        /// From when on: no earlier than the store remembers.
        package var from: Date
        /// Everything before this was listed.
        package var until: Date
        package var listed: Int64
        /// Those that were not in the inbox.
        package var new: Int64
        /// Those about purchases without a known owner.
        package var unknown: Int64?
        /// Those that did not show that they are the store's.
        package var refused: Int64?
        /// Whether it was read to its end.
        package var complete: Bool
        /// Why it could not be read on.
        package var error: String?
    }

    package var id: Int64
    package var scope: Scope
    package var state: State
    package var isDry: Bool
    package var isConfirmed: Bool
    package var isFed: Bool
    package var ofRun: Int64?
    package var schedule: String?
    package var askedBy: String
    package var confirmedBy: String?
    package var since: Date?
    package var askedAt: Date
    package var startedAt: Date?
    package var endedAt: Date?
    package var predictedEnd: Date?
    package var maxDemotions: Int32?
    /// Users whose reading was planned, whose reading has ended, and who were left out for their account's status.
    package var fed: Int64
    package var ended: Int64
    package var skipped: Int64
    /// How many users the run is about; `nil`: they are still being counted.
    package var total: Int64?
    /// Demotions that waited for the run's limit.
    package var held: Int64
    package var demotionLimit: Int64?
    /// Until when its changes can be released; `nil`: not all users were read yet.
    ///
    /// After that it holds no demotion.
    package var releasableUntil: Date?
    package var subscribers: Int64?
    /// What a person confirms, in hexadecimal digits.
    package var hash: String?
    package var outcomes: [String: Int64]
    package var rules: [String: Int64]
    package var errors: [String: Int64]
    package var progress: [Point]
    /// How many stretches were planned so far.
    package var parts: Int32
    /// Only users that stores' lists lead to are read.
    package var listsOnly: Bool
    /// What was listed besides, by the list: `app_store`, `app_store_sandbox`, `google_play`.
    package var listed: [String: Listed]

    /// The users it is about, in the word that commands have for it.
    package var scopeName: String { listsOnly ? RunRecord.listed : scope.rawValue }

    /// Runs of the scope `since` that read no users.
    package static let listed = "listed"

    /// Whether no list has failed so far, and whatever they held showed that it is the store's.
    package var isListed: Bool { !errors.keys.contains { $0.hasPrefix("listing.") } }

    /// Users still to be read; `nil`: not counted yet.
    package var left: Int64? { total.map { max($0 - ended - skipped, 0) } }
}

extension RunRecord {
    static let columns = """
        r.id, r.scope, r.state, r.is_dry, r.is_confirmed, r.is_fed, r.of_run, r.schedule, r.asked_by, r.confirmed_by,
        r.since, r.asked_at, r.started_at, r.ended_at, r.predicted_end, r.max_demotions, r.fed, r.ended, r.skipped, r.total,
        r.held, r.demotion_limit, r.subscribers, encode(r.hash, 'hex'), r.outcomes::text, r.rules::text, r.errors::text,
        coalesce((SELECT jsonb_agg(jsonb_build_array((extract(epoch FROM (p.point ->> 'at')::timestamptz) * 1000)::bigint,
                                                     p.point -> 'users') ORDER BY p.n)
                    FROM jsonb_array_elements(r.progress) WITH ORDINALITY AS p(point, n)), '[]')::text, r.parts,
        coalesce((SELECT jsonb_object_agg(l.list, l.said || jsonb_build_object(
                                              'from', (extract(epoch FROM (l.said ->> 'from')::timestamptz) * 1000)::bigint,
                                              'until', (extract(epoch FROM (l.said ->> 'until')::timestamptz) * 1000)::bigint))
                    FROM jsonb_each(r.listed) AS l(list, said)), '{}')::text,
        r.is_backfill_only, r.settled_at + interval '72 hours'
        """

    init(_ row: PostgresRow) throws(PostgresError) {
        func date(_ place: Int) throws(PostgresError) -> Date? {
            try row.decode(PostgresTimestamp?.self, at: place)?.date
        }
        func json<Value: Decodable>(_ place: Int, _ fault: String) throws(PostgresError) -> Value {
            let text = try row.decode(String.self, at: place)
            let decoder = JSONDecoder()
            decoder.dateDecodingStrategy = .millisecondsSince1970
            do { return try decoder.decode(Value.self, from: Data(text.utf8)) } catch {
                throw PostgresError(.decoding, message: fault)
            }
        }
        id = try row.decode(Int64.self, at: 0)
        guard let scope = Scope(rawValue: try row.decode(String.self, at: 1)),
            let state = State(rawValue: try row.decode(String.self, at: 2))
        else { throw PostgresError(.decoding, message: "a run of a kind that this version does not know") }
        self.scope = scope
        self.state = state
        isDry = try row.decode(Bool.self, at: 3)
        isConfirmed = try row.decode(Bool.self, at: 4)
        isFed = try row.decode(Bool.self, at: 5)
        ofRun = try row.decode(Int64?.self, at: 6)
        schedule = try row.decode(String?.self, at: 7)
        askedBy = try row.decode(String.self, at: 8)
        confirmedBy = try row.decode(String?.self, at: 9)
        since = try date(10)
        askedAt = try row.decode(PostgresTimestamp.self, at: 11).date
        startedAt = try date(12)
        endedAt = try date(13)
        predictedEnd = try date(14)
        maxDemotions = try row.decode(Int32?.self, at: 15)
        fed = try row.decode(Int64.self, at: 16)
        ended = try row.decode(Int64.self, at: 17)
        skipped = try row.decode(Int64.self, at: 18)
        total = try row.decode(Int64?.self, at: 19)
        held = try row.decode(Int64.self, at: 20)
        demotionLimit = try row.decode(Int64?.self, at: 21)
        subscribers = try row.decode(Int64?.self, at: 22)
        hash = try row.decode(String?.self, at: 23)
        outcomes = try json(24, "a run's counts are no counts")
        rules = try json(25, "a run's counts are no counts")
        errors = try json(26, "a run's counts are no counts")
        let points: [[Int64]] = try json(27, "a run's progress is no curve")
        progress = points.filter { $0.count == 2 }.map { point in
            Point(at: Date(timeIntervalSince1970: Double(point[0]) / 1000), users: point[1])
        }
        parts = try row.decode(Int32.self, at: 28)
        listed = try json(29, "what a run has listed can't be read")
        listsOnly = try row.decode(Bool.self, at: 30)
        releasableUntil = try date(31)
    }
}
