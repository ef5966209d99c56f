package import Entitlements
import FoundationEssentials
import Ledger
package import Postgres
import Queue
package import Reconciliation

/// Lines of imports, as workers take them.
package struct ImportLines: Sendable {
    private let pool: PostgresPool
    private let ignoresPause: Bool

    /// `ignoresPause`: in observe mode, which writes no users that a pause could protect.
    package init(pool: PostgresPool, ignoresPause: Bool) {
        self.pool = pool
        self.ignoresPause = ignoresPause
    }

    /// A line that was taken, with its user as a job that the user would be claimed as.
    package struct Taken: Sendable {
        package var importID: Int64
        package var number: Int32
        /// How often it was taken; a later turn shuts this one out.
        package var turn: Int32
        /// How often its store was asked and gave no answer.
        package var attempt: Int
        /// `nil`: the store has no such kind.
        package var name: NamedPurchase?
        /// An operator has approved the import: what holds is written.
        package var isPlanned: Bool
        /// `nil`: the user is unknown, or was erased since.
        package var job: ClaimedJob?
        /// The user's row is in use: the line waits.
        package var isHeld = false
    }

    /// What a line gets.
    package struct Kept: Sendable {
        package var line: Taken
        /// `nil`: it is tried again after `wait`.
        package var result: ImportResult?
        /// A word that tells more, such as the code of a failure.
        package var detail: String?
        package var givesAccess: Bool?
        /// What the store calls the purchase.
        package var identifiers: [PurchaseIdentifier] = []
        package var attempt = 0
        package var wait = Duration.zero

        fileprivate var spellings: String {
            identifiers.map { "\($0.store) \($0.environment) \($0.value)" }.joined(separator: "\u{1f}")
        }

        package init(_ line: Taken, _ result: ImportResult?, detail: String? = nil) {
            self.line = line
            self.result = result
            self.detail = detail
        }
    }

    /// Takes lines for this worker, all of one import; makes their users known to our records.
    package func take(upTo most: Int, epoch: Int32) async throws -> [Taken] {
        let tick = ContinuousClock.now
        typealias Row = (line: Taken, userID: String?, key: Int64?)
        let rows = try await pool.query(
            """
            SELECT t.import_id, t.number, t.turn, t.attempt, t.user_id, t.user_key, t.store, t.kind, t.value, t.is_planned
              FROM entitlement_sync.take_import_lines(\(epoch), \(Int32(most)), \(ignoresPause)) AS t ORDER BY t.number
            """
        ).map { row -> Row in
            let (store, kind, value, attempt): (String?, String?, String?, Int32) = try (
                row["store"], row["kind"], row["value"], row["attempt"]
            )
            let line = try Taken(
                importID: row["import_id"],
                number: row["number"],
                turn: row["turn"],
                attempt: Int(attempt),
                name: store.flatMap(Store.init).flatMap { store in
                    kind.flatMap(NamedPurchase.Kind.init).flatMap { kind in
                        NamedPurchase(store: store, kind: kind, value: value ?? "")
                    }
                },
                isPlanned: row["is_planned"]
            )
            return try (line, row["user_id"], row["user_key"])
        }
        guard !rows.isEmpty else { return [] }
        do {
            return try await named(rows, at: tick)
        } catch {
            try? await Task { try await release(rows.map(\.line), epoch: epoch) }.value
            throw error
        }
    }

    /// Finds the users of lines.
    private func named(
        _ rows: [(line: Taken, userID: String?, key: Int64?)],
        at tick: ContinuousClock.Instant
    ) async throws -> [Taken] {
        let unmet = rows.filter { $0.key == nil }.compactMap(\.userID)
        var spelled: [ExactText: String] = [:]
        if !unmet.isEmpty {
            spelled = try await UserLookups(pool: pool).spellings(unmet.sortedExactly)
            let ids = spelled.values.sortedExactly
            if !ids.isEmpty { try await pool.query("SELECT entitlement_sync.meet_free(\(ids), true)") }
        }
        let keys = rows.compactMap(\.key)
        let ids = spelled.values.map(\.self)
        let known = try await pool.query(
            """
            SELECT u.user_key, u.user_id, entitlement_sync.new_id() AS id, clock_timestamp() AS at,
                   EXISTS (SELECT 1 FROM entitlement_sync.sandbox_access AS s
                            WHERE s.user_id = u.user_id AND s.until > now()) AS sandbox
              FROM entitlement_sync.user_sync AS u
             WHERE u.user_key = ANY (\(keys)) OR u.user_id = ANY (\(ids))
            """
        ).map { row in
            let at: Instant = try row["at"]
            return ClaimedJob(
                id: try row["id"],
                kind: .reconcile,
                lane: .sweep,
                due: at,
                userKey: try row["user_key"],
                userID: try row["user_id"],
                sandboxAllowed: try row["sandbox"],
                claimedAt: at,
                claimedTick: tick
            )
        }
        let byKey = Dictionary(known.map { ($0.userKey, $0) }) { first, _ in first }
        let byID = Dictionary(known.compactMap { job in job.userID.map { (ExactText($0), job) } }) { first, _ in first }
        return rows.map { row in
            var line = row.line
            if let key = row.key {
                line.job = byKey[key].flatMap { $0.userID == nil ? nil : $0 }
            } else if let id = row.userID.flatMap({ spelled[ExactText($0)] }) {
                line.job = byID[ExactText(id)]
                line.isHeld = line.job == nil
            }
            return line
        }
    }

    /// Records what lines get, on a connection of the caller's transaction.
    ///
    /// - Returns: how many of them were still this worker's.
    @discardableResult
    package static func keep(_ kept: [Kept], epoch: Int32, on connection: PostgresConnection) async throws -> Int {
        guard !kept.isEmpty else { return 0 }
        let waits = kept.map { $0.wait / .seconds(1) }
        let count = try await connection.query(
            """
            SELECT entitlement_sync.keep_import_lines(
                       \(epoch), \(kept.map(\.line.importID)), \(kept.map(\.line.number)), \(kept.map(\.line.turn)),
                       \(kept.map { $0.line.job?.userKey }), \(kept.map { $0.result?.rawValue }), \(kept.map(\.detail)),
                       \(kept.map(\.givesAccess)), \(kept.map(\.spellings)), \(kept.map { Int32(clamping: $0.attempt) }),
                       \(waits))
            """
        ).one.decode(Int32.self)
        return Int(count)
    }

    /// Records what lines get.
    package func keep(_ kept: [Kept], epoch: Int32) async throws {
        try await pool.withTransaction { try await Self.keep(kept, epoch: epoch, on: $0) }
    }

    /// Gives lines back at once.
    package func release(_ lines: [Taken], epoch: Int32) async throws {
        try await keep(
            lines.map { line in
                var kept = Kept(line, nil)
                kept.attempt = line.attempt
                return kept
            },
            epoch: epoch
        )
    }

    /// Moves imports on; returns how many went on.
    package func settle() async throws -> Int {
        Int(try await pool.query("SELECT entitlement_sync.settle_imports()").one.decode(Int32.self))
    }
}
