import Entitlements
import FoundationEssentials
import Ledger
package import Logging
package import Postgres
package import Queue

/// Opens tickets about other users' purchases under the store accounts of claimants' devices.
///
/// A claimant must not learn of such a ticket. So the search begins after the restore was answered: inside that transaction it
/// would make the answer slower, which shows that there is something.
package struct AccountSearch: Sendable {
    /// How long after a restore's transaction the search begins, and how long after a worker has seen that it is due: the
    /// transaction may have been committed late.
    private static let delay = Duration.milliseconds(300)
    /// The most searches in one transaction.
    private static let most: Int32 = 100
    /// How often one search is tried.
    private static let tries: Int32 = 10
    /// With more users than this an account is a device that many share: that is a fact at the desk, and no case.
    private static let mostUsers: Int32 = 10
    /// Under which workers agree that one of them searches.
    private static let lock: Int64 = 7_309_940_714_432_067

    /// A search as it stood when it was due.
    private struct Due: Sendable {
        var userKey: Int64
        var account: UUID
        var job: UUID
        var at: PostgresTimestamp
    }

    private let pool: PostgresPool
    private let publishes: Bool
    private let logger: Logger

    /// `publishes`: whether tickets are published in the outbox.
    package init(pool: PostgresPool, publishes: Bool, logger: Logger) {
        self.pool = pool
        self.publishes = publishes
        self.logger = logger
    }

    /// Records submitted store accounts, and whether to search under them; the same statement whatever there is under them.
    static func note(_ rows: [SubmittedAccountRow], isObserving: Bool) -> [PostgresRequest<Void>] {
        guard !rows.isEmpty else { return [] }
        // In one order, for a row may be another worker's search.
        let sorted = rows.sorted { ($0.userKey, $0.hash.uuidString) < ($1.userKey, $1.hash.uuidString) }
        let query: PostgresQuery = """
            INSERT INTO entitlement_sync.submitted_account AS a
                   (user_key, store_account, store_app, job_id, submitted_at, search_at)
            SELECT n.user_key, n.store_account, n.app, n.job_id, now(),
                   CASE WHEN n.is_searched THEN clock_timestamp() + \(delay / .milliseconds(1)) * interval '1 ms' END
              FROM unnest(\(sorted.map(\.userKey)), \(sorted.map(\.hash)), \(sorted.map { String($0.app.prefix(255)) }),
                          \(sorted.map(\.jobID)), \(sorted.map { $0.isSearched && !isObserving }))
                   AS n(user_key, store_account, app, job_id, is_searched)
            ON CONFLICT (user_key, store_account) DO UPDATE
               SET store_app = excluded.store_app, job_id = excluded.job_id, submitted_at = excluded.submitted_at,
                   search_at = coalesce(a.search_at, excluded.search_at),
                   search_tries = CASE WHEN a.search_at IS NULL THEN 0 ELSE a.search_tries END
            """
        return [PostgresRequest(query)]
    }

    /// Searches where it is time to; `signal` is raised when there is something to search for.
    package func service(wokenBy signal: Signal) -> PeriodicService {
        PeriodicService(
            "account search",
            every: .seconds(1),
            upTo: .seconds(30),
            wokenBy: signal,
            logger: logger
        ) {
            if try await step() { return .again }
            return try await hasOpen() ? .after(Self.delay) : .idle
        }
    }

    /// Whether searches wait, now or later; a search that failed before does not count.
    package func hasOpen() async throws(PostgresError) -> Bool {
        let rows = try await pool.query(
            """
            SELECT EXISTS (SELECT 1 FROM entitlement_sync.submitted_account AS a
                            WHERE a.search_at IS NOT NULL AND a.search_tries = 0)
            """
        )
        return try rows.first?.decode(Bool.self, at: 0) ?? false
    }

    /// Does the searches that are due; returns whether there were any, and then there may be more.
    ///
    /// Where one of them fails, each is done by itself, and those that fail are put off.
    package func step() async throws -> Bool {
        let due = try await waiting()
        guard !due.isEmpty else { return false }
        try await Task.sleep(for: Self.delay)
        do {
            return try await search(due)
        } catch let error as PostgresError where Self.isOfRow(error) {
            for one in due {
                do {
                    _ = try await search([one])
                } catch let error as PostgresError where Self.isOfRow(error) {
                    try await putOff(one)
                    logger.warning("a search under a store account failed", metadata: errorMetadata(error))
                }
            }
            return true
        }
    }

    /// Whether what is searched for may be the cause, and not the database or others beside it.
    private static func isOfRow(_ error: PostgresError) -> Bool {
        switch error.code {
        case .serverError: !error.isRetryable
        case .timeout, .decoding: true
        default: false
        }
    }

    /// What is due.
    private func waiting() async throws -> [Due] {
        // Without a lock: a restore must not wait for a search.
        try await pool.query(
            """
            SELECT a.user_key, a.store_account, a.job_id, a.search_at FROM entitlement_sync.submitted_account AS a
             WHERE a.search_at <= clock_timestamp()
             ORDER BY a.search_at LIMIT \(Self.most)
            """
        ).map { row in
            let (user, account, job, at) = try row.decode(Int64.self, UUID.self, UUID.self, PostgresTimestamp.self)
            return Due(userKey: user, account: account, job: job, at: at)
        }
    }

    /// Opens the tickets of searches; returns whether it was this worker's turn.
    ///
    /// For each account, the newest purchase that gives access gets the ticket; if none does, the newest.
    private func search(_ due: [Due]) async throws -> Bool {
        try await pool.withTransaction { connection in
            let rows = try await connection.query("SELECT pg_try_advisory_xact_lock(\(Self.lock))")
            guard try rows.first?.decode(Bool.self, at: 0) == true else { return false }
            _ = try await connection.send([PostgresRequest<Void>(SessionSettings.plansByKey)])
            let tickets = try await connection.query(
                """
                SELECT n.user_key, n.job_id, p.id, p.owner_key, p.store, p.lookup_id
                  FROM unnest(\(due.map(\.userKey)), \(due.map(\.account)), \(due.map(\.job)), \(due.map(\.at)))
                       AS n(user_key, account, job_id, at)
                  JOIN entitlement_sync.submitted_account AS a
                    ON a.user_key = n.user_key AND a.store_account = n.account AND a.job_id = n.job_id AND a.search_at = n.at
                 CROSS JOIN LATERAL (
                       SELECT x.* FROM (SELECT y.* FROM entitlement_sync.purchase AS y
                                         WHERE y.store_account = n.account AND y.merged_into IS NULL
                                           AND y.owner_key <> n.user_key
                                         ORDER BY y.id DESC LIMIT 100) AS x
                        ORDER BY coalesce(x.gives_access, x.status = 'owned') DESC, x.id DESC LIMIT 1) AS p
                 WHERE entitlement_sync.users_of_account(n.account) <= \(Self.mostUsers)
                """
            ).map { row in
                let (claimant, job, purchase, owner, store, id) = try row.decode(
                    Int64.self,
                    UUID.self,
                    Int64.self,
                    Int64.self,
                    String.self,
                    String?.self
                )
                return WantedTicket(
                    TicketRequest(kind: .needsProof, purchase: purchase, ownerKey: owner, store: store, originalID: id),
                    claimantKey: claimant,
                    jobID: job
                )
            }
            _ = try await TicketWrites.open(tickets, publishes: publishes, on: connection)
            // Last, and waiting for no row: what another transaction changes meanwhile is searched for again.
            try await connection.query(
                """
                WITH done AS MATERIALIZED (
                    SELECT a.user_key, a.store_account
                      FROM unnest(\(due.map(\.userKey)), \(due.map(\.account)), \(due.map(\.job)), \(due.map(\.at)))
                           AS n(user_key, account, job_id, at)
                      JOIN entitlement_sync.submitted_account AS a
                        ON a.user_key = n.user_key AND a.store_account = n.account AND a.job_id = n.job_id AND a.search_at = n.at
                       FOR UPDATE OF a SKIP LOCKED
                )
                UPDATE entitlement_sync.submitted_account AS a SET search_at = NULL
                  FROM done AS d WHERE a.user_key = d.user_key AND a.store_account = d.store_account
                """
            )
            return true
        }
    }

    /// Puts off a search that failed, each time for twice as long; after the last time it is given up.
    private func putOff(_ one: Due) async throws {
        try await pool.query(
            """
            UPDATE entitlement_sync.submitted_account AS a
               SET search_tries = a.search_tries + 1,
                   search_at = CASE WHEN a.search_tries + 1 < \(Self.tries)
                                    THEN clock_timestamp() + least(interval '1 hour', interval '10 s' * 2 ^ a.search_tries) END
             WHERE a.user_key = \(one.userKey) AND a.store_account = \(one.account) AND a.search_at = \(one.at)
            """
        )
    }
}
