import Entitlements
package import Postgres
import Queue

/// Compares what was only observed with what the host's own code has done.
package struct Shadow: Sendable {
    /// How far a user's newest observed decision and the host stand apart.
    package enum Kind: String, Sendable, CaseIterable {
        case agrees
        /// We would promote; the host has not.
        case wouldPromote = "would_promote"
        /// We would demote; the host has not.
        case wouldDemote = "would_demote"
        /// We would leave a free user free; the host has made them a subscriber.
        case hostPromoted = "host_promoted"
        /// We would leave a subscriber; the host has taken the access away.
        case hostDemoted = "host_demoted"
        /// We would wait, and the host still has a subscriber.
        case deferred
        /// We would wait, and the host has taken the access away.
        case deferredHostDemoted = "deferred_host_demoted"
        /// The account's status decides: neither of the two changes anything.
        case notEligible = "not_eligible"
        /// The host has no such user any more.
        case gone

        /// Whether it counts for or against the agreement.
        package var isJudged: Bool {
            switch self {
            case .agrees, .wouldPromote, .wouldDemote, .hostPromoted, .hostDemoted: true
            case .deferred, .deferredHostDemoted, .notEligible, .gone: false
            }
        }

        /// Whether it is worth a line.
        package var isDifference: Bool { isJudged && self != .agrees || self == .deferredHostDemoted }
    }

    /// One user's newest decision, that was only observed.
    package struct Line: Sendable {
        var userKey: Int64
        package var userID: String
        package var at: PostgresTimestamp
        /// The decision's kind of job.
        var job: Int16
        package var rule: String
        package var outcome: String
        package var typeBefore: String?
        /// What we would have set.
        package var ours: String?
        package var explanation: String
        /// What the host has now; `nil`: no such user.
        package var host: String?

        /// How the decision and the host stand.
        package var kind: Kind {
            guard let host, let typeBefore, let ours else { return .gone }
            let rule = Rule(rawValue: rule)
            if rule == .notEligible { return .notEligible }
            let subscriber = UserType.subscriber.rawValue
            let givesAccess = rule == .storeAccess || rule == .grantAccess || rule == .ownerFollowedRevenuecat
            // What a restore leaves without access is the reconcile's, which has not been yet.
            let waits =
                outcome == Outcome.deferred.rawValue
                || job == JobKind.restore.rawValue && typeBefore == subscriber && !givesAccess
            if waits { return host == subscriber ? .deferred : .deferredHostDemoted }
            if host == ours { return .agrees }
            if typeBefore == ours { return host == subscriber ? .hostPromoted : .hostDemoted }
            return ours == subscriber ? .wouldPromote : .wouldDemote
        }
    }

    private let pool: PostgresPool
    private static let page: Int64 = 1000

    package init(pool: PostgresPool) { self.pool = pool }

    /// Counts all users whose newest decision was only observed, and is not older than `since`, by kind.
    ///
    /// `hand` gets each difference, in the order of users' keys.
    package func compare(since: PostgresTimestamp?, _ hand: (Line) throws -> Void) async throws -> [Kind: Int] {
        var counts: [Kind: Int] = [:]
        var last: Int64 = 0
        while true {
            let keys = try await pool.query(
                """
                SELECT u.user_key FROM entitlement_sync.user_sync AS u
                 WHERE u.user_key > \(last) AND u.user_id IS NOT NULL ORDER BY u.user_key LIMIT \(Self.page)
                """
            ).map { try $0.decode(Int64.self, at: 0) }
            guard let next = keys.last else { return counts }
            for line in try await lines(of: keys, since: since) {
                counts[line.kind, default: 0] += 1
                if line.kind.isDifference { try hand(line) }
            }
            last = next
        }
    }

    /// Compares users whose newest decision was only observed.
    func lines(of keys: [Int64], since: PostgresTimestamp?) async throws -> [Line] {
        try await pool.query(
            """
            WITH newest AS MATERIALIZED (
                SELECT u.user_id, d.*
                  FROM unnest(\(keys)) AS k(key)
                  JOIN entitlement_sync.user_sync AS u ON u.user_key = k.key AND u.user_id IS NOT NULL
                 CROSS JOIN LATERAL (SELECT x.user_key, x.at, x.kind, x.rule, x.outcome, x.type_before, x.type_after,
                                            x.explanation, x.observed
                                       FROM entitlement_sync.past_decision AS x
                                      WHERE x.user_key = k.key ORDER BY x.id DESC LIMIT 1) AS d
                 WHERE d.observed AND d.at >= coalesce(\(since)::timestamptz, '-infinity')
            )
            SELECT n.user_key, n.user_id, n.at, n.kind, n.rule, n.outcome, n.type_before, n.type_after, n.explanation, h.type
              FROM newest AS n
              LEFT JOIN entitlement_sync_host.read_users(ARRAY(SELECT m.user_id FROM newest AS m)) AS h ON h.id = n.user_id
             ORDER BY n.user_key
            """
        ).map {
            try $0.decode(
                into: Line.init(userKey:userID:at:job:rule:outcome:typeBefore:ours:explanation:host:)
            )
        }
    }
}
