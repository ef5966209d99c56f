import Entitlements
package import FoundationEssentials
package import Postgres
import Queue

/// Finds the host's user behind an account id that an app gave a store.
///
/// The account id may be a digest of the user's id, and only the digests of all users lead back to the user. A walk reads
/// all users and fills the index with a part of each digest (its root); callers compare a hit in full. A root that is still
/// unknown after a complete walk that began after the question belongs to no user.
package struct AccountIndex: Sendable {
    /// How long a job waits for an owner before the owner counts as unresolved.
    package static let patience = Duration.seconds(600)
    /// How long a walk stays with a process that gives no sign of life.
    private static let lease = Duration.seconds(30)

    private let pool: PostgresPool
    private let fingerprint: PostgresBytes

    /// `fingerprint`: of the ways in which ids are derived; each configuration has its own walks.
    package init(pool: PostgresPool, fingerprint: [UInt8]) {
        self.pool = pool
        self.fingerprint = PostgresBytes(fingerprint)
    }

    // MARK: Asking

    /// Users with one of these roots.
    package func users(of roots: [Int64]) async throws -> [Int64: [String]] {
        var users: [Int64: [String]] = [:]
        for row in try await pool.query(
            """
            SELECT i.root, i.user_id FROM entitlement_sync.account_index AS i WHERE i.root = ANY (\(roots))
             ORDER BY i.root, i.user_id LIMIT 1000
            """
        ) {
            let (root, id) = try row.decode(Int64.self, String.self)
            users[root, default: []].append(id)
        }
        return users
    }

    /// The state of a root that is not in the index.
    package enum RootState: String, Sendable {
        /// A complete walk that began after the question found no user.
        case absent
        /// No such walk has ended yet.
        case pending
        /// A job has waited longer than `patience`.
        case late
    }

    /// Returns the state of roots, and asks for a walk where one is needed.
    package func ask(_ roots: [Int64]) async throws -> [Int64: RootState] {
        var states: [Int64: RootState] = [:]
        for row in try await pool.query(
            """
            SELECT a.root, a.standing
              FROM entitlement_sync.ask_accounts(\(fingerprint), \(roots),
                                                 \(Self.patience.microseconds) * interval '1 microsecond') AS a
            """
        ) {
            let (root, standing) = try row.decode(Int64.self, String.self)
            states[root] = RootState(rawValue: standing) ?? .pending
        }
        return states
    }

    // MARK: Walking

    /// Begins a walk where one is due and no other process is at it.
    ///
    /// Returns whether a job waits for it; `nil`: none is begun.
    package func beginWalk(_ holder: UUID) async throws -> Bool? {
        try await pool.query(
            """
            SELECT entitlement_sync.begin_account_walk(\(fingerprint), \(holder),
                                                       \(Self.lease.microseconds) * interval '1 microsecond')
            """
        ).first?.decode(Bool?.self, at: 0) ?? nil
    }

    /// The next users after one, in the adapter's order; each page is a statement of its own.
    package func page(after id: String?, upTo batch: Int) async throws -> [String] {
        try await pool.query(
            "SELECT p.id FROM entitlement_sync_host.page_users(\(id), \(Int32(clamping: batch))) AS p"
        ).map { try $0.decode(String.self, at: 0) }
    }

    /// Users who came lately, because most buyers are new: those who became known last, and those who were created last where
    /// the adapter can tell.
    package func newest(_ most: Int) async throws -> [String] {
        let known = try await pool.query(
            """
            SELECT h.id, to_regprocedure('entitlement_sync_host.newest_users(integer)') IS NOT NULL
              FROM entitlement_sync_host.read_users(ARRAY(
                       SELECT u.user_id FROM entitlement_sync.user_sync AS u
                        WHERE u.user_id IS NOT NULL ORDER BY u.user_key DESC LIMIT \(Int64(most)))) AS h
            """
        ).map { try $0.decode(String.self, Bool.self) }
        guard known.first?.1 == true else { return known.map(\.0) }
        // Without an index on a large table this takes longer than it saves.
        let created = try? await pool.withTransaction { connection in
            try await connection.query("SET LOCAL statement_timeout = '2s'")
            return try await connection.query(
                "SELECT n.id FROM entitlement_sync_host.newest_users(\(Int32(clamping: most))) AS n(id)"
            ).map { try $0.decode(String.self, at: 0) }
        }
        return (known.map(\.0) + (created ?? [])).sortedExactly
    }

    /// Adds users to the index, and keeps the walk.
    ///
    /// Returns whether a job waits; `nil`: the walk is another process's by now.
    package func add(_ roots: [(root: Int64, userID: String)], _ holder: UUID) async throws -> Bool? {
        try await pool.query(
            """
            SELECT entitlement_sync.add_accounts(\(fingerprint), \(holder),
                                                 \(Self.lease.microseconds) * interval '1 microsecond',
                                                 \(roots.map(\.root)), \(roots.map(\.userID)))
            """
        ).first?.decode(Bool?.self, at: 0) ?? nil
    }

    /// Notes that a walk has come to its end.
    package func endWalk(_ holder: UUID, users: Int) async throws {
        try await pool.query(
            "SELECT entitlement_sync.end_account_walk(\(fingerprint), \(holder), \(Int64(users)))"
        )
    }
}
