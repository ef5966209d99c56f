import Entitlements
import FoundationEssentials
import Ledger
package import Logging
package import Postgres
package import Queue

/// Opens tickets about other users' purchases under the store accounts of claimants' devices.
///
/// Their claimants must not learn of them. So it begins a while after a restore has been answered: within that transaction, the
/// time of the answer would tell.
package struct AccountSearch: Sendable {
    /// How long after a restore's transaction the search begins.
    private static let delay = Duration.milliseconds(300)
    /// The searches of one transaction.
    private static let most: Int32 = 100

    private let pool: PostgresPool
    private let publishes: Bool

    /// `publishes`: whether tickets are published in the outbox.
    package init(pool: PostgresPool, publishes: Bool) {
        self.pool = pool
        self.publishes = publishes
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
                   search_at = coalesce(a.search_at, excluded.search_at)
            """
        return [PostgresRequest(query)]
    }

    /// Searches where it is time to; `signal` is raised when there is something to search for.
    package func service(wokenBy signal: Signal, logger: Logger) -> PeriodicService {
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

    /// Whether searches wait, now or later.
    package func hasOpen() async throws(PostgresError) -> Bool {
        let rows = try await pool.query(
            "SELECT EXISTS (SELECT 1 FROM entitlement_sync.submitted_account AS a WHERE a.search_at IS NOT NULL)"
        )
        return try rows.first?.decode(Bool.self, at: 0) ?? false
    }

    /// Does the searches that are due; returns whether there were any, and then there may be more.
    ///
    /// Of each account the purchase that tells most gets the ticket: one that gives access, else the newest.
    package func step() async throws -> Bool {
        try await pool.withTransaction { connection in
            _ = try await connection.send([PostgresRequest<Void>(SessionSettings.plansByKey)])
            let due = try await connection.query(
                """
                WITH due AS MATERIALIZED (
                    SELECT a.user_key, a.store_account FROM entitlement_sync.submitted_account AS a
                     WHERE a.search_at <= clock_timestamp()
                     ORDER BY a.search_at LIMIT \(Self.most)
                       FOR UPDATE SKIP LOCKED
                )
                UPDATE entitlement_sync.submitted_account AS a SET search_at = NULL
                  FROM due AS d WHERE a.user_key = d.user_key AND a.store_account = d.store_account
                RETURNING a.user_key, a.store_account, a.job_id
                """
            ).map { try $0.decode(Int64.self, UUID.self, UUID.self) }
            guard !due.isEmpty else { return false }
            let tickets = try await connection.query(
                """
                SELECT n.user_key, n.job_id, p.id, p.owner_key, p.store, p.lookup_id
                  FROM unnest(\(due.map(\.0)), \(due.map(\.1)), \(due.map(\.2))) AS n(user_key, account, job_id)
                 CROSS JOIN LATERAL (
                       SELECT x.* FROM (SELECT y.* FROM entitlement_sync.purchase AS y WHERE y.store_account = n.account
                                         ORDER BY y.id DESC LIMIT 100) AS x
                        WHERE x.merged_into IS NULL AND x.owner_key <> n.user_key
                        ORDER BY coalesce(x.gives_access, x.status = 'owned') DESC, x.id DESC LIMIT 1) AS p
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
            return true
        }
    }
}
