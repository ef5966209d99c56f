import Entitlements
import Ledger
import Postgres
import Queue

/// Records of a batch that are dated later than the database's clock; `Apply.plan` raises the alarm `clock_set_back` for them.
///
/// The clock was set back, or a server with another clock took over. What such a record says would outrank every reading
/// until its time has come, so it is dated to the present, and its users are read again.
struct ClockSetBack {
    private var users: [Int64] = []
    private var purchases: Set<Int64> = []

    static let alarm = "clock_set_back"
    static let advice =
        "Records carried times later than the database's clock: it was set back, or a server with another clock took over."
        + " They now carry the present time, and their users are read again: check the clocks of the database servers."

    var isEmpty: Bool { users.isEmpty && purchases.isEmpty }

    /// Finds such records.
    ///
    /// `now`: the database's clock as the batch began; what a neighbour wrote since may be a moment later.
    init(
        _ facts: [Int64: UserFacts],
        _ holders: [PurchaseIdentifierKey: Purchase],
        _ ledger: LedgerReads.Ledger,
        at now: Instant
    ) {
        for (key, facts) in facts where facts.latest.map({ $0 > now }) == true { users.append(key) }
        let rows = [Array(holders.values)] + ledger.owned.values + ledger.contested.values
        for row in rows.joined() where max(row.observedAt, row.ownerSince) > now { purchases.insert(row.id) }
    }

    /// Dates them to the present, and returns those that were ahead.
    func mend(on connection: PostgresConnection) async throws -> (users: Set<Int64>, purchases: Set<Int64>) {
        let keys = try await connection.query(
            """
            UPDATE entitlement_sync.user_sync AS u
               SET read_at = CASE WHEN u.read_at > n.at THEN n.at ELSE u.read_at END,
                   full_read_at = CASE WHEN u.full_read_at > n.at THEN n.at ELSE u.full_read_at END,
                   absent_since = CASE WHEN u.absent_since > n.at THEN n.at ELSE u.absent_since END,
                   access_event_at = CASE WHEN u.access_event_at > n.at THEN n.at ELSE u.access_event_at END,
                   moved_away_at = CASE WHEN u.moved_away_at > n.at THEN n.at ELSE u.moved_away_at END,
                   recorded_at = CASE WHEN u.recorded_at > n.at THEN n.at ELSE u.recorded_at END,
                   confirmed_first_at = least(u.confirmed_first_at, n.at), confirmed_at = least(u.confirmed_at, n.at),
                   confirmed_asked_at = least(u.confirmed_asked_at, n.at)
              FROM (SELECT clock_timestamp() AS at) AS n
             WHERE u.user_key = ANY (\(users.sorted()))
               AND greatest(u.read_at, u.full_read_at, u.absent_since, u.access_event_at, u.moved_away_at) > n.at
            RETURNING u.user_key
            """
        ).map { try $0.decode(Int64.self, at: 0) }
        // A row that another transaction holds is dated by the next reading.
        let ids = try await connection.query(
            """
            UPDATE entitlement_sync.purchase AS p
               SET observed_at = least(p.observed_at, n.at), owner_since = least(p.owner_since, n.at)
              FROM (SELECT clock_timestamp() AS at) AS n
             WHERE p.id = ANY (ARRAY(SELECT x.id FROM entitlement_sync.purchase AS x
                                      WHERE x.id = ANY (\(purchases.sorted())) ORDER BY x.id
                                        FOR NO KEY UPDATE SKIP LOCKED))
               AND greatest(p.observed_at, p.owner_since) > n.at
            RETURNING p.id
            """
        ).map { try $0.decode(Int64.self, at: 0) }
        return (Set(keys), Set(ids))
    }
}

extension UserFacts {
    /// The latest of the times on record.
    fileprivate var latest: Instant? { [readAt, absentSince, accessEventAt, movedAwayAt].compactMap(\.self).max() }

    /// Takes what lies ahead of a moment for that moment.
    mutating func date(notAfter moment: Instant) {
        readAt = readAt.map { min($0, moment) }
        absentSince = absentSince.map { min($0, moment) }
        accessEventAt = accessEventAt.map { min($0, moment) }
        movedAwayAt = movedAwayAt.map { min($0, moment) }
    }
}
