import Postgres
import TestSupport
import Testing

/// All that has to be the same, whatever happened to the processes on the way.
struct Record: Sendable {
    /// Lines by what they tell of.
    private var lines: [String: Set<String>] = [:]
    /// Those of whom the records say that a look-up failed.
    private let failedLookups: Set<String>

    /// Reads the records of a site whose queue is empty.
    init(of site: Site) async throws {
        lines["user"] = Set(try await site.texts("SELECT concat_ws(' ', u.id, u.type, u.status) FROM users AS u"))
        lines["asset"] = Set(
            try await site.texts(
                """
                SELECT concat_ws(' ', a.id, a.user_id, a.frozen_reasons, a.frozen_at IS NOT NULL) FROM assets AS a
                """
            )
        )
        // Whoever is not eligible is told so without a read: what their purchases are is noted only if one succeeded.
        lines["purchase"] = Set(
            try await site.texts(
                """
                SELECT concat_ws(' ', i.store, i.environment, i.kind, i.value, coalesce(u.user_id, 'nobody'), p.status,
                                 p.gives_access)
                  FROM entitlement_sync.purchase_identifier AS i
                  JOIN entitlement_sync.purchase AS p ON p.id = i.purchase_id AND p.merged_into IS NULL
                  LEFT JOIN entitlement_sync.user_sync AS u ON u.user_key = p.owner_key
                 WHERE NOT EXISTS (SELECT 1 FROM users AS h WHERE h.id = u.user_id AND h.status = 'banned')
                """
            )
        )
        lines["answer"] = Set(
            try await site.texts(
                """
                SELECT concat_ws(' ', s.user_id, s.kind, s.state, s.outcome, s.message_key)
                  FROM entitlement_sync.job_status AS s
                """
            )
        )
        lines["error"] = Set(
            try await site.texts(
                """
                SELECT concat_ws(' ', s.user_id, s.kind, s.last_error) FROM entitlement_sync.job_status AS s
                 WHERE s.last_error IS NOT NULL
                """
            )
        )
        failedLookups = Set(
            try await site.texts(
                """
                SELECT d.user_id FROM entitlement_sync.decision_log AS d
                 WHERE d.explanation LIKE '%A lookup of what was shown failed (%'
                """
            )
        )
        lines["ticket"] = Set(
            try await site.texts(
                """
                SELECT concat_ws(' ', t.user_id, t.kind, t.state, t.purchase_owner_id, t.store, t.original_id, t.touches)
                  FROM entitlement_sync.ticket_status AS t
                """
            )
        )
    }

    /// How many lines tell of something.
    func count(_ subject: String) -> Int { lines[subject]?.count ?? 0 }

    /// How many lines of a subject hold a text.
    func count(_ subject: String, with text: String) -> Int {
        lines[subject]?.count { $0.contains(text) } ?? 0
    }

    /// The first few lines that only one of the two has.
    ///
    /// - Parameters:
    ///   - other: what to compare with.
    ///   - hasTrouble: whether the store had further troubles in one of the two, see `known(_:of:)`.
    /// - Returns: what to print; empty when the two are equal.
    func differences(from other: Record, hasTrouble: Bool = false) -> [String] {
        lines.keys.sorted().flatMap { subject in
            var (mine, theirs) = (lines[subject] ?? [], other.lines[subject] ?? [])
            if subject == "ticket" {
                let failed = Self.unnamed(failedLookups, mine, theirs)
                    .union(Self.unnamed(other.failedLookups, theirs, mine))
                mine = Set(mine.map { failed.contains(Self.user($0)) ? Self.unfound($0) : $0 })
                theirs = Set(theirs.map { failed.contains(Self.user($0)) ? Self.unfound($0) : $0 })
            }
            if hasTrouble {
                mine = Set(mine.compactMap { Self.known($0, of: subject) })
                theirs = Set(theirs.compactMap { Self.known($0, of: subject) })
            }
            return mine.subtracting(theirs).sorted().prefix(5).map { "only here: \(subject) \($0)" }
                + theirs.subtracting(mine).sorted().prefix(5).map { "only there: \(subject) \($0)" }
        }
    }

    /// Those claimants whose look-up failed, and of whom the other record says whose purchase they showed.
    ///
    /// On a machine with much to do a look-up may fail by itself, see `known(_:of:)`, and the decision says so. Where that
    /// happens to more than one in a hundred it is not the machine: none are named then. Whoever has no ticket in one of
    /// them, or several, is not named either.
    private static func unnamed(_ failed: Set<String>, _ mine: Set<String>, _ theirs: Set<String>) -> Set<String> {
        let mine = Dictionary(grouping: mine, by: user)
        let theirs = Dictionary(grouping: theirs, by: user)
        let claimants = mine.keys.filter { $0.hasPrefix("claimant-") }
        let names = claimants.filter { name in
            guard failed.contains(name), let one = mine[name], let other = theirs[name] else { return false }
            return one.count == 1 && other.count == 1 && one.allSatisfy { $0.contains(" paid_no_access ") }
        }
        return names.count <= max(1, claimants.count / 100) ? Set(names) : []
    }

    /// A ticket's line without what a look-up tells.
    private static func unfound(_ line: String) -> String {
        let words = line.split(separator: " ")
        return words.count > 3 ? "\(words[0]) \(words[2]) \(words[words.count - 1])" : line
    }

    private static func user(_ line: String) -> String { String(line.prefix { $0 != " " }) }

    /// What of a line does not depend on how often the store failed.
    ///
    /// A job that is given up tells of its last error. Who names a taken receipt is answered without a look-up where it
    /// fails: the ticket then knows of no purchase.
    private static func known(_ line: String, of subject: String) -> String? {
        switch subject {
        case "error": nil
        case "ticket": line.hasPrefix("claimant-") ? user(line) : line
        default: line
        }
    }

    /// Checks what must hold of any site at rest.
    static func expectSettled(_ site: Site) async throws {
        #expect(try await site.number("SELECT count(*) FROM entitlement_sync.queue") == 0, "jobs are left")
        #expect(try await site.number("SELECT count(*) FROM entitlement_sync.asset_run") == 0, "asset runs are left")
        let wrong = try await site.texts(
            """
            SELECT concat_ws(' ', s.user_id, s.kind, s.state, count(d.id))
              FROM entitlement_sync.job_status AS s
              LEFT JOIN entitlement_sync.decision_log AS d ON d.job_id = s.id
             GROUP BY s.id, s.user_id, s.kind, s.state
            HAVING count(d.id) <> (s.state = 'done')::integer
            """
        )
        #expect(wrong == [], "a done job has one decision, any other none")
        #expect(
            try await site.number(
                """
                SELECT count(*) FROM entitlement_sync.decision_log AS d
                 WHERE NOT EXISTS (SELECT 1 FROM entitlement_sync.job_status AS s WHERE s.id = d.job_id)
                """
            ) == 0,
            "decisions of no job"
        )
    }
}
