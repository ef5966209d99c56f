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
        r.id, r.scope, r.state, r.is_dry, r.is_fed, r.of_run, r.schedule, r.asked_by, r.confirmed_by,
        r.since, r.asked_at, r.started_at, r.ended_at, r.predicted_end, r.fed, r.ended, r.skipped, r.total, r.held,
        r.demotion_limit, r.settled_at + interval '72 hours' AS releasable_until, r.subscribers,
        encode(r.hash, 'hex') AS hash, r.outcomes::text AS outcomes, r.rules::text AS rules, r.errors::text AS errors,
        coalesce((SELECT jsonb_agg(jsonb_build_array((extract(epoch FROM (p.point ->> 'at')::timestamptz) * 1000)::bigint,
                                                     p.point -> 'users') ORDER BY p.n)
                    FROM jsonb_array_elements(r.progress) WITH ORDINALITY AS p(point, n)), '[]')::text AS progress,
        r.parts, r.is_backfill_only,
        coalesce((SELECT jsonb_object_agg(l.list, l.said || jsonb_build_object(
                                              'from', (extract(epoch FROM (l.said ->> 'from')::timestamptz) * 1000)::bigint,
                                              'until', (extract(epoch FROM (l.said ->> 'until')::timestamptz) * 1000)::bigint))
                    FROM jsonb_each(r.listed) AS l(list, said)), '{}')::text AS listed
        """

    init(_ row: PostgresRow) throws(PostgresError) {
        func json<Value: Decodable>(_ column: StaticString, _ fault: String) throws(PostgresError) -> Value {
            let text: String = try row[column]
            let decoder = JSONDecoder()
            decoder.dateDecodingStrategy = .millisecondsSince1970
            do { return try decoder.decode(Value.self, from: Data(text.utf8)) } catch {
                throw PostgresError(.decoding, message: fault)
            }
        }
        guard let scope = Scope(rawValue: try row["scope"]), let state = State(rawValue: try row["state"])
        else { throw PostgresError(.decoding, message: "a run of a kind that this version does not know") }
        id = try row["id"]
        self.scope = scope
        self.state = state
        isDry = try row["is_dry"]
        isFed = try row["is_fed"]
        ofRun = try row["of_run"]
        schedule = try row["schedule"]
        askedBy = try row["asked_by"]
        confirmedBy = try row["confirmed_by"]
        since = try row["since"]
        askedAt = try row["asked_at"]
        startedAt = try row["started_at"]
        endedAt = try row["ended_at"]
        predictedEnd = try row["predicted_end"]
        fed = try row["fed"]
        ended = try row["ended"]
        skipped = try row["skipped"]
        total = try row["total"]
        held = try row["held"]
        demotionLimit = try row["demotion_limit"]
        releasableUntil = try row["releasable_until"]
        subscribers = try row["subscribers"]
        hash = try row["hash"]
        outcomes = try json("outcomes", "a run's counts are no counts")
        rules = try json("rules", "a run's counts are no counts")
        errors = try json("errors", "a run's counts are no counts")
        let points: [[Int64]] = try json("progress", "a run's progress is no curve")
        progress = points.filter { $0.count == 2 }.map { point in
            Point(at: Date(timeIntervalSince1970: Double(point[0]) / 1000), users: point[1])
        }
        parts = try row["parts"]
        listsOnly = try row["is_backfill_only"]
        listed = try json("listed", "what a run has listed can't be read")
    }
}
