import Entitlements
import Foundation
import Postgres
import Queue

/// Records that a clock has dated which was ahead.
extension Run {
    /// Dates what is on record about a user an hour later than now.
    mutating func clockJump(_ user: Int) async throws {
        guard model.people[user].readAt != nil, let key = model.people[user].key else { return }
        model.note("the clock was ahead")
        try await lane.host.query(
            """
            UPDATE entitlement_sync.user_sync AS u
               SET read_at = clock_timestamp() + interval '1 hour',
                   absent_since = CASE WHEN u.absent_since IS NOT NULL THEN clock_timestamp() + interval '1 hour' END
             WHERE u.user_key = \(key)
            """
        )
        try await lane.host.query(
            """
            UPDATE entitlement_sync.purchase AS p SET observed_at = clock_timestamp() + interval '1 hour'
             WHERE p.owner_key = \(key) AND p.merged_into IS NULL
            """
        )
        model.people[user].isAhead = true
        let own = model.purchases.indices.filter {
            model.purchases[$0].mergedInto == nil && model.purchases[$0].facts.ownerKey == Int64(user + 1)
        }
        for row in own { model.purchases[row].isAhead = true }
        try await adoptTimes([user], own)
    }

    /// Learns the times that only the database can know.
    mutating func adoptTimes(_ users: [Int], _ rows: [Int]) async throws {
        for user in users {
            guard let key = model.people[user].key else { continue }
            let times = try await lane.host.query(
                """
                SELECT u.read_at, u.absent_since, u.moved_away_at
                  FROM entitlement_sync.user_sync AS u WHERE u.user_key = \(key)
                """
            ).first?.decode(PostgresTimestamp?.self, PostgresTimestamp?.self, PostgresTimestamp?.self)
            guard let (read, absent, moved) = times else { continue }
            try expect((absent == nil) == (model.people[user].absentSince == nil), "a note of absence came or went")
            model.people[user].readAt = read.map(Instant.init)
            model.people[user].absentSince = absent.map(Instant.init)
            model.people[user].movedAwayAt = moved.map(Instant.init)
        }
        for row in rows {
            guard let number = model.purchases[row].number else { continue }
            let times = try await lane.host.query(
                "SELECT p.observed_at, p.owner_since FROM entitlement_sync.purchase AS p WHERE p.id = \(number)"
            ).first?.decode(PostgresTimestamp.self, PostgresTimestamp.self)
            guard let (observed, since) = times else { continue }
            model.purchases[row].facts.observedAt = Instant(observed)
            model.purchases[row].facts.ownerSince = Instant(since)
        }
    }

    /// Which records that were ahead a batch has dated to the present; the model learns to when.
    mutating func dated(_ ahead: Model.Dated) async throws -> Model.Dated {
        var dated = Model.Dated()
        for user in ahead.users {
            let key = model.people[user].key ?? 0
            let isAhead = try await lane.host.query(
                "SELECT u.read_at > clock_timestamp() FROM entitlement_sync.user_sync AS u WHERE u.user_key = \(key)"
            ).first?.decode(Bool?.self)
            if isAhead != true { dated.users.insert(user) }
        }
        for row in ahead.rows {
            let number = model.purchases[row].number ?? 0
            let isAhead = try await lane.host.query(
                "SELECT p.observed_at > clock_timestamp() FROM entitlement_sync.purchase AS p WHERE p.id = \(number)"
            ).first?.decode(Bool.self)
            if isAhead != true { dated.rows.insert(row) }
        }
        guard !dated.isEmpty else { return dated }
        model.note("records dated to the present")
        for user in dated.users { model.people[user].isAhead = false }
        for row in dated.rows { model.purchases[row].isAhead = false }
        try await adoptTimes(dated.users.sorted(), dated.rows.sorted())
        return dated
    }
}

extension Model {
    /// Records whose times a clock has dated ahead, or that were dated to the present.
    struct Dated {
        var users: Set<Int> = []
        var rows: Set<Int> = []
        var isEmpty: Bool { users.isEmpty && rows.isEmpty }
    }

    var ahead: Dated {
        Dated(
            users: Set(people.indices.filter { people[$0].isAhead }),
            rows: Set(purchases.indices.filter { purchases[$0].isAhead })
        )
    }

    /// Whether a job's reading was made before records of its user, or of what it names, were dated to the present.
    func concerns(_ dated: Dated, _ item: ModelItem) -> Bool {
        guard !dated.isEmpty else { return false }
        let key = Int64(item.user + 1)
        let named = item.reading.observations.flatMap(\.identifiers).compactMap { names[$0.key] }
        return dated.users.contains(item.user) || !dated.rows.isDisjoint(with: named)
            || dated.rows.contains { row in
                let facts = purchases[row].facts
                return facts.ownerKey == key || facts.formerOwnerKey == key
            }
    }
}
