package import Postgres

/// The token bucket of one credential, shared by all workers through one row.
///
/// A worker takes tokens in chunks that are good for a second. Sweeps leave the reserved share alone, restores leave
/// support's: under load the bucket hovers at the share's edge, and requests that may use the share still find tokens.
package struct RateBudget: Sendable {
    private let pool: PostgresPool
    private let credential: String
    /// Requests a minute; 0: unlimited.
    package let perMinute: Int
    private let restoreReserve: Double
    private let supportReserve: Double

    package init(
        pool: PostgresPool,
        credential: String,
        perMinute: Int,
        restoreReservePercent: Double,
        supportReservePercent: Double
    ) {
        self.pool = pool
        self.credential = credential
        self.perMinute = perMinute
        restoreReserve = restoreReservePercent / 100
        supportReserve = supportReservePercent / 100
    }

    /// Who asks.
    package enum Share: Sendable, CaseIterable { case sweep, restore, support }

    /// What was given.
    package struct Grant: Sendable {
        package var tokens: Int
        /// When it makes sense to ask again, where nothing was given.
        package var wait: Duration
        /// The store asked for a pause, which holds for all workers.
        package var isBlocked: Bool
    }

    /// The bucket holds an eighth of a minute's requests, and refills so that no sixty seconds exceed the limit.
    private static let burstShare = 0.125

    /// The seconds in which the rest of a minute's requests are filled in: a minute, one second for which workers have
    /// tokens in hand, and one for what one request is longer on its way than another.
    private static let window = 62.0

    /// Requests a minute with which the bucket is filled: a little less than the limit, which no sixty seconds exceed.
    package static func sustained(perMinute: Int) -> Double {
        let limit = Double(perMinute)
        return max(limit - limit * burstShare, limit * burstShare) * 60 / window
    }

    /// The least that the bucket holds: one whole token beside the reserves, or a small limit would admit no request.
    private var smallestSize: Double { 1.01 / max(0.05, 1 - restoreReserve - supportReserve) }

    /// Requests a minute: ours, or the store's where it said less.
    ///
    /// A limit that was never seen limits nothing, though `greatest` would make a number of it.
    private static let cap = """
        CASE WHEN b.seen_limit IS NULL THEN b.per_minute
             ELSE least(b.per_minute, greatest(b.seen_limit, 1)) END::double precision
        """

    /// Takes up to `wanted` tokens.
    package func take(_ wanted: Int, for share: Share) async throws -> Grant {
        let reserve =
            switch share {
            case .sweep: restoreReserve + supportReserve
            case .restore: supportReserve
            case .support: 0.0
            }
        try await pool.query(
            """
            INSERT INTO entitlement_sync.rate_budget AS b (credential, tokens, per_minute)
            VALUES (\(credential), \(max(Double(perMinute) * Self.burstShare, smallestSize)), \(Int32(perMinute)))
            ON CONFLICT (credential) DO UPDATE SET per_minute = excluded.per_minute
            WHERE b.per_minute <> excluded.per_minute
            """
        )
        let row = try await pool.query(
            """
            WITH bucket AS MATERIALIZED (
                SELECT b.credential, b.blocked_until, n.rate,
                       least(n.size, b.tokens + n.rate * greatest(0, extract(epoch FROM clock_timestamp() - b.refilled_at))) AS level,
                       n.size
                  FROM entitlement_sync.rate_budget AS b
                 CROSS JOIN LATERAL (
                       SELECT s.size, greatest(l.cap - s.size, l.cap * \(Self.burstShare)) / \(Self.window) AS rate
                         FROM (SELECT \(rawSQL: Self.cap) AS cap) AS l
                        CROSS JOIN LATERAL (SELECT greatest(l.cap * \(Self.burstShare), \(smallestSize)) AS size) AS s
                       ) AS n
                 WHERE b.credential = \(credential)
                   FOR UPDATE OF b
            ), given AS (
                SELECT k.credential, k.level, k.rate, k.blocked_until > clock_timestamp() AS blocked,
                       CASE WHEN k.blocked_until > clock_timestamp() THEN 0
                            ELSE greatest(0, least(\(Double(wanted)), floor(k.level - k.size * \(reserve)))) END AS tokens,
                       -- A block is everybody's, and what a share's next token takes is its own.
                       CASE WHEN k.blocked_until > clock_timestamp()
                            THEN extract(epoch FROM k.blocked_until - clock_timestamp())
                            ELSE greatest((k.size * \(reserve) + 1 - k.level) / nullif(k.rate, 0), 0) END AS wait
                  FROM bucket AS k
            ), spent AS (
                UPDATE entitlement_sync.rate_budget AS b
                   SET tokens = g.level - g.tokens, refilled_at = clock_timestamp()
                  FROM given AS g WHERE b.credential = g.credential
            )
            SELECT g.tokens::integer, coalesce(g.wait, 0)::double precision, coalesce(g.blocked, false) FROM given AS g
            """
        ).first
        guard let row else { return Grant(tokens: 0, wait: .milliseconds(200), isBlocked: false) }
        let (tokens, wait, blocked) = try row.decode(Int32.self, Double.self, Bool.self)
        return Grant(tokens: Int(tokens), wait: .seconds(min(max(wait, 0.01), 300)), isBlocked: blocked)
    }

    /// What the bucket holds now, and for how many seconds the store asked for a pause.
    package func level() async throws -> (tokens: Double, blockedSeconds: Double) {
        let rows = try await pool.query(
            """
            SELECT least(s.size, b.tokens + greatest(l.cap - s.size, l.cap * \(Self.burstShare)) / \(Self.window)
                                            * greatest(0, extract(epoch FROM clock_timestamp() - b.refilled_at)))::double precision,
                   coalesce(greatest(extract(epoch FROM b.blocked_until - clock_timestamp()), 0), 0)::double precision
              FROM entitlement_sync.rate_budget AS b
             CROSS JOIN LATERAL (SELECT \(rawSQL: Self.cap) AS cap) AS l
             CROSS JOIN LATERAL (SELECT greatest(l.cap * \(Self.burstShare), \(smallestSize)) AS size) AS s
             WHERE b.credential = \(credential)
            """
        )
        guard let row = rows.first else { return (max(Double(perMinute) * Self.burstShare, smallestSize), 0) }
        return try row.decode(Double.self, Double.self)
    }

    /// How long the pause lasts that the store asked for; `nil`: none.
    package func blockedFor() async throws -> Duration? {
        try await pool.query(
            """
            SELECT extract(epoch FROM b.blocked_until - clock_timestamp())::double precision
              FROM entitlement_sync.rate_budget AS b
             WHERE b.credential = \(credential) AND b.blocked_until > clock_timestamp()
            """
        ).first.map { .seconds(try $0.decode(Double.self, at: 0)) }
    }

    /// Writes down what the store's answers said of its limits.
    ///
    /// `limit`: of its header; lowers ours, unless ours is unlimited. `wait`: its wish after a 429, obeyed by every
    /// worker; at most 5 minutes.
    package func note(limit: Int?, usage: Int?, wait: Duration?) async throws {
        let seconds = wait.map { min($0, .seconds(300)) / .seconds(1) }
        try await pool.query(
            """
            INSERT INTO entitlement_sync.rate_budget AS b
                   (credential, tokens, per_minute, seen_limit, seen_usage, seen_at, blocked_until)
            VALUES (\(credential), 0, \(Int32(perMinute)), \(limit.map { Int32(clamping: $0) }),
                    \(usage.map { Int32(clamping: $0) }), now(), clock_timestamp() + \(seconds) * interval '1 second')
            ON CONFLICT (credential) DO UPDATE
               SET seen_limit = coalesce(excluded.seen_limit, b.seen_limit),
                   seen_usage = coalesce(excluded.seen_usage, b.seen_usage), seen_at = now(),
                   blocked_until = greatest(b.blocked_until, excluded.blocked_until)
            """
        )
    }
}
